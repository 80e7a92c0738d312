// What to do with a failing case, whoever found it.
#pragma once

#include <filesystem>

#include "harness/attached.h"
#include "reports/result.h"

namespace fractus {

// Shrinks record.finding, keeps the witness as a file under `fixtures`, and writes down how to see it again. A folder
// that cannot be written costs a note, never the verdict.
void explain(const Driver& driver, const Property& property, const Case& c, Attached& candidate,
             const std::filesystem::path& fixtures, PropertyResult& record);

}  // namespace fractus
