// A block's call by the names of its tensors, and what its definition makes of them before it starts.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "contracts/block_core.h"
#include "oracle/block_attention.h"
#include "oracle/block_core_expected.h"
#include "oracle/companion_layer_norm.h"

namespace fractus::oracle::block_core {

enum Output : std::size_t { out_at, lb_at, S_at, z_at, theta_at };

// The call by name, checked as far as the definition relies on it.
class Call {
 public:
  explicit Call(const Question& question) : question_(question) {
    const Array& h = need("h");
    if (h.shape.size() != 3 || h.values.empty()) throw std::invalid_argument("block_core: h " + to_string(h.shape));
    B = extent(h.shape[0]), T = extent(h.shape[1]), d = extent(h.shape[2]);
    H = extent(static_cast<std::int64_t>(scalar("n_heads")));
    if (H == 0 || d % H != 0)
      throw std::invalid_argument("block_core: n_heads " + std::to_string(H) + " of " + to_string(h.shape));
    L = need("level_offsets").values.size(), P = need("kuramoto.omega").values.size();
    E = need("expert_phases").values.size();
    top_k = extent(static_cast<std::int64_t>(scalar("top_k")));
    if (L == 0 || P == 0 || top_k < 1 || top_k > E)
      throw std::invalid_argument("block_core: L " + std::to_string(L) + ", P " + std::to_string(P) + ", top_k " +
                                  std::to_string(top_k) + " of E " + std::to_string(E));
    for (const auto& [name, count] : std::initializer_list<std::pair<const char*, std::size_t>>{
             {"norm_attn.weight", d},
             {"norm_attn.bias", d},
             {"attn.w_qkv", 3 * d * d},
             {"attn.b_qkv", 3 * d},
             {"attn.level_logits", L},
             {"attn.w_out", d * d},
             {"attn.b_out", d},
             {"norm_kur.weight", d},
             {"norm_kur.bias", d},
             {"kuramoto.coupling_u", P * need("kuramoto.coupling_lambda").values.size()},
             {"norm_moe.weight", d},
             {"norm_moe.bias", d}})
      if (need(name).values.size() != count)
        throw std::invalid_argument(std::string("block_core: ") + name + " " + to_string(need(name).shape));
  }

  std::size_t B, T, d, H, L, P, E, top_k;

  std::size_t tokens() const { return B * T; }
  std::size_t D() const { return d / H; }

  static std::size_t position(const std::string& name) {
    const auto& inputs = fractus::block_core::contract().inputs;
    const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const auto& spec) { return spec.name == name; });
    return static_cast<std::size_t>(found - inputs.begin());
  }
  const Array* find(const std::string& name) const {
    const std::size_t i = position(name);
    return i < question_.inputs.size() && question_.inputs[i] ? &*question_.inputs[i] : nullptr;
  }
  const Array& need(const std::string& name) const {
    if (const Array* array = find(name)) return *array;
    throw std::invalid_argument("block_core: " + name + " is missing");
  }
  double scalar(const std::string& name) const {
    const auto found = question_.scalars.find(name);
    if (found == question_.scalars.end()) throw std::invalid_argument("block_core: " + name + " is missing");
    return found->second;
  }
  const Array* cotangent(Output output) const {
    return output < question_.cotangents.size() && question_.cotangents[output] ? &*question_.cotangents[output]
                                                                                : nullptr;
  }
  bool backward() const { return cotangent(out_at) != nullptr || cotangent(lb_at) != nullptr; }
  // The form's own output; nullptr where it has none, or none of this size.
  const double* answered(Output output, std::size_t count) const {
    if (question_.answered == nullptr || output >= question_.answered->size()) return nullptr;
    const std::vector<double>& values = (*question_.answered)[output].values;
    return values.size() == count ? values.data() : nullptr;
  }

 private:
  static std::size_t extent(std::int64_t x) { return x > 0 ? static_cast<std::size_t>(x) : 0; }
  const Question& question_;
};

template <DType judged>
Matrix<Companion<judged>> rows_of(const Array& array, std::size_t rows, std::size_t columns) {
  Matrix<Companion<judged>> result;
  for (std::size_t r = 0; r < rows; ++r)
    result.push_back(leaves_of<judged>(array.values.data() + r * columns, columns));
  return result;
}

// LayerNorm of all rows, under one of the contract's three names.
template <DType judged>
class Norm {
 public:
  using R = Companion<judged>;
  Norm(const Call& call, const std::string& name, const Matrix<R>& x)
      : name_(name),
        weight_(leaves_of<judged>(call.need(name + ".weight").values.data(), call.d)),
        bias_(leaves_of<judged>(call.need(name + ".bias").values.data(), call.d)) {
    for (const Row<R>& row : x) normed_.push_back(layer_norm(row, weight_, bias_));
  }
  const Normed<R>& operator[](std::size_t n) const { return normed_[n]; }
  Matrix<R> rows() const {
    Matrix<R> result;
    for (const Normed<R>& one : normed_) result.push_back(one.y);
    return result;
  }
  // The cotangent of row n of x. What weight and bias have from it is kept, once it is `scaled`.
  template <class Scaled>
  Row<R> pull_back(std::size_t n, const Row<R>& g, const Scaled& scaled) {
    NormGradients<R> gradients = layer_norm_adjoint(normed_[n], weight_, g);
    if (dweight_.size() == 0) {
      dweight_ = Row<R>(g.size());
      dbias_ = Row<R>(g.size());
    }
    add(dweight_, scaled(gradients.weight));
    add(dbias_, scaled(gradients.bias));
    return gradients.x;
  }
  Row<R> pull_back(std::size_t n, const Row<R>& g) {
    return pull_back(n, g, [](const Row<R>& row) { return row; });
  }
  const std::string& name() const { return name_; }
  const Row<R>& weight_gradient() const { return dweight_; }
  const Row<R>& bias_gradient() const { return dbias_; }

 private:
  std::string name_;
  Row<R> weight_, bias_, dweight_, dbias_;
  std::vector<Normed<R>> normed_;
};

template <DType judged>
AttentionWeights<Companion<judged>> attention_weights(const Call& call) {
  using R = Companion<judged>;
  const std::size_t d = call.d;
  const double *W = call.need("attn.w_qkv").values.data(), *b = call.need("attn.b_qkv").values.data();
  const auto weights = [&](std::size_t i) { return Weights<R>(W + i * d * d, d, d); };
  const auto bias = [&](std::size_t i) { return leaves_of<judged>(b + i * d, d); };
  AttentionWeights<R> result{{weights(0), weights(1), weights(2)},
                             {bias(0), bias(1), bias(2)},
                             Weights<R>(call.need("attn.w_out").values.data(), d, d),
                             leaves_of<judged>(call.need("attn.b_out").values.data(), d),
                             leaves_of<judged>(call.need("attn.level_logits").values.data(), call.L),
                             {}};
  for (const double offset : call.need("level_offsets").values) result.offsets.push_back(R(offset));
  return result;
}

// The diagonal blocks of S0, and z0, by sequence and head. What lies beside the blocks is not looked at.
template <DType judged>
std::vector<Carry<Companion<judged>>> carry_of(const Call& call) {
  using R = Companion<judged>;
  const Array *S0 = call.find("S0"), *z0 = call.find("z0");
  const std::size_t d = call.d, D = call.D();
  std::vector<Carry<R>> result;
  for (std::size_t b = 0; b < call.B; ++b)
    for (std::size_t head = 0; head < call.H; ++head) {
      Carry<R> one{zero_matrix<R>(D, D), Row<R>(D)};
      for (std::size_t p = 0; p < D; ++p) {
        const std::size_t row = head * D + p;
        if (S0 != nullptr) one.S[p] = leaves_of<judged>(S0->values.data() + (b * d + row) * d + head * D, D);
        if (z0 != nullptr) one.z.set(p, R(z0->values[b * d + row]));
      }
      result.push_back(std::move(one));
    }
  return result;
}

}  // namespace fractus::oracle::block_core
