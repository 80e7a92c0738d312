#include "oracle/block_attention_field.h"

#include "oracle/block_attention.h"

namespace fractus::oracle::block_attention {
namespace {

using block_core::Heads;

struct Outputs {
  template <class R>
  std::vector<Tensor<R>> operator()(const Point<R>& point) const {
    const Shape& shape = point.inputs[0]->shape;
    const auto extent = [&](std::size_t i) { return static_cast<std::size_t>(shape[i]); };
    const Heads heads{.B = extent(0), .T = extent(2), .H = extent(3), .L = extent(1), .D = extent(4)};
    const std::size_t T = heads.T, H = heads.H, L = heads.L, D = heads.D;
    // Row `at` of an input whose last extent is D; zeros where it is absent.
    const auto row = [&](std::size_t i, std::size_t at) {
      Row<R> result(D);
      if (point.inputs[i])
        for (std::size_t p = 0; p < D; ++p) result.set(p, point.inputs[i]->values[at * D + p]);
      return result;
    };
    Matrix<R> y = zero_matrix<R>(heads.B * T * H, D), S = zero_matrix<R>(heads.B * H * D, D),
              z = zero_matrix<R>(heads.B * H, D);
    for (std::size_t g = 0; g < heads.groups(); ++g) {
      const std::size_t b = heads.batch(g), l = heads.level(g), head = heads.head(g);
      linear_attention::Inputs<R> in;
      for (std::size_t t = 0; t < T; ++t) {
        const std::size_t token = ((b * L + l) * T + t) * H + head;
        in.q.push_back(row(0, token));
        in.k.push_back(row(1, token));
        in.v.push_back(row(2, (b * T + t) * H + head));
      }
      for (std::size_t p = 0; p < D; ++p) in.S0.push_back(row(4, (b * H + head) * D + p));
      in.z0 = row(5, b * H + head);
      // A row in doubt, which only a type with an interval has, stands for both of its branches.
      const auto group =
          linear_attention::evaluate<R>(in, nullptr, [](std::size_t, const Row<R>&) { return Branch::either; });
      for (std::size_t t = 0; t < T; ++t)
        add_product(y[(b * T + t) * H + head], point.inputs[3]->values[l], group.outputs.y[t]);
      const R levels(static_cast<std::int64_t>(L));
      for (std::size_t p = 0; p < D; ++p) add(S[(b * H + head) * D + p], quotient(group.outputs.S[p], levels));
      add(z[b * H + head], quotient(group.outputs.z, levels));
    }
    const auto tensor = [](Shape its, const Matrix<R>& rows) {
      Tensor<R> result{std::move(its), {}};
      for (const Row<R>& one : rows)
        for (std::size_t p = 0; p < one.size(); ++p) result.values.push_back(one.get(p));
      return result;
    };
    return {tensor({shape[0], shape[2], shape[3], shape[4]}, y), tensor({shape[0], shape[3], shape[4], shape[4]}, S),
            tensor({shape[0], shape[3], shape[4]}, z)};
  }
};

// Outputs and, by the tape, gradients.
struct Definition {
  template <class R>
  Values<R> operator()(const Point<R>& point) const {
    return by_tape(Outputs{}, point);
  }
};

}  // namespace

FieldExpected over_field(const FieldCall& call) { return oracle::over_field(Definition{}, call); }
Degrees degrees(const FieldCall& call) { return oracle::degrees(Definition{}, call); }
Expected expected(const FloatCall& call) { return expected_by_tape(Outputs{}, call); }

}  // namespace fractus::oracle::block_attention
