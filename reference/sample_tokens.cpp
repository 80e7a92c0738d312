// The reference of sample_tokens: torch's own multinomial on the whole (N,V) matrix of probabilities, in double. It
// shares no code with a candidate; what both refuse the same way is written twice, here and there.
#include "contracts/sample_tokens.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "contracts/form.h"

namespace fractus::sample_tokens {
namespace {

using at::Tensor;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("sample_tokens: " + what); }

bool is_whole(double x) { return x >= 0 && std::isfinite(x) && x == std::floor(x); }

void check(const Tensors& inputs, const Scalars& scalars) {
  check_inputs(contract(), inputs);
  const Tensor &h = inputs[0], &W = inputs[1];
  if (h.size(1) == 0) refuse("h: wanted at least one column, got " + to_string(h.sizes().vec()));
  if (W.size(0) == 0) refuse("W: wanted at least one row, got " + to_string(W.sizes().vec()));
  // Nothing here is done in chunks, but a call that no other form takes is not taken here either.
  const double ce_chunk = scalars.at("ce_chunk"), temperature = scalars.at("temperature"), seed = scalars.at("seed");
  if (!is_whole(ce_chunk)) refuse(fmt::format("ce_chunk: wanted a whole number of 0 or more, got {}", ce_chunk));
  if (!(temperature > 0 && std::isfinite(temperature)))
    refuse(fmt::format("temperature: wanted a finite number above 0, got {}", temperature));
  if (!is_whole(seed) || seed >= seeds) refuse(fmt::format("seed: wanted a whole number in [0, 2^32), got {}", seed));
  for (const auto& [name, matrix] : {std::pair("h", h), std::pair("W", W)}) {
    const Tensor bad = matrix.isfinite().logical_not().nonzero();
    if (bad.numel() == 0) continue;
    const auto row = bad[0][0].item<std::int64_t>(), column = bad[0][1].item<std::int64_t>();
    refuse(fmt::format("{}: wanted finite values, got {} in row {}", name, matrix[row][column].item<double>(), row));
  }
}

// In double, so that the law is that of the softmax of x as it is: multinomial divides each probability by an
// exponential variate of its dtype and takes the largest quotient. A probability of 0 is never that: some other one is
// above 0, and torch draws no variate of 0 to divide by.
Tensors dense_multinomial(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  const c10::NoGradGuard no_gradient;
  check(inputs, scalars);
  const Tensor &h = inputs[0], &W = inputs[1];
  if (h.size(0) == 0) return {at::empty({0}, h.options().dtype(at::kLong))};
  const Tensor x = at::matmul(h, W.t()).to(at::kDouble) / scalars.at("temperature");
  const Tensor infinite = x.isfinite().all(1).logical_not().nonzero();
  if (infinite.numel() > 0)
    refuse(fmt::format("h: the logits of row {} are not finite", infinite[0][0].item<std::int64_t>()));
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(scalars.at("seed")));
  return {at::multinomial(at::softmax(x, 1), 1, /*replacement=*/false, generator).squeeze(1)};
}

const Registration registered{{
    .kernel = "sample_tokens",
    .name = "dense_multinomial",
    .role = Role::reference,
    .summary = "torch's multinomial on the whole (N,V) softmax, in double",
    .run = dense_multinomial,
}};

}  // namespace
}  // namespace fractus::sample_tokens
