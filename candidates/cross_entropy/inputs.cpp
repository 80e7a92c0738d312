#include "candidates/cross_entropy/inputs.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/functions/basic_ops.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <utility>

namespace fractus::cross_entropy {

using at::Tensor;

namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("cross_entropy: " + what); }

void require_elements(const std::string& name, const Tensor& tensor, const std::string& wanted) {
  if (tensor.numel() == 0) refuse(fmt::format("{}: wanted {}, got {}", name, wanted, to_string(tensor.sizes().vec())));
}

void require_targets(const Tensor& targets, std::int64_t words) {
  const Tensor bad = targets.lt(0).logical_or_(targets.ge(words));
  if (!bad.any().item<bool>()) return;
  const auto row = bad.nonzero()[0][0].item<std::int64_t>();
  refuse(fmt::format("targets: wanted whole numbers in [0, {}), got {} in row {}", words,
                     targets[row].item<std::int64_t>(), row));
}

void require_finite(const std::string& name, const Tensor& matrix) {
  const Tensor bad = matrix.isfinite().logical_not_().nonzero();
  if (bad.numel() == 0) return;
  const auto row = bad[0][0].item<std::int64_t>(), column = bad[0][1].item<std::int64_t>();
  refuse(fmt::format("{}: wanted finite values, got {} in row {}", name, matrix[row][column].item<double>(), row));
}

}  // namespace

Inputs checked(const Tensors& inputs, const Scalars& scalars) {
  check_inputs(contract(), inputs);
  const Tensor &h = inputs[0], &W = inputs[1], &targets = inputs[2];
  require_elements("h", h, "at least one row and one column");
  require_elements("W", W, "at least one row");
  const double ce_chunk = scalars.at("ce_chunk");
  if (!(ce_chunk >= 0 && std::isfinite(ce_chunk)) || ce_chunk != std::floor(ce_chunk))
    refuse(fmt::format("ce_chunk: wanted a whole number of 0 or more, got {}", ce_chunk));
  require_targets(targets, W.size(0));
  const auto rows = static_cast<double>(h.size(0));
  const double chunk = ce_chunk == 0 ? rows : std::min(ce_chunk, rows);
  return {.h = h, .W = W, .targets = targets, .chunk = static_cast<std::int64_t>(chunk)};
}

void require_finite(const Inputs& in, const Tensor& loss) {
  if (std::isfinite(loss.item<double>())) return;
  require_finite("h", in.h.detach());
  require_finite("W", in.W.detach());
}

std::vector<Rows> chunks(std::int64_t rows, std::int64_t chunk) {
  std::vector<Rows> all;
  for (std::int64_t first = 0; first < rows; first += chunk) all.push_back({first, std::min(chunk, rows - first)});
  return all;
}

void forbid_second_derivative(const Tensor& dh, const Tensor& dW, const Tensor& h, const Tensor& W,
                              const Tensor& cotangent) {
  if (!c10::GradMode::is_enabled()) return;
  const auto stop = std::make_shared<torch::autograd::Error>(
      "cross_entropy: its gradients cannot be differentiated: the backward is written by hand",
      torch::autograd::collect_next_edges(h, W, cotangent));
  for (const Tensor& gradient : {dh, dW})
    if (Tensor marked = gradient; marked.defined()) torch::autograd::create_gradient_edge(marked, stop);
}

}  // namespace fractus::cross_entropy
