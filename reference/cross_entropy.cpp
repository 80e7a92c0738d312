// The reference of cross_entropy: the definition on the whole (N,V) matrix of logits, differentiated by autograd. It
// shares no code with a candidate; what both refuse the same way is written twice, here and there.
#include "contracts/cross_entropy.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "contracts/form.h"

namespace fractus::cross_entropy {
namespace {

using at::Tensor;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("cross_entropy: " + what); }

void check(const Tensors& inputs, const Scalars& scalars) {
  check_inputs(contract(), inputs);
  const Tensor &h = inputs[0], &W = inputs[1], &targets = inputs[2];
  if (h.numel() == 0) refuse("h: wanted at least one row and one column, got " + to_string(h.sizes().vec()));
  if (W.numel() == 0) refuse("W: wanted at least one row, got " + to_string(W.sizes().vec()));
  // Nothing here is done in chunks, but a call that no other form takes is not taken here either.
  const double ce_chunk = scalars.at("ce_chunk");
  if (!(ce_chunk >= 0 && std::isfinite(ce_chunk)) || ce_chunk != std::floor(ce_chunk))
    refuse(fmt::format("ce_chunk: wanted a whole number of 0 or more, got {}", ce_chunk));
  const Tensor outside = targets.lt(0).logical_or(targets.ge(W.size(0))).nonzero();
  if (outside.numel() > 0) {
    const auto row = outside[0][0].item<std::int64_t>();
    refuse(fmt::format("targets: wanted whole numbers in [0, {}), got {} in row {}", W.size(0),
                       targets[row].item<std::int64_t>(), row));
  }
}

// A number that is not finite in h reaches every logit of its row, and there a_n, and so the loss.
void check_finite(const std::string& name, const Tensor& matrix) {
  const Tensor bad = matrix.detach().isfinite().logical_not().nonzero();
  if (bad.numel() == 0) return;
  const auto row = bad[0][0].item<std::int64_t>(), column = bad[0][1].item<std::int64_t>();
  refuse(fmt::format("{}: wanted finite values, got {} in row {}", name, matrix[row][column].item<double>(), row));
}

Tensors dense(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  check(inputs, scalars);
  const Tensor &h = inputs[0], &W = inputs[1], &targets = inputs[2];
  const Tensor x = at::matmul(h, W.t());
  // The loss does not depend on a_n, so no gradient goes through it.
  const Tensor shifted = x - x.detach().amax(1, /*keepdim=*/true);
  const Tensor wanted = shifted.gather(1, targets.unsqueeze(1)).squeeze(1);
  const Tensor loss = (shifted.exp().sum(1).log() - wanted).mean();
  if (!std::isfinite(loss.item<double>())) {
    check_finite("h", h);
    check_finite("W", W);
  }
  return {loss};
}

// x, x - a and its exponentials at once; rows of several kinds; h and W once more where a matrix product does not take
// their strides; a few single numbers.
std::int64_t extra_elements(const Dims& dims, const Settings&) {
  const std::int64_t rows = dims.at("N"), width = dims.at("d"), words = dims.at("V");
  return 3 * rows * words + 8 * rows + (rows + words) * width + 64;
}

const Registration registered{{
    .kernel = "cross_entropy",
    .name = "dense",
    .role = Role::reference,
    .summary = "the definition on the whole (N,V) logits, differentiated by autograd",
    .declares = {.extra_elements = extra_elements},
    .run = dense,
}};

}  // namespace
}  // namespace fractus::cross_entropy
