// What an operator lets onto a machine: whose signature, which kernels, how strong a verdict, from what machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "attest/keys.h"

namespace fractus::gate {

// How one fact of the verdict's machine must stand to that of the machine that loads the code.
enum class Rule {
  same,      // equal, and known on both
  superset,  // cpu_features alone: the loading machine has all that the verdict's had
  any        // not looked at
};

// A policy cannot ask for less than a verdict EQUIVALENT, whose every known-wrong form was caught and of whose planned
// cases each was run: that is no member here. A member that is not written has the value below.
struct Policy {
  std::vector<attest::PublicKey> keys;                 // that may sign
  std::vector<attest::PublicKey> revoked;              // named in `keys` and in revoked_keys: they may not
  std::map<std::string, std::int64_t> kernels;         // the contract's version, by kernel; other kernels are refused
  std::optional<std::set<std::string>> forms;          // as `form_of` spells them; none: any form of these kernels
  std::string preset = "live";                         // "smoke" admits a verdict of either preset
  std::set<std::string> dtypes{"float32", "float64"};  // that the verdict must hold for
  bool forward_only = false;                           // whether a verdict without gradients is admitted
  std::set<std::string> waivers;                       // that a verdict may have been reached with
  std::set<std::string> uncovered;                     // classes of cases that may be missing
  // A plan is fixed by the signer's version, and these are below those of every complete plan of this one, smoke for
  // one dtype included: they stop a plan that some version lost on its way.
  std::int64_t smallest_cases = 100, smallest_elements = 10'000, smallest_kills = 10;
  // Of all compared elements. Complete runs of this version reach 0.027; the verdict itself allows a single property
  // 0.25.
  double largest_undecidable_share = 0.05;
  std::chrono::seconds max_age{30 * 86400};  // since the verdict was issued; the envelope's own expiry holds beside it
  std::chrono::seconds clock_skew{120};      // by which a statement may be of the future; none is granted to its expiry
  // What selects the code that runs: torch and the libraries below it dispatch on the processor's extensions, and
  // compile for the GPU at hand. The model of a processor, its cores, and the compiler of bytes that are bound by their
  // digest do not.
  std::map<std::string, Rule> machine{{"cpu", Rule::any},     {"cpu_features", Rule::same}, {"cores", Rule::any},
                                      {"system", Rule::same}, {"compiler", Rule::any},      {"torch", Rule::same},
                                      {"cuda", Rule::same},   {"gpu", Rule::same},          {"driver", Rule::same},
                                      {"flags", Rule::any}};
  std::set<std::string> revoked_plans, revoked_candidates, revoked_keys;  // hex: plan hashes, digests, key ids
};

// Of a file whose name ends in .toml or .json. `keys` are files, relative to the policy's folder, or PEM texts. Throws
// std::runtime_error with file, member and fault: an unknown member (with the nearest that there is), one of a wrong
// type or out of its range, a key that cannot be read.
Policy policy_from(const std::filesystem::path& file);

// The same of a text; `name` stands in errors, and its ending says whether it is TOML or JSON.
Policy policy_from(std::string_view text, const std::string& name, const std::filesystem::path& folder);

// Every member with its value, keys by their ids: two policies are the same where these are.
nlohmann::json to_json(const Policy& policy);

}  // namespace fractus::gate
