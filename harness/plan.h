// The plan: every case of a run as data, fixed and hashed before the candidate is loaded.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/process.h"
#include "properties/property.h"

namespace fractus {

struct Plan {
  std::string kernel;
  int contract_version = 1;
  std::string candidate;
  std::map<std::string, std::int64_t> settings;  // the candidate's, defaults included
  std::string recomputes;                        // the form that the candidate runs again in its backward; or empty
  std::string reference;                         // the form beside it; empty: none
  std::map<std::string, std::int64_t> reference_settings;
  std::string preset;
  PlanSettings generation;
  std::vector<std::string> properties;  // in order, "power" included where it is to be measured
  std::vector<std::string> known_good;  // forms whose ratios set the tighter line
  std::vector<std::string> known_wrong;
  std::vector<Case> cases;
  std::vector<Case> with_backward;  // what the same plan would hold beside, were gradients wanted; empty where they are
  std::string hash;                 // SHA-256 of all of the above, hex
  std::string plan_of;              // the hash of the complete plan that this is, or is a shard of
  std::vector<std::string> plan_properties;  // of that plan
};

struct PlanRequest {
  const Driver* driver = nullptr;
  FormInfo candidate;
  std::map<std::string, std::int64_t> settings;  // over the form's defaults
  std::string preset = "live";                   // live or smoke
  std::uint64_t seed = 0;
  std::vector<DType> dtypes{DType::float32, DType::float64};
  std::vector<std::string> only;  // properties; empty: all
  std::vector<std::string> skip;  // properties of these that are left out
  bool forward_only = false;      // the kernel is called where no gradient is wanted
  // A second form that is judged on the same cases. It changes nothing else of the plan: the candidate's verdict must
  // not depend on what it is held against.
  std::optional<FormInfo> reference;
  std::map<std::string, std::int64_t> reference_settings;  // over the form's defaults
};

// The same values, put to a kernel that is called without gradients.
Case without_gradients(Case c);

// The same request, forms and build give the same plan, bit for bit. With `only` or `skip` it is a shard: the cases and
// the measures that the complete plan has for these properties, so that shards of one plan add up to it.
Plan make_plan(const PlanRequest& request, const std::vector<FormInfo>& forms);

// The form that the plan is for, with what it runs again, as the workshop that has loaded it knows it.
FormInfo candidate_of(const Workshop& workshop, const Plan& plan);

std::string sha256(const std::string& bytes);  // hex

}  // namespace fractus
