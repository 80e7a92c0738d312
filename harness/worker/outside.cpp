#include "harness/worker/outside.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "harness/outside.h"
#include "harness/worker/compiled.h"

namespace fractus::worker {
namespace {

std::optional<Language>& opened() {
  static std::optional<Language> one;
  return one;
}

using Load = Form (*)(const outside::Spec& spec, const Contract& contract);

Form load_python(const outside::Spec& spec, const Contract& contract) {
  open_python();
  return opened()->load(spec.path, spec.name, contract);
}

const std::map<std::string_view, Load>& loaders() {
  static const std::map<std::string_view, Load> all{
      {".py", load_python}, {".so", load_operator}, {".pt", load_program}, {".pt2", load_package}};
  return all;
}

}  // namespace

Form load_outside(const std::string& candidate, const Contract& contract) {
  const auto spec = outside::spec_from(candidate);
  if (!spec) throw std::invalid_argument(fmt::format("'{}' names no file", candidate));
  Form form = loaders().at(spec->kind->ending)(*spec, contract);
  form.kernel = contract.kernel;
  form.name = candidate;
  form.role = Role::candidate;
  return form;
}

void open_python() {
  if (opened()) return;
  const std::filesystem::path path =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fractus-python.so";
  // Global: extension modules of Python take its symbols from the process and name no library for them.
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  auto* const open = reinterpret_cast<OpenLanguage*>(dlsym(library, "fractus_language"));
  if (open == nullptr) throw std::runtime_error(dlerror());
  Language language;
  open(language);
  opened() = std::move(language);
}

const Language* language() { return opened() ? &*opened() : nullptr; }

}  // namespace fractus::worker
