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
  std::vector<std::string> dims;  // outermost first: symbols, or numbers ("3")
  bool optional = false;          // may be absent; the contract says what absent means
  bool differentiable = true;
  std::optional<DType> dtype;  // of whole numbers: int64; else the dtype of the call
  std::string group;           // a function in Python gets the tensors of a group as one dict: "params"
  // Of two sets of tensors that stand for each other: given only where this extent is above 0, or only where it is 0.
  std::string only_with, only_without;
};

// An argument that is no tensor, such as the size of a chunk or a temperature.
struct ScalarSpec {
  std::string name;
  bool whole = true;
  std::string group;  // as a tensor's: "config"
};

// What a group of scalars also tells a function in Python: an extent, or the quotient of two, under another name.
struct Told {
  std::string group, name, extent, over;  // `over` may be empty
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
  std::vector<Told> told;
  Scalars usual;  // what scalars of a group are where it says nothing of them
  // A part of a kernel, or a kernel of others, that the command `identity` alone judges.
  bool only_identity = false;
};

bool is_number(const std::string& symbol);  // of TensorSpec::dims
// The extent that a symbol or number in TensorSpec::dims stands for. Throws std::out_of_range.
std::int64_t extent_of(const std::string& symbol, const Dims& dims);
Shape shape_of(const TensorSpec& spec, const Dims& dims);

// Whether the extents ask for the tensor, as far as they decide it.
bool belongs(const TensorSpec& spec, const Dims& dims);
// Whether there are right calls without it: it is optional, or one of a set that another stands for.
bool may_be_absent(const TensorSpec& spec);

// Takes up an extent that a tensor's shape tells; false where it contradicts what is known.
bool agrees(const std::string& symbol, std::int64_t extent, Dims& known);
// An extent that no present tensor tells, though it decides which of two sets is given, is 0.
void settle_sets(const Contract& contract, Dims& known);

// The arguments of a function in Python, by name and in order: a tensor or scalar, or a group where its first one is.
std::vector<std::string> argument_names(const Contract& contract);

const TensorSpec& input(const Contract& contract, std::string_view name);   // throws std::out_of_range
const TensorSpec& output(const Contract& contract, std::string_view name);  // throws std::out_of_range

const std::vector<const Contract*>& contracts();         // those that are judged in full
const Contract* find_contract(std::string_view kernel);  // those of `identity` too; nullptr where there is none

}  // namespace fractus
