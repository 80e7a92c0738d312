#include "gate/artifacts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "gate/members.h"

namespace fractus::gate {
namespace {

constexpr const char* check = "artifact";

using attest::Subject;
using Parts = std::vector<std::string>;

// Of a path: "." and ".." resolved as text, without the empty part that a '/' at the end makes.
Parts parts_of(const std::filesystem::path& path) {
  Parts parts;
  for (const auto& part : path.lexically_normal())
    if (!part.empty()) parts.push_back(part.string());
  return parts;
}

// Each without the folders that all of them begin with; of one alone, its own name.
std::vector<Parts> places(std::vector<Parts> all) {
  const auto shared = [&all](std::size_t depth) {
    return std::all_of(all.begin(), all.end(), [&](const Parts& parts) {
      return parts.size() > depth + 1 && parts[depth] == all.front()[depth];
    });
  };
  std::size_t depth = 0;
  while (!all.empty() && shared(depth)) ++depth;
  for (Parts& parts : all) parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(depth));
  return all;
}

bool is_inside(const Parts& inner, const Parts& outer) {
  return inner.size() > outer.size() && std::equal(outer.begin(), outer.end(), inner.begin());
}

std::string text_of(const attest::Digest& digest) { return fmt::format("{} {}", digest.algorithm, digest.hex); }

attest::Digest digest_of(const Subject& subject) { return {subject.algorithm, subject.digest}; }

struct Roles {
  std::vector<Subject> candidate, reference;  // the reference's own alone
};

// A subject that no role names is the candidate's: what was signed for some reason is asked for.
std::optional<Roles> roles_of(const attest::Statement& statement, Answer& answer) {
  const Members said(statement.predicate, check, answer);
  const auto candidate = said.texts("candidate_subjects"), reference = said.texts("reference_subjects");
  if (!candidate || !reference) return std::nullopt;
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string& name : *candidate)
    if (std::none_of(statement.subjects.begin(), statement.subjects.end(),
                     [&](const Subject& subject) { return subject.name == name; })) {
      answer.refusals.push_back(
          {check, fmt::format("the statement names '{}' as the candidate's and has no digest of it", shown(name)),
           "sign a new verdict with a version of fractus-verify that this gate knows"});
      return std::nullopt;
    }
  Roles roles;
  for (const Subject& subject : statement.subjects)
    (has(*reference, subject.name) && !has(*candidate, subject.name) ? roles.reference : roles.candidate)
        .push_back(subject);
  if (!candidate->empty() && !roles.candidate.empty()) return roles;
  answer.refusals.push_back({check, "the statement binds no bytes of a candidate",
                             "sign a new verdict with a version of fractus-verify that this gate knows"});
  return std::nullopt;
}

// Those that need an artifact of their own.
std::vector<Subject> required(const std::vector<Subject>& candidate) {
  std::vector<Subject> rest;
  for (const Subject& one : candidate)
    if (std::none_of(candidate.begin(), candidate.end(), [&](const Subject& folder) {
          return folder.algorithm == attest::tree_sha256_name && is_inside(parts_of(one.name), parts_of(folder.name));
        }))
      rest.push_back(one);
  return rest;
}

void refuse_strangers(const Roles& roles, const std::vector<Subject>& wanted, const std::vector<Artifact>& artifacts,
                      Answer& answer) {
  for (const Artifact& artifact : artifacts) {
    const auto is_it = [&](const Subject& subject) { return digest_of(subject) == artifact.digest; };
    if (std::any_of(wanted.begin(), wanted.end(), is_it)) continue;
    const std::string path = artifact.path.string();
    const std::string name = parts_of(artifact.path).empty() ? path : parts_of(artifact.path).back();
    const auto namesake = std::find_if(roles.candidate.begin(), roles.candidate.end(), [&](const Subject& subject) {
      const Parts parts = parts_of(subject.name);
      return !parts.empty() && parts.back() == name && subject.algorithm == artifact.digest.algorithm;
    });
    if (std::any_of(roles.reference.begin(), roles.reference.end(), is_it))
      answer.refusals.push_back({check, fmt::format("'{}' is the reference of the verdict, not its candidate", path),
                                 "load the candidate's file, and give that one with --artifact"});
    else if (std::any_of(roles.candidate.begin(), roles.candidate.end(), is_it))
      answer.refusals.push_back({check, fmt::format("'{}' is a part of a folder that was verified as a whole", path),
                                 "give the folder with --artifact in place of its files"});
    else if (namesake != roles.candidate.end())
      answer.refusals.push_back({check,
                                 fmt::format("'{}': wanted {} as it was verified, got {}", path,
                                             text_of(digest_of(*namesake)), artifact.digest.hex),
                                 "the bytes are not those of the verdict: load the verified ones, or verify these"});
    else
      answer.refusals.push_back(
          {check, fmt::format("'{}' ({}) is no subject of the statement", path, text_of(artifact.digest)),
           artifact.digest.algorithm == attest::tree_sha256_name
               ? "verify the candidate with --subject of this folder, or give the verified files one by one"
               : "verify this file, or do not load it beside the candidate"});
  }
}

void refuse_missing(const std::vector<Subject>& wanted, const std::vector<Artifact>& artifacts, Answer& answer) {
  for (const Subject& subject : wanted)
    if (std::none_of(artifacts.begin(), artifacts.end(),
                     [&](const Artifact& artifact) { return artifact.digest == digest_of(subject); }))
      answer.refusals.push_back(
          {check,
           fmt::format("the candidate's '{}' ({}) is none of the artifacts", shown(subject.name),
                       text_of(digest_of(subject))),
           "give with --artifact every file and folder that the candidate was loaded from, as verified"});
}

// The same digests at the same places.
void refuse_other_layout(const std::vector<Subject>& wanted, const std::vector<Artifact>& artifacts, Answer& answer) {
  std::vector<Parts> named, lying;
  for (const Subject& subject : wanted) named.push_back(parts_of(subject.name));
  for (const Artifact& artifact : artifacts) lying.push_back(parts_of(std::filesystem::absolute(artifact.path)));
  named = places(std::move(named));
  lying = places(std::move(lying));
  std::multimap<Parts, std::string> then, now;
  for (std::size_t i = 0; i < wanted.size(); ++i) then.emplace(named[i], text_of(digest_of(wanted[i])));
  for (std::size_t i = 0; i < artifacts.size(); ++i) now.emplace(lying[i], text_of(artifacts[i].digest));
  if (then == now) return;
  const auto list = [](const std::multimap<Parts, std::string>& all) {
    std::vector<std::string> names;
    for (const auto& [parts, digest] : all) {
      std::string name;
      for (const std::string& part : parts) name += (name.empty() || name == "/" ? "" : "/") + part;
      names.push_back(fmt::format("{} ({}...)", name, digest.substr(0, digest.find(' ') + 9)));
    }
    return shown(names);
  };
  answer.refusals.push_back(
      {check,
       fmt::format("the artifacts lie or are named otherwise than in the run: wanted {}, got {}", list(then),
                   list(now)),
       "keep names and folders as they were verified, or verify with --subject of the folder that holds all of it"});
}

// A package, and an extension module, of a source's name go before the source where Python looks for it
// (importlib.machinery.FileFinder). Other names that a program might import are not known here.
void refuse_shadows(const std::vector<Artifact>& artifacts, Answer& answer) {
  for (const Artifact& artifact : artifacts) {
    if (artifact.path.extension() != ".py") continue;
    std::error_code error;
    const std::string stem = artifact.path.stem().string();
    const std::filesystem::path folder = artifact.path.has_parent_path() ? artifact.path.parent_path() : ".";
    for (std::filesystem::directory_iterator one(folder, error), end; !error && one != end; one.increment(error)) {
      const std::string name = one->path().filename().string();
      std::error_code ignored;
      const bool package = name == stem && one->is_directory(ignored),
                 extension = name.starts_with(stem + ".") && name.ends_with(".so");
      if (package || extension)
        answer.refusals.push_back(
            {check, fmt::format("'{}' may be loaded in place of '{}'", one->path().string(), artifact.path.string()),
             "remove it, load from a folder that holds nothing else, or bind the whole folder with --subject"});
    }
  }
}

// Python runs the compiled form that lies beside a source and claims to be of its time and size (PEP 3147, PEP 552), or
// claims that nobody need look: bytes that no digest of the source binds.
void refuse_compiled(const std::vector<Artifact>& artifacts, Answer& answer) {
  for (const Artifact& artifact : artifacts) {
    if (artifact.path.extension() != ".py") continue;
    std::error_code error;
    const std::string stem = artifact.path.stem().string() + ".";
    for (std::filesystem::directory_iterator one(artifact.path.parent_path() / "__pycache__", error), end;
         !error && one != end; one.increment(error))
      if (const std::string name = one->path().filename().string(); name.starts_with(stem) && name.ends_with(".pyc")) {
        answer.refusals.push_back(
            {check, fmt::format("'{}' may be run in place of '{}'", one->path().string(), artifact.path.string()),
             "remove it and set PYTHONDONTWRITEBYTECODE=1 or PYTHONPYCACHEPREFIX for the run, or bind the whole folder "
             "with --subject"});
        break;
      }
  }
}

}  // namespace

std::vector<Artifact> read_artifacts(const std::vector<std::filesystem::path>& paths, Answer& answer) {
  std::vector<Artifact> artifacts;
  for (const auto& path : paths) try {
      artifacts.push_back({path, attest::digest_of(path)});
    } catch (const std::exception& fault) {
      answer.refusals.push_back(
          {check, fault.what(), "give with --artifact the files and folders that will be loaded"});
    }
  return artifacts;
}

Answer artifacts_admitted(const Policy& policy, const attest::Statement& statement,
                          const std::vector<Artifact>& artifacts) {
  Answer answer;
  const auto roles = roles_of(statement, answer);
  if (!roles) return answer;
  for (const Subject& subject : roles->candidate)
    if (policy.revoked_candidates.contains(subject.digest))
      answer.refusals.push_back({check,
                                 fmt::format("the candidate's '{}' ({}) is revoked by the policy", shown(subject.name),
                                             text_of(digest_of(subject))),
                                 "load the form that was in use before, or a mended candidate with its own verdict"});
  const std::vector<Subject> wanted = required(roles->candidate);
  const std::size_t before = answer.refusals.size();
  refuse_strangers(*roles, wanted, artifacts, answer);
  refuse_missing(wanted, artifacts, answer);
  if (answer.refusals.size() == before) refuse_other_layout(wanted, artifacts, answer);
  refuse_compiled(artifacts, answer);
  refuse_shadows(artifacts, answer);
  if (answer.refusals.empty())
    for (const Artifact& artifact : artifacts)
      answer.checked.push_back({check, fmt::format("{} is {}", artifact.path.string(), text_of(artifact.digest))});
  return answer;
}

}  // namespace fractus::gate
