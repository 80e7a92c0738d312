// The form in production: the logits of ce_chunk rows at a time, and each row's token where its cumulative probability
// passes the row's own uniform number.
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "contracts/form.h"
#include "contracts/sample_tokens.h"

namespace fractus::sample_tokens {
namespace {

using at::Tensor;

// Rows that are widened to double at once: a chunk's logits are held in the inputs' dtype alone.
constexpr std::int64_t rows_in_double = 16;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("sample_tokens: " + what); }

bool is_whole(double x) { return x >= 0 && std::isfinite(x) && x == std::floor(x); }

struct Inputs {
  Tensor h, W;
  std::int64_t rows, words, chunk;
  double temperature;
  std::uint64_t seed;
};

Inputs checked(const Tensors& inputs, const Scalars& scalars) {
  check_inputs(contract(), inputs);
  const Tensor &h = inputs[0], &W = inputs[1];
  if (h.size(1) == 0) refuse("h: wanted at least one column, got " + to_string(h.sizes().vec()));
  if (W.size(0) == 0) refuse("W: wanted at least one row, got " + to_string(W.sizes().vec()));
  const double ce_chunk = scalars.at("ce_chunk"), temperature = scalars.at("temperature"), seed = scalars.at("seed");
  if (!is_whole(ce_chunk)) refuse(fmt::format("ce_chunk: wanted a whole number of 0 or more, got {}", ce_chunk));
  if (!(temperature > 0 && std::isfinite(temperature)))
    refuse(fmt::format("temperature: wanted a finite number above 0, got {}", temperature));
  if (!is_whole(seed) || seed >= seeds) refuse(fmt::format("seed: wanted a whole number in [0, 2^32), got {}", seed));
  const auto rows = static_cast<double>(h.size(0));
  return {.h = h,
          .W = W,
          .rows = h.size(0),
          .words = W.size(0),
          .chunk = static_cast<std::int64_t>(ce_chunk == 0 ? rows : std::min(ce_chunk, rows)),
          .temperature = temperature,
          .seed = static_cast<std::uint64_t>(seed)};
}

void require_finite(const std::string& name, const Tensor& matrix) {
  const Tensor bad = matrix.isfinite().logical_not_().nonzero();
  if (bad.numel() == 0) return;
  const auto row = bad[0][0].item<std::int64_t>(), column = bad[0][1].item<std::int64_t>();
  refuse(fmt::format("{}: wanted finite values, got {} in row {}", name, matrix[row][column].item<double>(), row));
}

// A number that is not finite in h makes every logit of its row infinite or NaN, and then the largest logit minus
// itself is NaN (IEEE 754, 7.2), and so is the total: h and W are searched only where one is.
void require_finite(const Inputs& in, const Tensor& totals, std::int64_t first_row) {
  const Tensor finite = totals.isfinite();
  if (finite.all().item<bool>()) return;
  require_finite("h", in.h);
  require_finite("W", in.W);
  const auto row = finite.logical_not().nonzero()[0][0].item<std::int64_t>();
  refuse(fmt::format("h: the logits of row {} are not finite", first_row + row));
}

// Inverse of the distribution function, in double. The first token whose cumulative sum c is above u times the total:
//   - one exists: u <= 1 - 2^-53, and the total times that is below the total by half of its spacing at least, so it
//     does not round to the total;
//   - it is none of probability 0: c grew at it.
// Against the softmax of the logits the law is off by the grid of u and by the rounding of c, at most some V 2^-52.
Tensor drawn(const Inputs& in, const Tensor& logits, const Tensor& uniforms, std::int64_t first_row) {
  Tensor c = logits.to(at::kDouble);  // of a float64 call's logits, the same memory: the chunk's own
  c.sub_(c.amax(1, /*keepdim=*/true)).div_(in.temperature).exp_();
  c.cumsum_(1);
  const Tensor totals = c.narrow(1, in.words - 1, 1);
  require_finite(in, totals, first_row);
  return at::searchsorted(c, uniforms.unsqueeze(1) * totals, /*out_int32=*/false, /*right=*/true).squeeze(1);
}

Tensors run(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  const c10::NoGradGuard no_gradient;
  const Inputs in = checked(inputs, scalars);
  const Tensor tokens = at::empty({in.rows}, in.h.options().dtype(at::kLong));
  // One number a row, of 53 bits, in the order of the rows: no chunk sees another's, and ce_chunk moves none.
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(in.seed);
  const Tensor uniforms = at::rand({in.rows}, generator, in.h.options().dtype(at::kDouble));
  const Tensor buffer = at::empty({in.chunk, in.words}, in.h.options());
  for (std::int64_t first = 0; first < in.rows; first += in.chunk) {
    const std::int64_t count = std::min(in.chunk, in.rows - first);
    Tensor logits = buffer.narrow(0, 0, count);
    at::mm_out(logits, in.h.narrow(0, first, count), in.W.t());
    for (std::int64_t row = 0; row < count; row += rows_in_double) {
      const std::int64_t some = std::min(rows_in_double, count - row);
      tokens.narrow(0, first + row, some)
          .copy_(drawn(in, logits.narrow(0, row, some), uniforms.narrow(0, first + row, some), first + row));
    }
  }
  return {tokens};
}

// The chunk's logits; some rows in double, two elements a number in float32; the uniform numbers, likewise; the chunk
// of h and W once more where a matrix product does not take their strides; a few single numbers.
std::int64_t extra_elements(const Dims& dims, const Settings&) {
  const std::int64_t rows = dims.at("N"), width = dims.at("d"), words = dims.at("V"), ce_chunk = dims.at("ce_chunk");
  const std::int64_t chunk = ce_chunk == 0 ? rows : std::min(ce_chunk, rows);
  return (chunk + 2 * std::min(chunk, rows_in_double)) * words + 2 * rows + (chunk + words) * width + 256;
}

const Registration registered{{
    .kernel = "sample_tokens",
    .name = "chunked_sampler",
    .role = Role::candidate,
    .summary = "the logits of ce_chunk rows at a time; inverse of the distribution function in double",
    .declares = {.extra_elements = extra_elements},
    .run = run,
}};

}  // namespace
}  // namespace fractus::sample_tokens
