#include "oracle/moe_companion.h"

#include <stdexcept>

namespace fractus::oracle::moe {
namespace {

std::vector<std::pair<std::string, const Array*>> named(const Parameters& p) {
  std::vector<std::pair<std::string, const Array*>> present;
  for (const auto& [name, array] : {std::pair<const char*, const Array*>{"w1", p.w1},
                                    {"w2", p.w2},
                                    {"U1", p.U1},
                                    {"V1", p.V1},
                                    {"U2", p.U2},
                                    {"V2", p.V2},
                                    {"scale1", p.scale1},
                                    {"scale2", p.scale2},
                                    {"b1", p.b1},
                                    {"b2", p.b2}})
    if (array != nullptr) present.emplace_back(name, array);
  return present;
}

// Expert e's own part of a tensor of (E, rows, columns).
template <DType judged>
Leaves<judged> leaves(const Array& array, std::size_t e) {
  const auto rows = static_cast<std::size_t>(array.shape[1]), columns = static_cast<std::size_t>(array.shape[2]);
  return {array.values.data() + e * rows * columns, rows, columns};
}

template <DType judged>
Map<Companion<judged>> map(const Array* W, const Array* V, const Array* U, const Array* scale, const Array& bias,
                           std::size_t e) {
  using R = Companion<judged>;
  Map<R> result;
  if (W != nullptr) {
    result.W = leaves<judged>(*W, e);
  } else {
    result.V = leaves<judged>(*V, e);
    result.U = leaves<judged>(*U, e);
    result.scale = R(scale->values[e]);
  }
  const auto columns = static_cast<std::size_t>(bias.shape[1]);
  result.bias = Row<R>(columns);
  for (std::size_t c = 0; c < columns; ++c) result.bias.set(c, R(bias.values[e * columns + c]));
  return result;
}

template <DType judged>
void put(const Stored<judged>& from, ExpectedTensor& to, std::size_t e) {
  const std::size_t size = from.rows() * from.columns();
  for (std::size_t i = 0; i < size; ++i)
    oracle::put(Companion<judged>(from.v[i], 0, 0, from.e[i], 0), to, e * size + i);
}

template <DType judged>
void put(const Row<Companion<judged>>& from, ExpectedTensor& to, std::size_t e) {
  for (std::size_t i = 0; i < from.size(); ++i) oracle::put(from.get(i), to, e * from.size() + i);
}

}  // namespace

Parameters parameters_of(const std::vector<std::optional<Array>>& inputs, const std::string& prefix) {
  const auto find = [&](const char* name) -> const Array* {
    for (const auto& input : inputs)
      if (input && input->name == prefix + name) return &*input;
    return nullptr;
  };
  const Parameters p{find("w1"), find("w2"),     find("U1"),     find("V1"), find("U2"),
                     find("V2"), find("scale1"), find("scale2"), find("b1"), find("b2")};
  const bool dense = p.w1 != nullptr && p.w2 != nullptr;
  const bool low_rank = p.U1 != nullptr && p.V1 != nullptr && p.U2 != nullptr && p.V2 != nullptr &&
                        p.scale1 != nullptr && p.scale2 != nullptr;
  if (dense == low_rank || p.b1 == nullptr || p.b2 == nullptr || p.b1->shape.size() != 2 || p.b2->shape.size() != 2)
    throw std::invalid_argument("experts: wanted w1 and w2, or U1, V1, U2, V2, scale1 and scale2, and b1 and b2");
  const std::int64_t E = p.b1->shape[0], F = p.b1->shape[1], d = p.b2->shape[1];
  const std::int64_t r = low_rank && p.V1->shape.size() == 3 ? p.V1->shape[2] : 0;
  const auto fits = [](const Array* array, const Shape& shape) { return array == nullptr || array->shape == shape; };
  if (!fits(p.b2, {E, d}) || !fits(p.w1, {E, d, F}) || !fits(p.w2, {E, F, d}) || !fits(p.U1, {E, F, r}) ||
      !fits(p.V1, {E, d, r}) || !fits(p.U2, {E, d, r}) || !fits(p.V2, {E, F, r}) || !fits(p.scale1, {E, 1, 1}) ||
      !fits(p.scale2, {E, 1, 1}))
    throw std::invalid_argument("experts: the tensors' shapes do not fit each other");
  return p;
}

ExpertExtents extents_of(const Parameters& p) {
  return {static_cast<std::size_t>(p.b1->shape[0]), static_cast<std::size_t>(p.b2->shape[1]),
          static_cast<std::size_t>(p.b1->shape[1])};
}

template <DType judged>
Expert<Companion<judged>> expert(const Parameters& p, std::size_t e) {
  return {map<judged>(p.w1, p.V1, p.U1, p.scale1, *p.b1, e), map<judged>(p.w2, p.V2, p.U2, p.scale2, *p.b2, e)};
}

std::size_t summed_forward(const Parameters& p) {
  return p.w1 != nullptr ? extents_of(p).F : static_cast<std::size_t>(p.V2->shape[2]);
}

template <DType judged>
ParameterGradients<judged>::ParameterGradients(const Parameters& p) : count_(extents_of(p).E) {
  for (const auto& [name, array] : named(p)) tensors_.emplace_back(name, blank<judged>("d" + name, array->shape));
}

template <DType judged>
ExpectedTensor* ParameterGradients<judged>::find(const std::string& name) {
  for (auto& [its, tensor] : tensors_)
    if (its == name) return &tensor;
  return nullptr;
}

template <DType judged>
void ParameterGradients<judged>::store(std::size_t e, const ExpertGradients<Companion<judged>>& gradients) {
  for (const bool first : {true, false}) {
    const auto& from = first ? gradients.first : gradients.second;
    const std::string number = first ? "1" : "2";
    if (from.W) put(*from.W, *find("w" + number), e);
    if (from.V) put(*from.V, *find("V" + number), e);
    if (from.U) put(*from.U, *find("U" + number), e);
    if (from.U) oracle::put(from.scale, *find("scale" + number), e);
    put(from.bias, *find("b" + number), e);
  }
}

template <DType judged>
void ParameterGradients<judged>::lose(std::size_t e) {
  for (auto& [name, tensor] : tensors_) {
    const std::size_t size = tensor.value.size() / count_;
    for (std::size_t i = e * size; i < (e + 1) * size; ++i) put_undecidable(tensor, i);
  }
}

template <DType judged>
std::optional<ExpectedTensor> ParameterGradients<judged>::take(const std::string& name) {
  ExpectedTensor* tensor = find(name);
  return tensor == nullptr ? std::nullopt : std::optional(std::move(*tensor));
}

template Expert<Companion<DType::float32>> expert<DType::float32>(const Parameters&, std::size_t);
template Expert<Companion<DType::float64>> expert<DType::float64>(const Parameters&, std::size_t);
template class ParameterGradients<DType::float32>;
template class ParameterGradients<DType::float64>;

}  // namespace fractus::oracle::moe
