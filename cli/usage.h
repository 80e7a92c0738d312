// Asking for what there is: errors that name the nearest thing instead.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/process.h"
#include "properties/driver.h"

namespace fractus::cli {

// Exit status 64.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// "unknown candidate 'chuncked'; did you mean chunked? ..." as a UsageError.
[[noreturn]] void unknown(const std::string& what, const std::string& wanted, const std::vector<std::string>& known);

// Some kernels are judged by the command `identity` alone; no other command takes them.
enum class Purpose { verdict, identity };

std::vector<std::string> kernel_names(Purpose purpose = Purpose::verdict);

// Throws UsageError where the kernel is not judged for this purpose.
void require_purpose(const Contract& contract, Purpose purpose);

// Throws UsageError, with the nearest names beside it, unless it is a regular file that can be read.
void require_file(const std::string& path);

// "30s", "10m", "1h", "500ms", "90" (seconds). Throws UsageError.
std::chrono::duration<double> duration_from(const std::string& text);

// At commas. Throws UsageError that names the option where a part is empty.
std::vector<std::string> split(const std::string& option, const std::string& list);

// A form named on the command line: "chunked", "chunked:block=16" or a spelling of outside::Kind.
struct Chosen {
  const Driver* driver = nullptr;
  FormInfo form;
  std::map<std::string, std::int64_t> settings;
  bool outside = false;  // the form is not loaded yet, so that a plan can be fixed before it is
};

// `kernel` may be empty where one kernel alone has such a form; for a file where it is named after its kernel, or where
// the parameters of its function are those of one kernel alone. `role` is the option that names the form: candidate or
// reference.
Chosen choose(Workshop& workshop, const std::string& kernel, const std::string& text,
              const std::string& role = "candidate", Purpose purpose = Purpose::verdict);

// Throws UsageError where the form is of a kind that such a run is not for: an exported package holds a forward alone,
// compiled for one dtype.
void require_fit(const Chosen& chosen, bool forward_only, const std::vector<DType>& dtypes);

// Loads a candidate from outside, and does nothing for one of the build. Throws UsageError where its file has no such
// function; anything else that goes wrong in loading is in chosen.form.trouble.
void load(Workshop& workshop, Chosen& chosen);

// The properties of a list, "power" included; no text, no properties. Throws UsageError where one is unknown or stands
// there twice, and where power alone is asked for.
std::vector<std::string> properties_from(const std::string& text, const std::string& option = "--only");

// Throws UsageError where a property has nothing to say of the kernel.
void require_applying(const std::vector<std::string>& properties, const Chosen& chosen,
                      const std::string& option = "--only");

// The form of --recompute-of beside the candidate, which then names it; none where the option is not given. Throws
// UsageError.
std::optional<Chosen> choose_recomputed(Workshop& workshop, Chosen& candidate, const std::string& text);

// Loads it where it is from outside. Throws UsageError where that fails.
void load_recomputed(Workshop& workshop, std::optional<Chosen>& plain);

// Throws UsageError unless each is a waiver of the kernel and stands there once.
void require_waivers(const std::vector<std::string>& names, const Contract& contract);
std::vector<DType> dtypes_from(const std::string& text);  // empty: both

}  // namespace fractus::cli
