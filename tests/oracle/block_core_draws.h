// Questions to the definition of a block, drawn by a seed.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "contracts/block_core.h"
#include "oracle/block_core_expected.h"

namespace fractus::oracle::block_core {

class Values {
 public:
  explicit Values(std::uint64_t seed) : engine_(seed) {}
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
  }
  double about(double size) { return uniform(-size, size) * 1.7; }
  bool chance(double p) { return uniform(0, 1) < p; }

 private:
  std::mt19937_64 engine_;
};

// Some sizes, and rows of small variance, large or ordinary.
inline Question made(std::uint64_t seed, DType dtype, double row_size = 1) {
  Values values(seed);
  const auto pick = [&](std::initializer_list<std::int64_t> of) {
    return of.begin()[static_cast<std::size_t>(values.uniform(0, static_cast<double>(of.size())))];
  };
  const std::int64_t H = pick({1, 2, 3}), D = pick({1, 2, 4}), E = pick({3, 5, 8});
  const Dims dims{{"B", pick({1, 2})},    {"T", pick({1, 3, 5})}, {"d", H * D}, {"L", pick({1, 2, 3})},
                  {"P", pick({3, 4, 8})}, {"R", pick({1, 3})},    {"E", E},     {"F", pick({3, 6})},
                  {"r", pick({0, 2})},    {"n_heads", H},         {"top_k", 2}, {"n_steps", pick({1, 2})}};
  Question question{.dtype = dtype, .inputs = {}, .scalars = fractus::block_core::usual_config(), .cotangents = {}};
  for (const char* name : {"n_heads", "top_k", "n_steps"}) question.scalars[name] = static_cast<double>(dims.at(name));
  const std::map<std::string, std::pair<double, double>> about{
      {"norm_attn.weight", {0.2, 1}}, {"norm_kur.weight", {0.2, 1}},
      {"norm_moe.weight", {0.2, 1}},  {"h", {row_size, 0}},
      {"kuramoto.omega", {6, 0}},     {"kuramoto.coupling_u", {0.5, 0}},
      {"moe.scale1", {0.3, 1}},       {"z0", {0.5, 3}},
      {"moe.scale2", {0.3, 1}},       {"expert_phases", {1.7, 0}}};
  for (const TensorSpec& spec : fractus::block_core::contract().inputs) {
    const bool carried = spec.name != "S0" && spec.name != "z0";
    if (!belongs(spec, dims) || (!carried && seed % 4 == 0)) {
      question.inputs.push_back(std::nullopt);
      continue;
    }
    Array array = zeros(spec.name, dtype, shape_of(spec, dims));
    const auto found = about.find(spec.name);
    const auto [size, centre] = found == about.end() ? std::pair(0.6, 0.0) : found->second;
    for (double& x : array.values) x = rounded(centre + values.about(size), dtype);
    if (spec.name == "level_offsets")
      for (std::size_t l = 0; l < array.values.size(); ++l)
        array.values[l] = rounded(std::pow(0.3819660112501051, static_cast<double>(l)), dtype);
    question.inputs.push_back(std::move(array));
  }
  question.cotangents.resize(5);
  question.cotangents[0] = zeros("out", dtype, question.inputs[0]->shape);
  question.cotangents[1] = zeros("lb", dtype, {});
  for (std::size_t i = 0; i < 2; ++i)
    for (double& x : question.cotangents[i]->values) x = rounded(values.about(1), dtype);
  return question;
}

}  // namespace fractus::oracle::block_core
