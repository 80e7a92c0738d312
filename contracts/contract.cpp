#include "contracts/contract.h"

#include <algorithm>
#include <stdexcept>

#include "contracts/cross_entropy.h"
#include "contracts/linear_attention.h"
#include "contracts/sample_tokens.h"

namespace fractus {
namespace {

const TensorSpec& find(const std::vector<TensorSpec>& specs, std::string_view name) {
  for (const TensorSpec& spec : specs)
    if (spec.name == name) return spec;
  throw std::out_of_range("no tensor named '" + std::string(name) + "' in the contract");
}

}  // namespace

Shape shape_of(const TensorSpec& spec, const Dims& dims) {
  Shape shape;
  for (const std::string& symbol : spec.dims) shape.push_back(dims.at(symbol));
  return shape;
}

const TensorSpec& input(const Contract& contract, std::string_view name) { return find(contract.inputs, name); }
const TensorSpec& output(const Contract& contract, std::string_view name) { return find(contract.outputs, name); }

const std::vector<const Contract*>& contracts() {
  static const std::vector<const Contract*> all{&linear_attention::contract(), &cross_entropy::contract(),
                                                &sample_tokens::contract()};
  return all;
}

const Contract* find_contract(std::string_view kernel) {
  const auto& all = contracts();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Contract* c) { return c->kernel == kernel; });
  return found == all.end() ? nullptr : *found;
}

namespace linear_attention {

const Contract& contract() {
  static const Contract c{
      .kernel = "linear_attention",
      .version = 1,
      .inputs = {{"q", {"G", "T", "D"}},
                 {"k", {"G", "T", "D"}},
                 {"v", {"G", "T", "D"}},
                 {.name = "S0", .dims = {"G", "D", "D"}, .optional = true},
                 {.name = "z0", .dims = {"G", "D"}, .optional = true}},
      .outputs = {{"y", {"G", "T", "D"}}, {"S", {"G", "D", "D"}}, {"z", {"G", "D"}}},
      .dim_symbols = {"G", "T", "D"},
      .admitted = {"cumsum", "chunked", "chunked_tail"},
      .waivers = {"shared-edges", "single-backward", "memory-growth"},
  };
  return c;
}

}  // namespace linear_attention

namespace cross_entropy {

const Contract& contract() {
  static const Contract c{
      .kernel = "cross_entropy",
      .version = 1,
      .inputs = {{"h", {"N", "d"}},
                 {"W", {"V", "d"}},
                 {.name = "targets", .dims = {"N"}, .differentiable = false, .dtype = DType::int64}},
      .scalars = {{.name = "ce_chunk"}},
      .outputs = {{"loss", {}}},
      .dim_symbols = {"N", "d", "V", "ce_chunk"},
      .admitted = {"chunked_ce", "chunked_ce_online"},
      .waivers = {"unchecked-input", "single-backward", "memory-growth"},
  };
  return c;
}

}  // namespace cross_entropy

namespace sample_tokens {

const Contract& contract() {
  static const Contract c{
      .kernel = "sample_tokens",
      .version = 1,
      .inputs = {{.name = "h", .dims = {"N", "d"}, .differentiable = false},
                 {.name = "W", .dims = {"V", "d"}, .differentiable = false}},
      .scalars = {{.name = "ce_chunk"}, {.name = "temperature", .whole = false}, {.name = "seed"}},
      .outputs = {{.name = "tokens", .dims = {"N"}, .differentiable = false, .dtype = DType::int64}},
      .dim_symbols = {"N", "d", "V", "ce_chunk"},
      .admitted = {"chunked_sampler"},
      .waivers = {"unchecked-input", "memory-growth"},
  };
  return c;
}

}  // namespace sample_tokens
}  // namespace fractus
