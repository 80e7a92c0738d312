// The experts' tensors as they lie in a call, and their gradients as expected tensors: what `moe` and `block_core`
// share beyond the definition.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contracts/array.h"
#include "oracle/companion_dense.h"
#include "oracle/companion_expected.h"
#include "oracle/gelu.h"
#include "oracle/moe.h"

namespace fractus::oracle::moe {

// Either the dense tensors or the low-rank ones; b1 and b2 always. Borrowed.
struct Parameters {
  const Array *w1 = nullptr, *w2 = nullptr;
  const Array *U1 = nullptr, *V1 = nullptr, *U2 = nullptr, *V2 = nullptr, *scale1 = nullptr, *scale2 = nullptr;
  const Array *b1 = nullptr, *b2 = nullptr;
};

// By the names of the contract, behind `prefix`. Throws std::invalid_argument where some are missing or their shapes do
// not fit each other.
Parameters parameters_of(const std::vector<std::optional<Array>>& inputs, const std::string& prefix = "");

struct ExpertExtents {
  std::size_t E, d, F;
};
ExpertExtents extents_of(const Parameters& parameters);

template <DType judged>
Expert<Companion<judged>> expert(const Parameters& parameters, std::size_t e);

// Terms that a kernel may run on over all experts of a token in the sum of `out` (see mixed).
std::size_t summed_forward(const Parameters& parameters);

// Gradients of an expert's own part of each tensor, by the tensors' names in the contract; those of experts that nobody
// chose stay exactly 0. Different experts may be stored at once.
template <DType judged>
class ParameterGradients {
 public:
  explicit ParameterGradients(const Parameters& parameters);
  void store(std::size_t e, const ExpertGradients<Companion<judged>>& gradients);
  // Without bound: a choice that no answer settles decides whether the expert has this gradient.
  void lose(std::size_t e);
  // The tensor of that name, "d" before it; absent where the parameters have none.
  std::optional<ExpectedTensor> take(const std::string& name);

 private:
  std::vector<std::pair<std::string, ExpectedTensor>> tensors_;
  std::size_t count_;
  ExpectedTensor* find(const std::string& name);
};

inline constexpr auto gelu_of = [](const auto& x) { return gelu(x); };

}  // namespace fractus::oracle::moe
