#include "candidates/block_core/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "candidates/kuramoto/fused.h"
#include "candidates/linear_attention/blocks.h"
#include "candidates/moe/inputs.h"
#include "candidates/moe_gate/routing.h"

namespace fractus::block_core {

using at::Tensor;

namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("block_core: " + what); }

std::size_t place_of(std::string_view name) {
  std::size_t i = 0;
  while (contract().inputs.at(i).name != name) ++i;
  return i;
}

// The call's tensors by the contract's names; an absent one is undefined.
struct Named {
  const Tensors& inputs;
  const Tensor& operator[](std::string_view name) const { return inputs[place_of(name)]; }
};

// (B,d,d) seen as (B,H,D,D), the blocks on the diagonal: rows of one head, then columns of the same.
Tensor diagonal_blocks(const Tensor& S, std::int64_t heads) {
  const std::int64_t width = S.size(1) / heads;
  return S.view({-1, heads, width, heads, width}).diagonal(0, 1, 3).permute({0, 3, 1, 2});
}

// q and k (B,L,H,T,D) as (B L H, T, D).
Tensor by_group(const Tensor& x) { return x.flatten(0, 2); }

// The state of every level starts from the same carry.
Tensor at_all_levels(const Tensor& state, std::int64_t levels) {
  std::vector<std::int64_t> sizes = state.sizes().vec();
  sizes.insert(sizes.begin() + 1, levels);
  return state.unsqueeze(1).expand(sizes).flatten(0, 2);
}

struct Attended {
  Tensor residual, S, z;
};

Attended attention(const Named& in, const Config& config) {
  const Tensor& h = in["h"];
  const std::int64_t batch = h.size(0), tokens = h.size(1), width = h.size(2), heads = config.heads;
  const std::int64_t head_width = width / heads, levels = in["level_offsets"].size(0);
  const Tensor x = at::layer_norm(h, {width}, in["norm_attn.weight"], in["norm_attn.bias"], layer_norm_epsilon);
  const Tensor qkv = at::baddbmm(in["attn.b_qkv"].unsqueeze(1), x.flatten(0, 1).expand({3, -1, -1}), in["attn.w_qkv"])
                         .view({3, batch, 1, tokens, heads, head_width})
                         .transpose(3, 4);  // (3,B,1,H,T,D)
  const Tensor offsets = in["level_offsets"].detach().view({levels, 1, 1, 1});
  const std::vector<std::int64_t> all{batch, levels, heads, tokens, head_width};
  linear_attention::Inputs groups{.q = by_group(at::elu(qkv[0] + offsets).add(1)),
                                  .k = by_group(at::elu(qkv[1] + offsets).add(1)),
                                  .v = by_group(qkv[2].expand(all)),
                                  .S0 = {},
                                  .z0 = {},
                                  .groups = batch * levels * heads,
                                  .tokens = tokens,
                                  .width = head_width};
  const Tensor &S0 = in["S0"], &z0 = in["z0"];
  groups.S0 = S0.defined() ? at_all_levels(diagonal_blocks(S0.detach().contiguous(), heads), levels)
                           : at::zeros({groups.groups, head_width, head_width}, h.options());
  groups.z0 = z0.defined() ? at_all_levels(z0.detach().reshape({batch, heads, head_width}), levels)
                           : at::zeros({groups.groups, head_width}, h.options());
  const Tensors result = linear_attention::by_blocks(std::move(groups), config.block);

  const Tensor share = in["attn.level_logits"].softmax(0).view({levels, 1, 1, 1});
  const Tensor mixed = (result[0].view(all) * share).sum(1).transpose(1, 2).reshape({batch * tokens, width});
  const Tensor out = at::addmm(in["attn.b_out"], mixed, in["attn.w_out"]).view(h.sizes());
  Tensor S = at::zeros({batch, width, width}, h.options());
  diagonal_blocks(S, heads).copy_(result[1].detach().view({batch, levels, heads, head_width, head_width}).mean(1));
  return {h + out, S, result[2].detach().view({batch, levels, heads, head_width}).mean(1).view({batch, width})};
}

// All tokens of a batch row have the same experts, whose parameters are gathered once a row. x (B,T,d), index and
// weights (B,1,top_k) -> (B,T,d).
Tensor mixture(const Tensor& x, const Tensor& index, const Tensor& weights, const moe::Experts& of) {
  const std::int64_t batch = x.size(0), tokens = x.size(1), width = x.size(2), chosen = index.size(2);
  const Tensor rows = x.unsqueeze(1).expand({-1, chosen, -1, -1}).flatten(0, 1);  // (B top_k, T, d)
  const Tensor by_own = moe::said(rows, moe::gathered(of, index.flatten()));
  return (by_own.view({batch, chosen, tokens, width}) * weights.view({batch, chosen, 1, 1})).sum(1);
}

}  // namespace

Config checked(const Tensors& inputs, const Scalars& scalars, const Settings& settings) {
  check_inputs(contract(), inputs);
  const Named in{inputs};
  const std::int64_t width = in["h"].size(2);
  if (in["h"].size(1) == 0) refuse("h: wanted at least one token, got " + to_string(in["h"].sizes().vec()));
  for (const char* name : {"level_offsets", "kuramoto.omega", "expert_phases"})
    if (in[name].size(0) == 0) refuse(fmt::format("{}: wanted at least one number, got none", name));
  const double heads = scalars.at("n_heads");
  if (!(heads >= 1 && heads <= static_cast<double>(width)) || std::fmod(static_cast<double>(width), heads) != 0)
    refuse(fmt::format("n_heads: wanted a divisor of the width {}, got {}", width, heads));
  kuramoto::check_steps("block_core", scalars);
  moe_gate::check_routing("block_core", scalars, in["expert_phases"].size(0));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string& name = contract().inputs[i].name;
    if (!inputs[i].defined() || name == "S0") continue;  // S0 holds what is ignored
    const bool has_rows = inputs[i].dim() > 1;
    const std::int64_t rows = inputs[i].numel() / std::max<std::int64_t>(1, has_rows ? inputs[i].size(-1) : 1);
    moe_gate::require_finite("block_core", name, inputs[i], rows, has_rows ? "row" : "place");
  }
  return {.heads = static_cast<std::int64_t>(heads),
          .top_k = static_cast<std::int64_t>(scalars.at("top_k")),
          .steps = static_cast<std::int64_t>(scalars.at("n_steps")),
          .block = settings.at("block"),
          .steepness = scalars.at("kappa") / scalars.at("temperature"),
          .dt = scalars.at("dt"),
          .damping = scalars.at("damping")};
}

Tensors core(const Tensors& inputs, const Config& config) {
  const Named in{inputs};
  const Attended attended = attention(in, config);
  const Tensor& residual = attended.residual;
  const std::int64_t tokens = residual.size(1), width = residual.size(2);
  const auto norm = [&](const Tensor& weight, const Tensor& bias) {
    return at::layer_norm(residual, {width}, weight, bias, layer_norm_epsilon);
  };
  const Tensor theta = kuramoto::oscillate(norm(in["norm_kur.weight"], in["norm_kur.bias"]), in["kuramoto.omega"],
                                           in["kuramoto.coupling_u"], in["kuramoto.coupling_lambda"], config.steps,
                                           config.dt, config.damping);
  const moe::Routing routing =
      moe::routed(theta.narrow(1, tokens - 1, 1), in["expert_phases"].detach(), config.steepness, config.top_k);
  const moe::Experts experts{in["moe.w1"], in["moe.w2"],     in["moe.U1"],     in["moe.V1"], in["moe.U2"],
                             in["moe.V2"], in["moe.scale1"], in["moe.scale2"], in["moe.b1"], in["moe.b2"]};
  const Tensor said =
      mixture(norm(in["norm_moe.weight"], in["norm_moe.bias"]), routing.index, routing.weights, experts);
  return {residual + said, routing.balance, attended.S, attended.z, theta.detach()};
}

}  // namespace fractus::block_core
