// The reference of block_core: the whole block, line by line, differentiated by autograd. Attention holds all scores of
// a chunk. It shares no code with a candidate; what both refuse the same way is written twice, here and there.
#include "contracts/block_core.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "contracts/form.h"
#include "contracts/linear_attention.h"
#include "reference/parts.h"

namespace fractus::block_core {
namespace {

using at::Tensor;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("block_core: " + what); }

// The call's tensors by the contract's names; an absent one is undefined.
struct Named {
  const Tensors& inputs;
  const Tensor& operator[](std::string_view name) const {
    std::size_t i = 0;
    while (contract().inputs.at(i).name != name) ++i;
    return inputs[i];
  }
};

void check(const Tensors& inputs, const Scalars& scalars) {
  check_inputs(contract(), inputs);
  const Named in{inputs};
  const std::int64_t width = in["h"].size(2);
  if (in["h"].size(1) == 0) refuse("h: wanted at least one token, got " + to_string(in["h"].sizes().vec()));
  const double heads = scalars.at("n_heads"), n_steps = scalars.at("n_steps");
  if (!(heads >= 1 && heads <= static_cast<double>(width)) || std::fmod(static_cast<double>(width), heads) != 0)
    refuse(fmt::format("n_heads: wanted a divisor of the width {}, got {}", width, heads));
  if (!(n_steps >= 0 && std::isfinite(n_steps)) || n_steps != std::floor(n_steps))
    refuse(fmt::format("n_steps: wanted a whole number of 0 or more, got {}", n_steps));
  for (const char* name : {"dt", "damping"})
    if (!std::isfinite(scalars.at(name)))
      refuse(fmt::format("{}: wanted a finite number, got {}", name, scalars.at(name)));
  for (const char* name : {"level_offsets", "kuramoto.omega", "expert_phases"})
    if (in[name].size(0) == 0) refuse(fmt::format("{}: wanted at least one number, got none", name));
  reference::check_routing("block_core", scalars.at("kappa"), scalars.at("temperature"), scalars.at("top_k"),
                           in["expert_phases"].size(0));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string& name = contract().inputs[i].name;
    if (!inputs[i].defined() || inputs[i].numel() == 0 || name == "S0") continue;  // S0 holds what is ignored
    const bool has_rows = inputs[i].dim() > 1;
    reference::check_finite("block_core", name, has_rows ? inputs[i] : inputs[i].unsqueeze(1),
                            has_rows ? "row" : "place");
  }
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor centred = x - x.mean(-1, /*keepdim=*/true);
  const Tensor variance = centred.square().mean(-1, /*keepdim=*/true);
  return centred / (variance + layer_norm_epsilon).sqrt() * weight + bias;
}

// elu(x) + 1. As the engine writes it: beyond 88 in float32 exp is infinite, and the gradient of the branch that is not
// taken is 0 times infinity, NaN.
Tensor feature(const Tensor& x) { return at::where(x > 0, x, x.exp() - 1) + 1; }

struct Attended {
  Tensor y, S, z;
};

// q, k (B,L,H,T,D), v (B,1,H,T,D), S0 (B,1,H,D,D), z0 (B,1,H,D): token t has the scores of all tokens up to itself.
Attended attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& S0, const Tensor& z0) {
  const Tensor scores = at::matmul(q, k.mT()).tril();
  const Tensor numerator = at::matmul(scores, v) + at::matmul(q, S0);
  const Tensor denominator = scores.sum(-1, /*keepdim=*/true) + at::matmul(q, z0.unsqueeze(-1));
  const Tensor keep = denominator.abs() > linear_attention::cut;
  const Tensor divisor = at::where(keep, denominator + linear_attention::epsilon, at::ones_like(denominator));
  return {at::where(keep, numerator / divisor, at::zeros_like(numerator)), S0 + at::matmul(k.mT(), v), z0 + k.sum(-2)};
}

// (B,d,d) <-> (B,H,D,D): a head's block stands on the diagonal.
Tensor blocks_of(const Tensor& S, std::int64_t heads) {
  const std::int64_t width = S.size(-1) / heads;
  std::vector<Tensor> blocks;
  for (std::int64_t head = 0; head < heads; ++head)
    blocks.push_back(S.narrow(1, head * width, width).narrow(2, head * width, width));
  return at::stack(blocks, 1);
}

Tensor diagonal_of(const Tensor& blocks) {
  const std::int64_t heads = blocks.size(1), width = blocks.size(2);
  Tensor S = at::zeros({blocks.size(0), heads * width, heads * width}, blocks.options());
  for (std::int64_t head = 0; head < heads; ++head)
    S.narrow(1, head * width, width).narrow(2, head * width, width).copy_(blocks.select(1, head));
  return S;
}

Tensors block_plain(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  check(inputs, scalars);
  const Named in{inputs};
  const Tensor& h = in["h"];
  const std::int64_t batch = h.size(0), tokens = h.size(1), width = h.size(2);
  const auto heads = static_cast<std::int64_t>(scalars.at("n_heads"));
  const std::int64_t head_width = width / heads;

  const Tensor x = layer_norm(h, in["norm_attn.weight"], in["norm_attn.bias"]);
  const auto projected = [&](std::int64_t i) {  // (B,1,H,T,D)
    const Tensor flat = at::matmul(x, in["attn.w_qkv"][i]) + in["attn.b_qkv"][i];
    return flat.view({batch, tokens, heads, head_width}).transpose(1, 2).unsqueeze(1);
  };
  const Tensor offsets = in["level_offsets"].detach().view({1, -1, 1, 1, 1});
  const Tensor q = feature(projected(0) + offsets), k = feature(projected(1) + offsets), v = projected(2);
  const Tensor S0 = in["S0"].defined() ? blocks_of(in["S0"].detach(), heads)
                                       : at::zeros({batch, heads, head_width, head_width}, h.options());
  const Tensor z0 = in["z0"].defined() ? in["z0"].detach().reshape({batch, heads, head_width})
                                       : at::zeros({batch, heads, head_width}, h.options());
  const Attended attended = attend(q, k, v, S0.unsqueeze(1), z0.unsqueeze(1));
  const Tensor share = in["attn.level_logits"].softmax(0).view({1, -1, 1, 1, 1});
  const Tensor mixed = (attended.y * share).sum(1).transpose(1, 2).reshape({batch, tokens, width});
  const Tensor residual = h + at::matmul(mixed, in["attn.w_out"]) + in["attn.b_out"];

  const Tensor theta =
      reference::oscillate(layer_norm(residual, in["norm_kur.weight"], in["norm_kur.bias"]),
                           {in["kuramoto.omega"], in["kuramoto.coupling_u"], in["kuramoto.coupling_lambda"]},
                           scalars.at("n_steps"), scalars.at("dt"), scalars.at("damping"));

  const reference::Gate gate =
      reference::gate(theta.narrow(1, tokens - 1, 1), in["expert_phases"].detach(),
                      scalars.at("kappa") / scalars.at("temperature"), static_cast<std::int64_t>(scalars.at("top_k")));
  const auto of_all_tokens = [&](const Tensor& chosen) { return chosen.expand({-1, tokens, -1}).flatten(0, 1); };
  const reference::Experts experts{in["moe.w1"], in["moe.w2"],     in["moe.U1"],     in["moe.V1"], in["moe.U2"],
                                   in["moe.V2"], in["moe.scale1"], in["moe.scale2"], in["moe.b1"], in["moe.b2"]};
  const Tensor said = reference::mixture(layer_norm(residual, in["norm_moe.weight"], in["norm_moe.bias"]).flatten(0, 1),
                                         of_all_tokens(gate.index), of_all_tokens(gate.weights), experts);

  return {residual + said.view(h.sizes()), gate.balance, diagonal_of(attended.S.detach().mean(1)),
          attended.z.detach().mean(1).reshape({batch, width}), theta.detach()};
}

const Registration registered{{
    .kernel = "block_core",
    .name = "block_plain",
    .role = Role::reference,
    .summary = "the whole block line by line; attention holds all scores of a chunk",
    .run = block_plain,
}};

}  // namespace
}  // namespace fractus::block_core
