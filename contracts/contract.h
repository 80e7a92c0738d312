// What a kernel promises, as data: the one thing that references, candidates, oracle and harness share.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contracts/array.h"

namespace fractus {

// The whole numbers of a call: extents by symbol, for instance {"G": 80, "T": 128, "D": 64}, and those scalars that are
// whole, by name.
using Dims = std::map<std::string, std::int64_t>;

struct TensorSpec {
  std::string name;
  std::vector<std::string> dims;  // symbols, outermost first
  bool optional = false;          // may be absent; the contract says what absent means
  bool differentiable = true;
  std::optional<DType> dtype;  // of whole numbers: int64; else the dtype of the call
};

// An argument that is no tensor, such as the size of a chunk or a temperature.
struct ScalarSpec {
  std::string name;
  bool whole = true;
};

// The values of a call's scalars by name. Doubles hold whole ones up to 2^53.
using Scalars = std::map<std::string, double>;

struct Contract {
  std::string kernel;
  int version = 1;
  std::vector<TensorSpec> inputs;        // in the order of the call
  std::vector<ScalarSpec> scalars;       // behind the inputs
  std::vector<TensorSpec> outputs;       // in the order of the result
  std::vector<std::string> dim_symbols;  // of the extents, then the whole scalars
  std::vector<std::string> admitted;     // candidates that have been proven, and measure others beside the references
  std::vector<std::string> waivers;      // the clauses that --waive may name
};

Shape shape_of(const TensorSpec& spec, const Dims& dims);

const TensorSpec& input(const Contract& contract, std::string_view name);   // throws std::out_of_range
const TensorSpec& output(const Contract& contract, std::string_view name);  // throws std::out_of_range

const std::vector<const Contract*>& contracts();
const Contract* find_contract(std::string_view kernel);  // nullptr where there is none

}  // namespace fractus
