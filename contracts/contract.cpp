#include "contracts/contract.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "contracts/block_attention.h"
#include "contracts/block_core.h"
#include "contracts/cross_entropy.h"
#include "contracts/experts.h"
#include "contracts/kuramoto.h"
#include "contracts/linear_attention.h"
#include "contracts/matmul.h"
#include "contracts/moe.h"
#include "contracts/moe_gate.h"
#include "contracts/sample_tokens.h"

namespace fractus {
namespace {

const TensorSpec& find(const std::vector<TensorSpec>& specs, std::string_view name) {
  for (const TensorSpec& spec : specs)
    if (spec.name == name) return spec;
  throw std::out_of_range("no tensor named '" + std::string(name) + "' in the contract");
}

}  // namespace

bool is_number(const std::string& symbol) { return std::isdigit(static_cast<unsigned char>(symbol.front())) != 0; }

std::int64_t extent_of(const std::string& symbol, const Dims& dims) {
  return is_number(symbol) ? std::stoll(symbol) : dims.at(symbol);
}

Shape shape_of(const TensorSpec& spec, const Dims& dims) {
  Shape shape;
  for (const std::string& symbol : spec.dims) shape.push_back(extent_of(symbol, dims));
  return shape;
}

bool belongs(const TensorSpec& spec, const Dims& dims) {
  return (spec.only_with.empty() || dims.at(spec.only_with) > 0) &&
         (spec.only_without.empty() || dims.at(spec.only_without) == 0);
}

bool may_be_absent(const TensorSpec& spec) {
  return spec.optional || !spec.only_with.empty() || !spec.only_without.empty();
}

bool agrees(const std::string& symbol, std::int64_t extent, Dims& known) {
  if (is_number(symbol)) return extent_of(symbol, known) == extent;
  return known.emplace(symbol, extent).first->second == extent;
}

void settle_sets(const Contract& contract, Dims& known) {
  for (const TensorSpec& spec : contract.inputs)
    if (!spec.only_with.empty()) known.emplace(spec.only_with, 0);
}

std::vector<std::string> argument_names(const Contract& contract) {
  std::vector<std::string> names;
  const auto add = [&](const auto& spec) {
    const std::string& name = spec.group.empty() ? spec.name : spec.group;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const TensorSpec& spec : contract.inputs) add(spec);
  for (const ScalarSpec& spec : contract.scalars) add(spec);
  return names;
}

const TensorSpec& input(const Contract& contract, std::string_view name) { return find(contract.inputs, name); }
const TensorSpec& output(const Contract& contract, std::string_view name) { return find(contract.outputs, name); }

const std::vector<const Contract*>& contracts() {
  static const std::vector<const Contract*> all{
      &linear_attention::contract(), &cross_entropy::contract(), &sample_tokens::contract(), &moe_gate::contract(),
      &kuramoto::contract(),         &moe::contract(),           &block_core::contract()};
  return all;
}

const Contract* find_contract(std::string_view kernel) {
  static const std::vector<const Contract*> only_identity{&matmul::contract(), &experts::contract(),
                                                          &block_attention::contract()};
  for (const auto* list : {&contracts(), &only_identity})
    for (const Contract* contract : *list)
      if (contract->kernel == kernel) return contract;
  return nullptr;
}

}  // namespace fractus
