#include "contracts/block_core.h"

#include "contracts/moe.h"

namespace fractus::block_core {

const Scalars& usual_config() {
  static const Scalars usual{{"kappa", 4}, {"temperature", 2.5}, {"n_steps", 1}, {"dt", 0.1}, {"damping", 0.01}};
  return usual;
}

const Contract& contract() {
  static const Contract c = [] {
    Contract made{
        .kernel = "block_core",
        .version = 1,
        .inputs = {{"h", {"B", "T", "d"}},
                   {.name = "S0", .dims = {"B", "d", "d"}, .optional = true, .differentiable = false},
                   {.name = "z0", .dims = {"B", "d"}, .optional = true, .differentiable = false},
                   {.name = "norm_attn.weight", .dims = {"d"}, .group = "params"},
                   {.name = "norm_attn.bias", .dims = {"d"}, .group = "params"},
                   {.name = "attn.w_qkv", .dims = {"3", "d", "d"}, .group = "params"},
                   {.name = "attn.b_qkv", .dims = {"3", "d"}, .group = "params"},
                   {.name = "level_offsets", .dims = {"L"}, .differentiable = false, .group = "params"},
                   {.name = "attn.level_logits", .dims = {"L"}, .group = "params"},
                   {.name = "attn.w_out", .dims = {"d", "d"}, .group = "params"},
                   {.name = "attn.b_out", .dims = {"d"}, .group = "params"},
                   {.name = "norm_kur.weight", .dims = {"d"}, .group = "params"},
                   {.name = "norm_kur.bias", .dims = {"d"}, .group = "params"},
                   {.name = "kuramoto.omega", .dims = {"P"}, .group = "params"},
                   {.name = "kuramoto.coupling_u", .dims = {"P", "R"}, .group = "params"},
                   {.name = "kuramoto.coupling_lambda", .dims = {"R"}, .group = "params"},
                   {.name = "norm_moe.weight", .dims = {"d"}, .group = "params"},
                   {.name = "norm_moe.bias", .dims = {"d"}, .group = "params"},
                   {.name = "expert_phases", .dims = {"E"}, .differentiable = false, .group = "params"}},
        .scalars = {{.name = "n_heads", .group = "config"},
                    {.name = "top_k", .group = "config"},
                    {.name = "kappa", .whole = false, .group = "config"},
                    {.name = "temperature", .whole = false, .group = "config"},
                    {.name = "n_steps", .group = "config"},
                    {.name = "dt", .whole = false, .group = "config"},
                    {.name = "damping", .whole = false, .group = "config"}},
        .outputs = {{"out", {"B", "T", "d"}},
                    {"lb", {}},
                    {.name = "S", .dims = {"B", "d", "d"}, .differentiable = false},
                    {.name = "z", .dims = {"B", "d"}, .differentiable = false},
                    {.name = "theta", .dims = {"B", "T", "P"}, .differentiable = false}},
        .dim_symbols = {"B", "T", "d", "L", "P", "R", "E", "F", "r", "n_heads", "top_k", "n_steps"},
        .admitted = {"block_chunked", "block_ckpt"},
        .waivers = {"shared-edges", "unchecked-input", "single-backward", "memory-growth"},
        .told = {{"config", "d_model", "d", ""},
                 {"config", "d_head", "d", "n_heads"},
                 {"config", "n_levels", "L", ""},
                 {"config", "n_oscillators", "P", ""},
                 {"config", "coupling_rank", "R", ""},
                 {"config", "n_experts", "E", ""},
                 {"config", "expert_d_ff", "F", ""},
                 {"config", "siren_rank", "r", ""}},
        .usual = usual_config(),
    };
    for (TensorSpec& spec : moe::expert_tensors("moe.")) made.inputs.push_back(std::move(spec));
    return made;
  }();
  return c;
}

}  // namespace fractus::block_core
