// What the operations of the device note down of themselves. Safe to call on any thread: autograd runs the backward of
// a device on a thread of its own.
#pragma once

#include <functional>
#include <string>

#include "field/device.h"

namespace fractus::field {

// A thing that holds at a generic point alone, or that rounds where numbers are floats: kinds as in Remark.
void remark(const std::string& kind, const std::string& operation, const std::string& detail = "");

// Ends the run: throws c10::Error that names operation, place and reason. `kind` is non-algebraic or non-deterministic.
[[noreturn]] void refuse(const std::string& operation, const std::string& why,
                         const std::string& kind = "non-algebraic");

// A division by 0: throws c10::Error. Another draw has another denominator.
[[noreturn]] void pole(const std::string& operation);

// "aten::exp" of an operation's schema name and overload; functional, in-place and out= forms have one name.
std::string plain_name(const std::string& schema_name);

void set_place(std::function<std::string()> place);
void start_record(bool traced);
Record finish_record();
Record record_so_far();

}  // namespace fractus::field
