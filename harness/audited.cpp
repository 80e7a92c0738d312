#include "harness/audited.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "properties/compare.h"
#include "properties/over_field.h"
#include "reports/words.h"

namespace fractus {
namespace {

constexpr std::size_t most_calls = 24;
constexpr std::int64_t most_elements = 200'000;  // of all inputs: what is larger takes the same paths, and seconds

std::int64_t elements(const Contract& contract, const Case& c) {
  std::int64_t count = 0;
  for (const TensorSpec& spec : contract.inputs)
    if (belongs(spec, c.dims)) count += element_count(shape_of(spec, c.dims));
  return count;
}

// One case of each dtype and shape, as many as are allowed, at even distances in the plan's order.
std::vector<const Case*> chosen(const Driver& driver, const Plan& plan) {
  std::vector<const Case*> candidates;
  std::set<std::tuple<DType, Dims, bool>> seen;
  for (const Case& c : plan.cases)
    if ((c.property == "rounding" || c.property == "gradients") && elements(*driver.contract, c) <= most_elements &&
        seen.emplace(c.dtype, c.dims, c.cotangents.empty()).second)
      candidates.push_back(&c);
  std::vector<const Case*> all;
  const std::size_t count = std::min(most_calls, candidates.size());
  for (std::size_t i = 0; i < count; ++i) all.push_back(candidates[i * candidates.size() / count]);
  return all;
}

}  // namespace

std::vector<Remark> audited(const Driver& driver, const Plan& plan, Attached& form) {
  std::vector<Remark> all;
  const Subject subject = form.subject();
  for (const Case* c : chosen(driver, plan)) {
    const Expectation expectation(driver, *c, 1);
    Call call = call_of(expectation, subject);
    call.audited = true;
    Answer answer = subject.call(call);
    if (answer.status != Status::ok) break;
    for (Remark& remark : answer.remarks)
      for (std::string* text : {&remark.kind, &remark.operation, &remark.place, &remark.detail}) *text = visible(*text);
    add_remarks(all, answer.remarks);
  }
  return all;
}

}  // namespace fractus
