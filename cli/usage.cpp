#include "cli/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "attest/nearest.h"
#include "properties/property.h"

namespace fractus::cli {
namespace {

// A name that stands in a list twice is most likely meant to be another one.
void require_each_once(const std::string& option, const std::vector<std::string>& names) {
  for (auto name = names.begin(); name != names.end(); ++name)
    if (std::find(names.begin(), name, *name) != name)
      throw UsageError(fmt::format("{}: '{}' is given twice", option, *name));
}

std::map<std::string, std::int64_t> settings_from(const std::string& text, const FormInfo& form,
                                                  const std::string& role) {
  std::map<std::string, std::int64_t> settings;
  for (const std::string& part : split("--" + role, text)) {
    const auto equals = part.find('=');
    const std::string parameter = part.substr(0, equals);
    std::vector<std::string> known;
    for (const auto& [name, value] : form.settings) known.push_back(name);
    if (!form.settings.contains(parameter)) unknown(fmt::format("parameter of {}", form.name), parameter, known);
    std::int64_t value = 0;
    const char* first = equals == std::string::npos ? nullptr : part.data() + equals + 1;
    const char* last = part.data() + part.size();
    if (first == nullptr || std::from_chars(first, last, value).ptr != last || first == last || value < 1)
      throw UsageError(
          fmt::format("{}: wanted {}=N with N a whole number of 1 or more, got '{}'", form.name, parameter, part));
    if (!settings.emplace(parameter, value).second)
      throw UsageError(
          fmt::format("{}: {} is given twice, as {} and as {}", form.name, parameter, settings[parameter], value));
  }
  return settings;
}

// Throws UsageError where the file binds no such name and one like it.
void require_like(const std::vector<outside::Outlined>& names, const outside::Spec& spec) {
  std::vector<std::string> functions;
  for (const outside::Outlined& one : names) {
    if (one.name == spec.name) return;
    if (one.is_function) functions.push_back(one.name);
  }
  if (!nearest(spec.name, functions).empty()) unknown("function of " + spec.path, spec.name, functions);
}

// The one kernel whose arguments the function has, all of them by name; nullptr where there is none, or several.
std::vector<const Driver*> drivers_for(Purpose purpose) {
  std::vector<const Driver*> all = drivers();
  if (purpose == Purpose::identity) all.insert(all.end(), identity_drivers().begin(), identity_drivers().end());
  return all;
}

const Driver* kernel_by_parameters(Workshop& workshop, const outside::Spec& spec, Purpose purpose) {
  if (spec.kind->ending != ".py") return nullptr;
  std::vector<std::string> parameters;
  try {
    const std::vector<outside::Outlined> names = workshop.outline(spec.path);
    require_like(names, spec);
    for (const outside::Outlined& one : names)
      if (one.name == spec.name) parameters = one.parameters;
  } catch (const UnreadableSource&) {  // loading it says why
    return nullptr;
  }
  const Driver* found = nullptr;
  for (const Driver* driver : drivers_for(purpose)) {
    const std::vector<std::string> wanted = argument_names(*driver->contract);
    const auto has = [&](const std::string& argument) { return contains(parameters, argument); };
    if (!std::all_of(wanted.begin(), wanted.end(), has)) continue;
    if (found != nullptr) return nullptr;
    found = driver;
  }
  return found;
}

Chosen choose_outside(Workshop& workshop, const std::string& kernel, const std::string& text, const outside::Spec& spec,
                      const std::string& role, Purpose purpose) {
  require_file(spec.path);
  // A file that is named after its kernel says which it is.
  const std::string stem = std::filesystem::path(spec.path).stem();
  const Driver* driver = find_driver(kernel.empty() ? stem : kernel);
  if (driver == nullptr) driver = kernel_by_parameters(workshop, spec, purpose);
  if (driver == nullptr)
    throw UsageError(fmt::format("{} '{}': say for which kernel with --kernel; there are: {}", role, text,
                                 fmt::join(kernel_names(purpose), ", ")));
  require_purpose(*driver->contract, purpose);
  Chosen chosen{.driver = driver, .outside = true};
  chosen.form = {.kernel = driver->contract->kernel, .name = text, .role = "candidate"};
  return chosen;
}

}  // namespace

void require_fit(const Chosen& chosen, bool forward_only, const std::vector<DType>& dtypes) {
  const auto spec = chosen.outside ? outside::spec_from(chosen.form.name) : std::nullopt;
  if (!spec || !spec->kind->forward_only) return;
  if (!forward_only)
    throw UsageError(fmt::format(
        "'{}' holds a forward alone, and a training run takes gradients through its kernels: give what it was "
        "exported from, as {}, or, for a kernel that is called without gradients, say --forward-only to the "
        "verdict",
        chosen.form.name, outside::kinds[0].spelling));
  if (dtypes.size() > 1)
    throw UsageError(
        fmt::format("'{}' is compiled for one dtype: say which, --dtype float32 or --dtype float64", chosen.form.name));
}

void load(Workshop& workshop, Chosen& chosen) {
  if (!chosen.outside) return;
  try {
    std::string recomputes = std::move(chosen.form.recomputes);
    chosen.form = workshop.load(chosen.form.kernel, chosen.form.name);
    chosen.form.recomputes = std::move(recomputes);
  } catch (const outside::NotThere& error) {
    const auto spec = outside::spec_from(chosen.form.name);
    unknown(fmt::format("{} of {}", spec->kind->ending == ".py" ? "function" : "operator", spec->path), spec->name,
            error.known);
  }
}

void require_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    if (!std::ifstream(path)) throw UsageError(fmt::format("'{}' cannot be read: {}", path, std::strerror(errno)));
    return;
  }
  const std::filesystem::path wanted(path);
  const std::filesystem::path folder = wanted.has_parent_path() ? wanted.parent_path() : ".";
  std::vector<std::string> there;
  for (auto entry = std::filesystem::directory_iterator(folder, error); !error && entry != decltype(entry)();
       entry.increment(error))
    if (entry->path().extension() == wanted.extension())
      there.push_back((wanted.parent_path() / entry->path().filename()).string());
  std::sort(there.begin(), there.end());
  if (std::filesystem::exists(path, error)) throw UsageError(fmt::format("'{}' is no regular file", path));
  const auto close = nearest(path, there);
  throw UsageError(fmt::format("no file '{}'{}", path,
                               close.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(close, ", or "))));
}

void require_purpose(const Contract& contract, Purpose purpose) {
  if (contract.only_identity && purpose != Purpose::identity)
    throw UsageError(fmt::format("kernel {} is judged by `identity` alone: ./fractus-verify identity FORM --kernel {}",
                                 contract.kernel, contract.kernel));
}

std::vector<std::string> kernel_names(Purpose purpose) {
  std::vector<std::string> names;
  for (const Driver* driver : drivers_for(purpose)) names.push_back(driver->contract->kernel);
  return names;
}

void unknown(const std::string& what, const std::string& wanted, const std::vector<std::string>& known) {
  throw UsageError(fmt::format("unknown {} '{}'; {}", what, wanted, nearest_text(wanted, known)));
}

std::chrono::duration<double> duration_from(const std::string& text) {
  static const std::map<std::string, double> units{{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}};
  double amount = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
  const auto unit = units.find(std::string(end, text.data() + text.size()));
  if (error != std::errc() || unit == units.end() || !(amount > 0) || !(amount < 1e7))
    throw UsageError(fmt::format("--budget: wanted a time such as 30s, 10m or 1h, got '{}'", text));
  return std::chrono::duration<double>(amount * unit->second);
}

std::vector<std::string> split(const std::string& option, const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t start = 0; !list.empty() && start <= list.size();) {
    const std::size_t comma = std::min(list.find(',', start), list.size());
    if (comma == start)
      throw UsageError(fmt::format("{}: wanted a word before and after each comma, got '{}'", option, list));
    words.push_back(list.substr(start, comma - start));
    start = comma + 1;
  }
  return words;
}

Chosen choose(Workshop& workshop, const std::string& kernel, const std::string& text, const std::string& role,
              Purpose purpose) {
  if (!kernel.empty() && find_driver(kernel) == nullptr) unknown("kernel", kernel, kernel_names(purpose));
  if (!kernel.empty()) require_purpose(*find_driver(kernel)->contract, purpose);
  try {
    if (const auto spec = outside::spec_from(text)) return choose_outside(workshop, kernel, text, *spec, role, purpose);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  const auto colon = text.find(':');
  const std::string name = text.substr(0, colon);

  std::vector<const FormInfo*> matches;
  std::vector<std::string> known, right;
  std::set<std::string> kernels;
  for (const FormInfo& form : workshop.forms()) {
    if (!kernel.empty() && form.kernel != kernel) continue;
    known.push_back(form.name);
    if (form.role != "wrong") right.push_back(form.name);
    if (form.name == name) matches.push_back(&form), kernels.insert(form.kernel);
  }
  const auto elsewhere = std::find_if(workshop.forms().begin(), workshop.forms().end(),
                                      [&](const FormInfo& form) { return form.name == name; });
  if (matches.empty() && elsewhere != workshop.forms().end())
    throw UsageError(
        fmt::format("{} '{}' is a form of {}, and --kernel says {}", role, name, elsewhere->kernel, kernel));
  if (matches.empty()) unknown(role, name, nearest(name, known).empty() ? right : known);
  if (kernels.size() > 1)
    throw UsageError(
        fmt::format("{} '{}' exists for {}; say which with --kernel", role, name, fmt::join(kernels, ", ")));
  const FormInfo& form = *matches.front();
  if (colon == text.size() - 1) throw UsageError(fmt::format("'{}': wanted parameter=value behind the colon", text));
  Chosen chosen{find_driver(form.kernel), form, {}};
  if (colon != std::string::npos) chosen.settings = settings_from(text.substr(colon + 1), form, role);
  return chosen;
}

std::vector<std::string> properties_from(const std::string& text, const std::string& option) {
  std::vector<std::string> names = split(option, text);
  std::vector<std::string> known;
  for (const Property& property : properties()) known.push_back(property.name);
  known.emplace_back("power");
  for (const std::string& name : names)
    if (!contains(known, name)) unknown("property", name, known);
  require_each_once(option, names);
  if (option == "--only" && names == std::vector<std::string>{"power"})
    throw UsageError(
        "--only power runs nothing against the candidate: power is measured by the cases of the other properties, so "
        "name one of them beside it, for instance --only exact,power");
  return names;
}

void require_applying(const std::vector<std::string>& properties, const Chosen& chosen, const std::string& option) {
  for (const std::string& name : properties) {
    const Property* property = find_property(name);
    if (property == nullptr) continue;  // power
    if (!property->applies(*chosen.driver))
      throw UsageError(fmt::format("{}: '{}' does not apply to {}", option, name, chosen.driver->contract->kernel));
    if (property->of_recompute && chosen.form.recomputes.empty())
      throw UsageError(
          fmt::format("{}: '{}' is about a form that runs another one again in its backward; say which "
                      "'{}' does with --recompute-of",
                      option, name, chosen.form.name));
  }
}

std::optional<Chosen> choose_recomputed(Workshop& workshop, Chosen& candidate, const std::string& text) {
  if (text.empty()) return std::nullopt;
  Chosen plain = choose(workshop, candidate.driver->contract->kernel, text, "recompute-of");
  if (plain.form.name == candidate.form.name)
    throw UsageError(
        fmt::format("--recompute-of: '{}' is the candidate itself; wanted the form without recompute", text));
  candidate.form.recomputes = plain.form.name;
  return plain;
}

void load_recomputed(Workshop& workshop, std::optional<Chosen>& plain) {
  if (!plain) return;
  load(workshop, *plain);
  if (!plain->form.trouble.empty()) throw UsageError(fmt::format("--recompute-of: {}", plain->form.trouble));
}

void require_waivers(const std::vector<std::string>& names, const Contract& contract) {
  require_each_once("--waive", names);
  for (const std::string& name : names)
    if (!contains(contract.waivers, name))
      unknown(fmt::format("waiver of {}", contract.kernel), name, contract.waivers);
}

std::vector<DType> dtypes_from(const std::string& text) {
  if (text.empty()) return {DType::float32, DType::float64};
  if (text != "float32" && text != "float64") unknown("dtype", text, {"float32", "float64"});
  return {dtype_from(text)};
}

}  // namespace fractus::cli
