#include "harness/subjects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "harness/outside.h"

namespace fractus {
namespace {

namespace fs = std::filesystem;

constexpr const char* worker_name = "fractus-worker";

void require_unchanged(const std::string& path, const attest::Digest& was) {
  if (attest::digest_of(path) != was)
    throw std::runtime_error(
        fmt::format("'{}' has other bytes now than when it was loaded, so nobody can say which the verdict is about: "
                    "run it again without changing it meanwhile",
                    path));
}

// The files of one form, by canonical path.
std::map<std::string, std::string> files_of(const Workshop& workshop, const std::string& kernel,
                                            const std::string& form) {
  const FormInfo* known = workshop.find_form(kernel, form);
  if (known == nullptr) throw std::runtime_error(fmt::format("no form of {} is named '{}'", kernel, form));
  const outside::Loaded loaded = workshop.loaded(*known);
  if (!loaded.unbound.empty())
    throw std::runtime_error(fmt::format("a signature cannot bind all that '{}' was loaded from: {}", form,
                                         fmt::join(loaded.unbound, "; ")));
  for (const auto& [path, digest] : loaded.digests) require_unchanged(path, {attest::sha256_name, digest});
  return loaded.digests;
}

bool is_in(const std::string& path, const fs::path& folder) {
  const fs::path relative = fs::path(path).lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

// The folder that all of a candidate's subjects lie in, so that their names say how they lie to each other wherever
// they are put later.
fs::path folder_of(const std::vector<fs::path>& paths) {
  fs::path folder = paths.front().parent_path();
  for (const fs::path& path : paths)
    while (!is_in(path, folder)) folder = folder.parent_path();
  return folder;
}

// What stands for the candidate, by canonical path: its files, and in place of those in a given folder the folder.
std::map<std::string, attest::Digest> bound_of(const Workshop& workshop, const Plan& plan,
                                               const std::vector<Given>& given) {
  std::map<std::string, attest::Digest> all;
  std::vector<std::string> folders;
  for (const Given& one : given) {
    require_unchanged(one.path, one.digest);
    if (one.digest.algorithm == attest::tree_sha256_name) folders.push_back(one.path);
    all.emplace(one.path, one.digest);
  }
  for (const auto& [path, digest] : files_of(workshop, plan.kernel, plan.candidate)) {
    if (folders.empty()) all.emplace(path, attest::Digest{attest::sha256_name, digest});
    const auto holds = [&path = path](const std::string& folder) { return is_in(path, folder); };
    if (!folders.empty() && std::none_of(folders.begin(), folders.end(), holds))
      throw std::runtime_error(
          fmt::format("--subject: '{}' was loaded as part of the candidate and lies in none of the folders ({})", path,
                      fmt::join(folders, ", ")));
  }
  return all;
}

attest::Subject subject_of(const std::string& path, const attest::Digest& digest, const fs::path& base) {
  return {fs::path(path).lexically_relative(base).generic_string(), digest.algorithm, digest.hex};
}

}  // namespace

std::vector<Given> given_from(const std::vector<std::string>& paths) {
  std::vector<Given> all;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    if (error) throw std::runtime_error(fmt::format("--subject '{}': {}", path, error.message()));
    all.push_back({real, attest::digest_of(real)});
  }
  return all;
}

Bytes bytes_of(const Workshop& workshop, const Plan& plan, const std::vector<Given>& given) {
  const attest::Subject worker{worker_name, attest::sha256_name, attest::sha256_of(workshop.program())};
  Bytes bytes;
  fs::path base;  // one for all names, so that no two files have the same one
  if (outside::spec_from(plan.candidate)) {
    const auto all = bound_of(workshop, plan, given);
    std::vector<fs::path> paths;
    for (const auto& [path, digest] : all) paths.emplace_back(path);
    base = folder_of(paths);
    for (const auto& [path, digest] : all) bytes.candidate.push_back(subject_of(path, digest, base));
  } else if (given.empty()) {
    bytes.candidate = {worker};
  } else {
    throw std::runtime_error(
        fmt::format("--subject: '{}' is a form of the build, whose bytes are those of {}; wanted a candidate from "
                    "outside",
                    plan.candidate, worker_name));
  }
  const auto add = [&bytes](const attest::Subject& subject) {
    if (std::find(bytes.reference.begin(), bytes.reference.end(), subject) == bytes.reference.end())
      bytes.reference.push_back(subject);
  };
  for (const std::string& form : {plan.reference, plan.recomputes}) {
    if (form.empty() || !outside::spec_from(form)) continue;
    for (const auto& [path, digest] : files_of(workshop, plan.kernel, form)) {
      if (base.empty()) base = fs::path(path).parent_path();
      add(subject_of(path, {attest::sha256_name, digest}, base));
    }
  }
  add(worker);  // its known-good forms set the tighter line, and its known-wrong ones measure the plan
  return bytes;
}

}  // namespace fractus
