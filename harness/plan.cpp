#include "harness/plan.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace fractus {
namespace {

// The block whose borders the shapes surround: the form's own, or production's where it has none. A form with a block
// that the shapes cannot fill is judged as one that none fills.
std::int64_t block_of(const Driver& driver, const std::map<std::string, std::int64_t>& settings) {
  const auto found = settings.find("block");
  return found == settings.end() ? 64 : std::min(found->second, driver.longest_block);
}

// The dtypes by turns, each in its own order: what one alone shows is seen as early as what the other does.
std::vector<Case> alternating(const std::vector<Case>& cases) {
  std::map<DType, std::deque<Case>> by_dtype;
  for (const Case& c : cases) by_dtype[c.dtype].push_back(c);
  std::vector<Case> mixed;
  while (mixed.size() < cases.size())
    for (auto& [dtype, queue] : by_dtype) {
      if (queue.empty()) continue;
      mixed.push_back(std::move(queue.front()));
      queue.pop_front();
    }
  return mixed;
}

std::string hash_of(const Plan& plan) {
  nlohmann::json json{{"kernel", plan.kernel},          {"contract", plan.contract_version},
                      {"candidate", plan.candidate},    {"settings", plan.settings},
                      {"preset", plan.preset},          {"seed", plan.generation.seed},
                      {"properties", plan.properties},  {"known_good", plan.known_good},
                      {"known_wrong", plan.known_wrong}};
  if (plan.generation.forward_only) json["forward_only"] = true;
  if (!plan.recomputes.empty()) json["recomputes"] = plan.recomputes;
  if (!plan.reference.empty()) json["reference"] = {{"name", plan.reference}, {"settings", plan.reference_settings}};
  for (const Case& c : plan.cases) json["cases"].push_back(c);
  return sha256(json.dump());
}

}  // namespace

FormInfo candidate_of(const Workshop& workshop, const Plan& plan) {
  FormInfo form = *workshop.find_form(plan.kernel, plan.candidate);
  form.recomputes = plan.recomputes;
  return form;
}

std::string sha256(const std::string& bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &length, EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("SHA-256 is not available in this OpenSSL");
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

Case without_gradients(Case c) {
  if (c.property == "gradients") c.property = "rounding", c.variant.clear();
  for (const std::string& output : c.cotangents) c.layouts.erase("d" + output);
  c.cotangents.clear();
  c.frozen.clear();
  return c;
}

namespace {

Plan complete_plan(const PlanRequest& request, const std::vector<FormInfo>& forms) {
  Plan plan;
  plan.kernel = request.driver->contract->kernel;
  plan.contract_version = request.driver->contract->version;
  plan.candidate = request.candidate.name;
  plan.recomputes = request.candidate.recomputes;
  plan.settings = request.candidate.settings;
  for (const auto& [parameter, value] : request.settings) plan.settings[parameter] = value;
  if (request.reference) {
    plan.reference = request.reference->name;
    plan.reference_settings = request.reference->settings;
    for (const auto& [parameter, value] : request.reference_settings) plan.reference_settings[parameter] = value;
  }
  plan.preset = request.preset;
  plan.generation = {.seed = request.seed,
                     .dtypes = request.dtypes,
                     .block = block_of(*request.driver, plan.settings),
                     .live = request.preset == "live",
                     .draws = request.preset == "live" ? 40 : 12,
                     .forward_only = request.forward_only};

  const bool recomputes = !plan.recomputes.empty() && !request.forward_only;
  std::uint64_t salt = request.seed;
  for (const Property& property : properties()) {
    // What is not asked of this form changes none of its plan.
    if (!property.applies(*request.driver) || (property.of_recompute && !recomputes)) continue;
    if (request.driver->contract->only_identity && property.name != "identity") continue;
    salt = salt * 6364136223846793005u + 1442695040888963407u;
    plan.properties.push_back(property.name);
    std::vector<Case> cases = alternating(property.plan(*request.driver, plan.generation));
    rc::Random random(salt);
    for (Case& c : cases) c.seed = random.next() >> 11;  // JSON numbers are exact up to 2^53
    if (property.random) {
      const std::vector<Case> more =
          drawn(property.random(*request.driver, plan.generation), salt, plan.generation.draws);
      cases.insert(cases.end(), more.begin(), more.end());
    }
    plan.cases.insert(plan.cases.end(), cases.begin(), cases.end());
  }
  if (request.forward_only) {
    for (const Case& c : std::exchange(plan.cases, {})) {
      if (!c.cotangents.empty()) plan.with_backward.push_back(c);
      // No other property has the training run's shape.
      if (c.property != "gradients" || c.dims == request.driver->live) plan.cases.push_back(without_gradients(c));
    }
    std::erase(plan.properties, "gradients");
  }
  plan.properties.emplace_back("power");

  for (const FormInfo& form : forms) {
    if (form.kernel != plan.kernel) continue;
    // A candidate is no measure of itself; a reference is the measure, even where it is the candidate. Other candidates
    // measure nothing before the contract admits them: a new file must not change an old form's verdict.
    const bool admitted = contains(request.driver->contract->admitted, form.name) && form.name != plan.candidate;
    // A form that is wrong against what it recomputes may be right against the definition.
    const bool measures = form.recomputes.empty() || contains(plan.properties, "recompute");
    if (form.role == "wrong" && measures && form.name != plan.candidate) plan.known_wrong.push_back(form.name);
    if (form.role == "reference" || (form.role == "candidate" && admitted)) plan.known_good.push_back(form.name);
  }
  plan.hash = plan.plan_of = hash_of(plan);
  plan.plan_properties = plan.properties;
  return plan;
}

}  // namespace

Plan make_plan(const PlanRequest& request, const std::vector<FormInfo>& forms) {
  Plan plan = complete_plan(request, forms);
  const auto wanted = [&](const std::string& property) {
    return (request.only.empty() || contains(request.only, property)) && !contains(request.skip, property);
  };
  std::erase_if(plan.properties, [&](const std::string& property) { return !wanted(property); });
  std::erase_if(plan.cases, [&](const Case& c) { return !wanted(c.property); });
  // Where no gradient is wanted, the cases of its property belong with those of rounding, which the training run's
  // shape went to.
  std::erase_if(plan.with_backward, [&](const Case& c) {
    return !wanted(c.property) && !(c.property == "gradients" && wanted("rounding"));
  });
  if (!wanted("power")) plan.known_wrong.clear();
  plan.hash = hash_of(plan);
  return plan;
}

}  // namespace fractus
