#include "harness/over_field.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

#include "reports/words.h"

namespace fractus {
namespace {

std::optional<Array> array_of(const std::optional<Residues>& residues, bool whole) {
  if (!residues) return std::nullopt;
  Array array{residues->name, whole ? DType::int64 : DType::float64, residues->shape, {}};
  array.values.reserve(residues->values.size());
  for (std::uint64_t x : residues->values)
    array.values.push_back(whole ? static_cast<double>(x) : std::bit_cast<double>(x));
  return array;
}

Residues residues_of(const Array& array) {
  Residues residues{array.name, array.shape, {}};
  residues.values.reserve(array.values.size());
  for (double x : array.values) residues.values.push_back(std::bit_cast<std::uint64_t>(x));
  return residues;
}

FieldStatus status_from(const std::string& text) {
  if (text == "ok") return FieldStatus::ok;
  if (text == "not_algebraic") return FieldStatus::not_algebraic;
  if (text == "pole") return FieldStatus::pole;
  if (text == "failed") return FieldStatus::failed;
  throw std::runtime_error("status '" + text + "'");
}

}  // namespace

Call bits_of(const FieldCall& call) {
  Call bits;
  bits.kernel = call.kernel;
  bits.form = call.form;
  bits.settings = call.settings;
  bits.scalars = call.scalars;
  bits.gradients = call.gradients;
  const Contract* const contract = find_contract(call.kernel);
  for (std::size_t i = 0; i < call.inputs.size(); ++i)
    bits.inputs.push_back(array_of(
        call.inputs[i], contract != nullptr && i < contract->inputs.size() && contract->inputs[i].dtype.has_value()));
  for (const auto& cotangent : call.cotangents) bits.cotangents.push_back(array_of(cotangent, false));
  return bits;
}

FieldAnswer read_field_answer(const protocol::Json& body, const RegionPlan& plan, const Region& region) {
  FieldAnswer answer;
  answer.status = status_from(body.at("status").get<std::string>());
  answer.message = visible(body.at("message").get<std::string>());
  body.at("seconds").get_to(answer.seconds);
  answer.remarks = protocol::remarks_from(body.at("remarks"));
  for (const protocol::Json& step : body.at("trace"))
    answer.trace.push_back({step.at(0).get<std::string>(), step.at(1).get<std::vector<Shape>>()});
  if (!compare_given(plan, region).empty()) {
    answer.status = FieldStatus::failed;
    answer.message = "it wrote into memory that is not its own";
  }
  if (answer.status != FieldStatus::ok) return answer;
  for (const protocol::Placement& place : plan.outputs)
    answer.outputs.push_back(residues_of(read_tensor(region.mapping, place)));
  for (std::size_t i = 0; i < plan.gradients.size(); ++i) {
    answer.gradients.emplace_back();
    if (!plan.gradients[i] || !body.at("gradients").at(i).get<bool>()) continue;
    answer.gradients.back() = residues_of(read_tensor(region.mapping, *plan.gradients[i]));
    answer.gradients.back()->name = plan.inputs[i]->name;
  }
  const std::uint64_t prime = (std::uint64_t{1} << body.at("bits").get<int>()) - 1;
  const auto is_element = [&](const Residues& r) {
    return std::all_of(r.values.begin(), r.values.end(), [&](std::uint64_t x) { return x < prime; });
  };
  for (const Residues& output : answer.outputs)
    if (!is_element(output)) throw std::runtime_error(output.name + " holds what is no element of the field");
  for (const auto& gradient : answer.gradients)
    if (gradient && !is_element(*gradient))
      throw std::runtime_error("d" + gradient->name + " holds what is no element of the field");
  return answer;
}

FieldAnswer lost_over_field(Status status, const std::string& message) {
  FieldAnswer answer;
  answer.message = message;
  // The device shows addresses that no processor maps, so a form that goes to a tensor's memory by itself ends so.
  const bool by_address =
      status == Status::crashed && message.find(fmt::format("signal {} ", SIGSEGV)) != std::string::npos;
  answer.status = by_address ? FieldStatus::not_algebraic : FieldStatus::failed;
  if (by_address)
    answer.remarks.push_back(
        {.kind = "non-algebraic", .operation = "memory", .detail = "it reads a tensor's memory by itself"});
  return answer;
}

}  // namespace fractus
