// The adjoint of the experts is the derivative of their definition, and known forms are the same function: shown over
// GF(2^61-1), with a polynomial in the activation's place, whose own derivative is shown elsewhere (gelu_test.cpp).
#include <random>

#include "oracle/field.h"
#include "oracle/moe.h"
#include "oracle/tape.h"
#include "tests/oracle/property.h"

namespace fractus::oracle::moe {
namespace {

template <class R>
struct Point {
  std::vector<Expert<R>> experts;
  Dense<R> x;
  Chosen asked, chosen;
  Weights<R> weights;
};

struct Sizes {
  std::size_t E, T, d, F, r, top_k;
};

template <class R>
struct Activated {
  R value, slope;
};
constexpr auto polynomial = [](const auto& x) {
  using R = std::decay_t<decltype(x)>;
  return Activated<R>{x * x * x + x, x * x + x * x + x * x + R(1)};
};

Dense<Field> dense(std::size_t rows, std::size_t columns, std::mt19937_64& engine) {
  Dense<Field> result(rows, columns);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) result.set(r, c, Field(static_cast<std::int64_t>(engine() >> 4)));
  return result;
}

Map<Field> map(std::size_t in, std::size_t out, std::size_t r, std::mt19937_64& engine) {
  Map<Field> result;
  if (r == 0) {
    result.W = dense(in, out, engine);
  } else {
    result.V = dense(in, r, engine);
    result.U = dense(out, r, engine);
    result.scale = Field(static_cast<std::int64_t>(engine() >> 4));
  }
  result.bias = dense(1, out, engine).row(0);
  return result;
}

Point<Field> point(const Sizes& s, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  Point<Field> result{{}, dense(s.T, s.d, engine), {}, {}, {}};
  for (std::size_t e = 0; e < s.E; ++e)
    result.experts.push_back({map(s.d, s.F, s.r, engine), map(s.F, s.d, s.r, engine)});
  for (std::size_t t = 0; t < s.T; ++t) {
    std::vector<std::size_t> order(s.E);
    for (std::size_t e = 0; e < s.E; ++e) order[e] = e;
    std::shuffle(order.begin(), order.end(), engine);
    result.chosen.emplace_back(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(s.top_k));
    // One expert more than is chosen, as where a choice is in doubt.
    const std::size_t asked = std::min(s.E, s.top_k + engine() % 2);
    result.asked.emplace_back(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(asked));
    result.weights.push_back({});
    for (std::size_t k = 0; k < s.top_k; ++k) result.weights[t].push_back(dense(1, 1, engine).get(0, 0));
  }
  return result;
}

// Every number of a point in one order: what a gradient is laid out in, too.
template <class R, class S, class Visit>
Dense<S> visited(const Dense<R>& x, const Visit& visit) {
  Dense<S> result(x.rows(), x.columns());
  for (std::size_t r = 0; r < x.rows(); ++r)
    for (std::size_t c = 0; c < x.columns(); ++c) result.set(r, c, visit(x.get(r, c)));
  return result;
}

template <class R, class S, class Visit>
Map<S> visited(const Map<R>& x, const Visit& visit) {
  Map<S> result;
  if (x.W) result.W = visited<R, S>(*x.W, visit);
  if (x.V) result.V = visited<R, S>(*x.V, visit);
  if (x.U) result.U = visited<R, S>(*x.U, visit);
  if (x.V) result.scale = visit(x.scale);
  result.bias = Row<S>(x.bias.size());
  for (std::size_t i = 0; i < x.bias.size(); ++i) result.bias.set(i, visit(x.bias.get(i)));
  return result;
}

template <class S, class R, class Visit>
Point<S> visited(const Point<R>& in, const Visit& visit) {
  Point<S> result{{}, visited<R, S>(in.x, visit), in.asked, in.chosen, Weights<S>(in.weights.size())};
  for (std::size_t t = 0; t < in.weights.size(); ++t)
    for (const R& weight : in.weights[t]) result.weights[t].push_back(visit(weight));
  for (const Expert<R>& expert : in.experts)
    result.experts.push_back({visited<R, S>(expert.first, visit), visited<R, S>(expert.second, visit)});
  return result;
}

template <class R>
Passes<R> passes(const Point<R>& in) {
  return forward<R>([&](std::size_t e) { return in.experts[e]; }, in.experts.size(), in.x, in.asked, polynomial, 1);
}

template <class R>
Dense<R> definition(const Point<R>& in) {
  const Passes<R> all = passes(in);
  Dense<R> out(in.x.rows(), in.x.columns());
  for (std::size_t t = 0; t < out.rows(); ++t) out.set_row(t, mixed(all, t, in.chosen[t], in.weights[t], 0));
  return out;
}

// All experts for every token, the weight 0 where one is not chosen, and V U^T contracted first: another order.
template <class R>
Dense<R> all_experts(const Point<R>& in) {
  Dense<R> out(in.x.rows(), in.x.columns());
  const auto through = [](const Map<R>& map, const Dense<R>& x) {
    const Dense<R> W = map.low_rank() ? times_transposed(*map.V, *map.U, 1) : *map.W;
    Dense<R> y = times(x, W, 0, 1);
    for (std::size_t t = 0; t < y.rows(); ++t)
      for (std::size_t c = 0; c < y.columns(); ++c) y.set(t, c, map.scale * y.get(t, c) + map.bias.get(c));
    return y;
  };
  for (std::size_t e = 0; e < in.experts.size(); ++e) {
    Dense<R> active = through(in.experts[e].first, in.x);
    for (std::size_t t = 0; t < active.rows(); ++t)
      for (std::size_t f = 0; f < active.columns(); ++f) active.set(t, f, polynomial(active.get(t, f)).value);
    const Dense<R> its = through(in.experts[e].second, active);
    for (std::size_t t = 0; t < out.rows(); ++t) {
      R weight(0);
      for (std::size_t s = 0; s < in.chosen[t].size(); ++s)
        if (in.chosen[t][s] == e) weight = weight + in.weights[t][s];
      for (std::size_t c = 0; c < out.columns(); ++c) out.set(t, c, out.get(t, c) + weight * its.get(t, c));
    }
  }
  return out;
}

bool same(const Dense<Field>& x, const Dense<Field>& y) {
  for (std::size_t r = 0; r < x.rows(); ++r)
    for (std::size_t c = 0; c < x.columns(); ++c)
      if (!(x.get(r, c) == y.get(r, c))) return false;
  return x.rows() == y.rows() && x.columns() == y.columns();
}

using Gradient = std::vector<Field>;

template <class Form>
Gradient by_tape(const Point<Field>& in, const Dense<Field>& g, Form form) {
  using T = Taped<Field>;
  Tape<Field> tape;
  T::tape = &tape;
  std::vector<std::size_t> leaves;
  const Point<T> taped = visited<T>(in, [&](const Field& x) {
    const T leaf = T::leaf(x);
    leaves.push_back(leaf.node);
    return leaf;
  });
  const Dense<T> out = form(taped);
  std::vector<Field> seeds(tape.size(), Field(0));
  for (std::size_t t = 0; t < out.rows(); ++t)
    for (std::size_t c = 0; c < out.columns(); ++c)
      if (const std::size_t node = out.get(t, c).node; node != Tape<Field>::constant)
        seeds[node] = seeds[node] + g.get(t, c);
  const std::vector<Field> pulled = tape.pull_back(seeds);
  T::tape = nullptr;
  Gradient result;
  for (const std::size_t leaf : leaves) result.push_back(pulled[leaf]);
  return result;
}

// The adjoint as a point of gradients, then in the order of its numbers.
Gradient by_hand(const Point<Field>& in, const Dense<Field>& g) {
  Point<Field> gradients = visited<Field>(in, [](const Field&) { return Field(0); });
  const Passes<Field> all = passes(in);
  const auto put = [](Map<Field>& to, const MapGradients<Field>& from) {
    if (to.W) to.W = *from.W;
    if (to.V) to.V = *from.V;
    if (to.U) to.U = *from.U;
    to.scale = from.scale;
    to.bias = from.bias;
  };
  Pulled<Field> pulled =
      pull_back<Field>([&](std::size_t e) { return in.experts[e]; }, all, in.chosen, in.weights, g, in.x.columns(), 1,
                       [&](std::size_t e, const ExpertGradients<Field>& its) {
                         put(gradients.experts[e].first, its.first);
                         put(gradients.experts[e].second, its.second);
                       });
  gradients.x = pulled.x;
  gradients.weights = pulled.weights;
  Gradient result;
  visited<Field>(gradients, [&](const Field& x) {
    result.push_back(x);
    return x;
  });
  return result;
}

std::size_t within(int low, int high) {
  return static_cast<std::size_t>(*rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high)));
}
std::uint64_t seed() { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, 1 << 30)); }

Sizes sizes() {
  const std::size_t E = within(1, 6);
  return {E, within(1, 6), within(1, 5), within(1, 5), within(0, 4), within(1, static_cast<int>(E) + 1)};
}

// Protects: every gradient that the tool expects of a candidate, dense and of low rank, experts that nobody chose and
// tokens that asked for more experts than they chose among them. Functions of degree below 1000 that differ agree at a
// random point with a chance below 1e-15.
TEST(MoeAdjoint, EqualsTheTapeOverTheField) {
  EXPECT_TRUE(holds(300, [] {
    const Sizes s = sizes();
    const Point<Field> in = point(s, seed());
    std::mt19937_64 engine(seed());
    const Dense<Field> g = dense(s.T, s.d, engine);
    const Gradient hand = by_hand(in, g);
    RC_ASSERT(hand == by_tape(in, g, definition<Taped<Field>>));
    RC_ASSERT(hand == by_tape(in, g, all_experts<Taped<Field>>));
  }));
}

// Protects: the two paths in production, and V U^T contracted first, are one function.
TEST(MoeForms, EqualTheDefinition) {
  EXPECT_TRUE(holds(300, [] {
    const Point<Field> in = point(sizes(), seed());
    RC_ASSERT(same(definition(in), all_experts(in)));
  }));
}

// Negative controls: each fault of one number shows, in the values or in the gradients.
TEST(MoeForms, FaultsDiffer) {
  const Point<Field> in = point({4, 5, 3, 4, 2, 2}, 7);
  std::mt19937_64 engine(8);
  const Dense<Field> g = dense(5, 3, engine);
  const Dense<Field> out = definition(in);
  Point<Field> other = in;
  for (Expert<Field>& expert : other.experts) expert.second.scale = Field(1);
  EXPECT_FALSE(same(definition(other), out)) << "scale2 forgotten";
  other = in;
  for (auto& weights : other.weights) std::reverse(weights.begin(), weights.end());
  EXPECT_FALSE(same(definition(other), out)) << "weights in the wrong slots";
  other = in;
  other.chosen[4] = {in.chosen[4][1]};
  other.weights[4] = {in.weights[4][1]};
  EXPECT_FALSE(same(definition(other), out)) << "a token dropped by one of its experts";
  EXPECT_FALSE(by_hand(other, g) == by_tape(in, g, definition<Taped<Field>>));
}

// Protects: an expert that nobody chose has no gradient at all, rather than one of roundings.
TEST(MoeAdjoint, NobodysExpertIsNotEvaluated) {
  Point<Field> in = point({3, 2, 2, 2, 0, 1}, 9);
  in.asked = {{0, 2}, {0}};
  in.chosen = {{0}, {0}};
  std::vector<std::size_t> taken;
  std::mt19937_64 engine(8);
  const Passes<Field> all = passes(in);
  EXPECT_FALSE(all.passes[1].has_value());
  pull_back<Field>([&](std::size_t e) { return in.experts[e]; }, all, in.chosen, in.weights, dense(2, 2, engine), 2, 1,
                   [&](std::size_t e, const ExpertGradients<Field>&) { taken.push_back(e); });
  EXPECT_EQ(taken, std::vector<std::size_t>{0});
}

}  // namespace
}  // namespace fractus::oracle::moe
