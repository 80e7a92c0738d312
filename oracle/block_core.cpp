#include "contracts/block_core.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "oracle/block_attention.h"
#include "oracle/block_core_expected.h"
#include "oracle/block_routing.h"
#include "oracle/companion_layer_norm.h"
#include "oracle/kuramoto_token.h"
#include "oracle/moe_companion.h"

namespace fractus::oracle::block_core {
namespace {

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
Row<Companion<judged>> leaves_of(const double* values, std::size_t count) {
  Row<Companion<judged>> row(count);
  for (std::size_t i = 0; i < count; ++i) row.set(i, Companion<judged>(values[i]));
  return row;
}

template <DType judged>
Matrix<Companion<judged>> rows_of(const Array& array, std::size_t rows, std::size_t columns) {
  Matrix<Companion<judged>> result;
  for (std::size_t r = 0; r < rows; ++r)
    result.push_back(leaves_of<judged>(array.values.data() + r * columns, columns));
  return result;
}

template <DType judged>
Dense<Companion<judged>> dense(const Matrix<Companion<judged>>& rows, std::size_t columns) {
  Dense<Companion<judged>> result(rows.size(), columns);
  for (std::size_t r = 0; r < rows.size(); ++r) result.set_row(r, rows[r]);
  return result;
}

template <DType judged>
void put_rows(const Matrix<Companion<judged>>& rows, ExpectedTensor& tensor, std::size_t first = 0) {
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) put(row.get(i), tensor, first++);
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

template <DType judged>
class Evaluation {
 public:
  using R = Companion<judged>;

  explicit Evaluation(const Question& question)
      : call_(question),
        parameters_(moe::parameters_of(question.inputs, "moe.")),
        threads_(question.threads),
        steepness_(moe_gate::steepness_of<R>(call_.scalar("kappa"), call_.scalar("temperature"))) {
    if (moe::extents_of(parameters_).E != call_.E || moe::extents_of(parameters_).d != call_.d)
      throw std::invalid_argument("block_core: the experts' tensors do not fit h and expert_phases");
  }

  Expected run();

 private:
  // What is known of a sequence: the branch of its last token's angles, its route, and the selection it is judged by.
  struct Sequence {
    moe::Route<judged> route;
    std::size_t selection = 0;
    std::vector<R> weights;
    bool lost = false;  // a choice in doubt that nothing settles
    bool open = false;  // or that the form's out does not tell, so that its gradients may follow another one
    std::vector<kuramoto::Branch<judged>> branches;
    std::size_t branch = 0;
  };

  void carry_out(const Attended<R>& attended);
  void oscillate(const Norm<judged>& norm);
  void balance();
  void mix_experts(const Matrix<R>& h1);

  ExpectedTensor& gradient(const std::string& name) { return *result_.gradients[Call::position(name)]; }
  std::vector<std::size_t> chosen(const Sequence& sequence) const {
    return sequence.route.selections[sequence.selection];
  }
  kuramoto::Network<R> network() const {
    const Array &omega = call_.need("kuramoto.omega"), &U = call_.need("kuramoto.coupling_u"),
                &lambda = call_.need("kuramoto.coupling_lambda");
    return kuramoto::network_of<judged>(
        {omega.values.data(), U.values.data(), lambda.values.data(), call_.P, lambda.values.size()}, call_.scalar("dt"),
        call_.scalar("damping"));
  }
  std::size_t steps() const { return static_cast<std::size_t>(call_.scalar("n_steps")); }

  Call call_;
  moe::Parameters parameters_;
  int threads_;
  R steepness_;
  Expected result_;
  std::vector<Sequence> sequences_;
  std::vector<R> from_balance_;  // by expert: the cotangent of the sum of its gates
  std::optional<moe::Passes<R>> passes_;
};

// S and z, detached.
template <DType judged>
void Evaluation<judged>::carry_out(const Attended<R>& attended) {
  const std::size_t d = call_.d, D = call_.D();
  for (std::size_t i = 0; i < attended.carry.size(); ++i) {
    const std::size_t b = i / call_.H, head = i % call_.H;
    for (std::size_t p = 0; p < D; ++p) {
      const std::size_t row = b * d + head * D + p;
      for (std::size_t c = 0; c < D; ++c)
        put(attended.carry[i].S[p].get(c), result_.outputs[S_at], row * d + head * D + c);
      put(attended.carry[i].z.get(p), result_.outputs[z_at], row);
    }
  }
}

// theta of every token, and the routes.
template <DType judged>
void Evaluation<judged>::oscillate(const Norm<judged>& norm) {
  const kuramoto::Network<R> network = this->network();
  const std::size_t P = call_.P;
  const double* got = call_.answered(theta_at, call_.tokens() * P);
  if (got != nullptr && !std::all_of(got, got + call_.tokens() * P, [](double x) { return std::isfinite(x); }))
    got = nullptr;
  ExpectedTensor& theta = result_.outputs[theta_at];
  struct Doubt {
    bool any = false, flipped = false;
    double moves = 0;
  };
  std::vector<Doubt> doubts(call_.tokens());
  sequences_.resize(call_.B);
  for_each(call_.tokens(), threads_, [&](std::size_t n) {
    const kuramoto::Origin<judged> origin = kuramoto::origin_of(norm[n].mean_y);
    std::vector<kuramoto::Branch<judged>> branches = kuramoto::branches(network, origin, steps());
    const double* own = got == nullptr ? nullptr : got + n * P;
    const std::size_t at = own == nullptr || branches.empty() ? 0 : kuramoto::nearest(branches, own);
    Doubt& doubt = doubts[n];
    doubt.any = branches.size() != 1;
    doubt.flipped = at != 0;
    for (std::size_t i = 1; i < branches.size(); ++i)
      doubt.moves = std::max(doubt.moves, kuramoto::moved_by_flip(branches[0], branches[i]));
    for (std::size_t p = 0; p < P; ++p) {
      kuramoto::Placed one{.tolerance = std::numeric_limits<double>::infinity()};
      if (!branches.empty())
        one = kuramoto::placed(branches[at].theta.get(p), branches[at].common,
                               own == nullptr ? std::nullopt : std::optional(own[p]));
      doubt.any = doubt.any || one.in_doubt;
      theta.value[n * P + p] = one.value;
      if (!theta.remainder.empty()) theta.remainder[n * P + p] = one.remainder;
      theta.tolerance[n * P + p] = one.tolerance;
      if (own == nullptr && doubt.any) put_undecidable(theta, n * P + p);
    }
    if (n % call_.T + 1 != call_.T) return;
    Sequence& sequence = sequences_[n / call_.T];
    std::vector<R> phases;
    if (own != nullptr)
      phases = returned_angles<judged>(own, P);
    else if (!branches.empty())
      for (std::size_t p = 0; p < P; ++p) {
        phases.push_back(branches[0].theta.get(p));
        phases.back().e += branches[0].common;
      }
    else
      phases = returned_angles<judged>(theta.value.data() + n * P, P);
    sequence.route =
        moe::routed<judged>(std::move(phases), call_.need("expert_phases").values, steepness_, call_.top_k);
    sequence.lost = sequence.route.lost || (own == nullptr && (doubt.any || sequence.route.selections.size() > 1));
    sequence.branches = std::move(branches);
    sequence.branch = at;
  });
  for (const Doubt& doubt : doubts) {
    result_.choices_in_doubt += doubt.any;
    result_.choices_flipped += doubt.flipped;
    result_.flip_moves = std::max(result_.flip_moves, doubt.moves);
  }
}

// lb, from the gates that all T tokens of a sequence share.
template <DType judged>
void Evaluation<judged>::balance() {
  std::vector<R> sums;
  const R tokens(static_cast<double>(call_.T));
  bool lost = false;
  for (std::size_t e = 0; e < call_.E; ++e) {
    R sum(0);
    for (const Sequence& sequence : sequences_) {
      sum = sum + sequence.route.gates[e] * tokens;
      lost = lost || sequence.route.lost;
    }
    may_add(sum, call_.tokens());
    sums.push_back(sum);
  }
  Tape<R> tape;
  Taped<R>::tape = &tape;
  std::vector<Taped<R>> leaves;
  for (const R& sum : sums) leaves.push_back(Taped<R>::leaf(sum));
  const Taped<R> lb = moe_gate::balance(leaves, call_.tokens());
  put(lb.value, result_.outputs[lb_at], 0);
  if (lost) put_undecidable(result_.outputs[lb_at], 0);
  from_balance_.assign(call_.E, R(0));
  if (const Array* g = call_.cotangent(lb_at)) {
    std::vector<R> seeds(tape.size());
    seeds[lb.node] = R(g->values.at(0));
    const std::vector<R> pulled = tape.pull_back(std::move(seeds));
    for (std::size_t e = 0; e < call_.E; ++e) from_balance_[e] = pulled[leaves[e].node];
  }
  Taped<R>::tape = nullptr;
}

// out, by the right selection that is nearest to the form's.
template <DType judged>
void Evaluation<judged>::mix_experts(const Matrix<R>& h1) {
  ExpectedTensor& out = result_.outputs[out_at];
  const double* got = call_.answered(out_at, call_.tokens() * call_.d);
  const std::size_t size = call_.T * call_.d, summed = moe::summed_forward(parameters_);
  for (std::size_t b = 0; b < call_.B; ++b) {
    Sequence& sequence = sequences_[b];
    const std::size_t count = sequence.route.selections.size();
    double least = std::numeric_limits<double>::infinity(), moves = 0;
    std::size_t fitting = 0;
    Matrix<R> own, nearest;
    for (std::size_t i = 0; i < count; ++i) {
      const std::vector<std::size_t>& selection = sequence.route.selections[i];
      std::vector<R> weights = sequence.route.weights(selection);
      Matrix<R> rows;
      double away = 0;  // the largest error over its tolerance, were this the form's selection
      for (std::size_t t = 0; t < call_.T; ++t) {
        const std::size_t n = b * call_.T + t;
        rows.push_back(
            residual<R>({h1[n]}, {moe::mixed(*passes_, n, selection, weights, summed)}, selection.size()).front());
        for (std::size_t c = 0; c < call_.d && count > 1; ++c) {
          const R x = rows[t].get(c);
          if (i > 0) moves = std::max(moves, magnitude(x.v - own[t].v[c]));
          if (got == nullptr) continue;
          const double off = magnitude(x.v - static_cast<Base<judged>>(got[n * call_.d + c]));
          const double ratio = off == 0 ? 0 : off / (error(x) * (1 + base_slack));
          away = std::max(away, std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity());
        }
      }
      fitting += away <= 1;
      if (i == 0) own = rows;
      if (i > 0 && !(away < least)) continue;
      least = away;
      nearest = std::move(rows);
      sequence.selection = i;
      sequence.weights = std::move(weights);
    }
    sequence.open = count > 1 && (got == nullptr || fitting > 1);
    put_rows(nearest, out, b * size);
    if (sequence.lost)
      for (std::size_t i = 0; i < size; ++i) put_undecidable(out, b * size + i);
    result_.choices_in_doubt += count > 1 || sequence.route.lost;
    result_.choices_flipped += sequence.selection != 0;
    result_.flip_moves = std::max(result_.flip_moves, moves);
  }
}

template <DType judged>
Expected Evaluation<judged>::run() {
  const std::size_t N = call_.tokens();
  const auto shape = [&](std::initializer_list<std::size_t> extents) { return Shape(extents.begin(), extents.end()); };
  result_.dtype = judged;
  result_.radius_per_tolerance = base_radius<judged>;
  result_.outputs = {blank<judged>("out", shape({call_.B, call_.T, call_.d})), blank<judged>("lb", {}),
                     blank<judged>("S", shape({call_.B, call_.d, call_.d})),
                     blank<judged>("z", shape({call_.B, call_.d})),
                     blank<judged>("theta", shape({call_.B, call_.T, call_.P}))};

  const Heads heads{call_.B, call_.T, call_.H, call_.L, call_.D()};
  const Matrix<R> h = rows_of<judged>(call_.need("h"), N, call_.d);
  const AttentionWeights<R> weights = attention_weights<judged>(call_);
  const std::vector<Carry<R>> carry = carry_of<judged>(call_);
  Norm<judged> norm_attn(call_, "norm_attn", h);
  const Matrix<R> x = norm_attn.rows();
  const Attended<R> attended = attend(heads, h, x, weights, carry, threads_);
  result_.choices_in_doubt += attended.rows_in_doubt;
  for (std::size_t i = 0; i < 2; ++i)
    for (const Row<R>& row : attended.qkv[i])
      for (std::size_t c = 0; c < row.size(); ++c)
        for (const R& offset : weights.offsets)
          if (beyond_exp(row.get(c) + offset)) result_.shared_edge = true;
  carry_out(attended);

  Norm<judged> norm_kur(call_, "norm_kur", attended.h1), norm_moe(call_, "norm_moe", attended.h1);
  oscillate(norm_kur);
  balance();
  moe::Chosen asked(N);
  for (std::size_t n = 0; n < N; ++n) {
    for (const auto& selection : sequences_[n / call_.T].route.selections)
      asked[n].insert(asked[n].end(), selection.begin(), selection.end());
    std::sort(asked[n].begin(), asked[n].end());
    asked[n].erase(std::unique(asked[n].begin(), asked[n].end()), asked[n].end());
  }
  const moe::Experts<R> experts = [this](std::size_t e) { return moe::expert<judged>(parameters_, e); };
  const Dense<R> moe_rows = dense<judged>(norm_moe.rows(), call_.d);
  passes_ = moe::forward(experts, call_.E, moe_rows, asked, moe::gelu_of, threads_);
  mix_experts(attended.h1);
  if (!call_.backward()) return std::move(result_);

  const auto& specs = fractus::block_core::contract().inputs;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const Array* input = call_.find(specs[i].name);
    const bool of_expert = specs[i].name.starts_with("moe.");
    result_.gradients.push_back(input != nullptr && specs[i].differentiable && !of_expert
                                    ? std::optional(blank<judged>("d" + specs[i].name, input->shape))
                                    : std::nullopt);
  }

  const Array* g_out = call_.cotangent(out_at);
  Matrix<R> g = g_out == nullptr ? zero_matrix<R>(N, call_.d) : rows_of<judged>(*g_out, N, call_.d);

  // The experts, and the weights that the route has given them.
  moe::Chosen by_token(N);
  moe::Weights<R> shares(N);
  for (std::size_t n = 0; n < N; ++n) {
    by_token[n] = chosen(sequences_[n / call_.T]);
    shares[n] = sequences_[n / call_.T].weights;
  }
  moe::ParameterGradients<judged> of_experts(parameters_);
  const moe::Pulled<R> pulled =
      moe::pull_back(experts, *passes_, by_token, shares, dense<judged>(g, call_.d), call_.d, threads_,
                     [&](std::size_t e, const moe::ExpertGradients<R>& gradients) { of_experts.store(e, gradients); });
  passes_.reset();
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (specs[i].name.starts_with("moe.") && call_.find(specs[i].name) != nullptr) {
      result_.gradients[i] = of_experts.take(specs[i].name.substr(4));
      result_.gradients[i]->name = "d" + specs[i].name;
    }
  for (std::size_t n = 0; n < N; ++n) add(g[n], norm_moe.pull_back(n, pulled.x.row(n)));

  // Through the route to the oscillators of the last token. The path hangs on few numbers, the cotangents of the
  // weights and of the mean angle, which carry the errors of all experts; so what these are multiplied by is computed,
  // and closed, by itself: |c' f' - c f| <= |c' - c| |f| + |c'| |f' - f|.
  const kuramoto::Network<R> network = this->network();
  Row<R> domega(call_.P), dlambda(network.lambda.size());
  Matrix<R> dU = zero_matrix<R>(call_.P, network.lambda.size());
  bool lost = false;
  for (std::size_t b = 0; b < call_.B; ++b) {
    const Sequence& sequence = sequences_[b];
    lost = lost || sequence.lost || sequence.open || sequence.branches.empty();
    if (lost) break;
    const std::vector<std::size_t> selection = chosen(sequence);
    const R tokens(static_cast<double>(call_.T));
    std::vector<R> of_gates;
    for (const R& one : from_balance_) {
      of_gates.push_back(one * tokens);
      may_add(of_gates.back(), call_.T);
    }
    const MeanAngle<judged> mean = mean_angle_of(sequence.route.phases);
    const RouteSlopes<judged> slopes =
        route_slopes(sequence.route, mean.value, call_.need("expert_phases").values, steepness_, selection, of_gates);
    R c = slopes.gates;
    for (std::size_t s = 0; s < selection.size(); ++s) {
      R of_weight;
      for (std::size_t t = 0; t < call_.T; ++t)
        of_weight = of_weight + kuramoto::closed_number(pulled.weights[b * call_.T + t][s]);
      c = c + of_weight * kuramoto::closed_number(slopes.weights[s]);
    }
    may_add(c, call_.T);  // tokens may be summed behind the slopes
    const std::size_t n = (b + 1) * call_.T - 1;
    const auto token = kuramoto::adjoint(network, kuramoto::origin_of(norm_kur[n].mean_y), steps(),
                                         sequence.branches[sequence.branch], mean.slopes);
    const auto times_c = [&](const Row<R>& row) {
      Row<R> result(row.size());
      add_product(result, c, stored(row));
      return result;
    };
    add(domega, times_c(token.omega));
    add(dlambda, times_c(token.lambda));
    for (std::size_t p = 0; p < call_.P; ++p) add(dU[p], times_c(token.U[p]));
    // Every element moves the angle by 2 pi / d of itself.
    const R of_element = token.angle * kuramoto::full_turn<judged>() / R(static_cast<double>(call_.d));
    Row<R> dx(call_.d);
    for (std::size_t k = 0; k < call_.d; ++k) dx.set(k, of_element);
    add(g[n], times_c(norm_kur.pull_back(n, stored(dx), times_c)));
  }
  if (lost) {
    for (auto& tensor : result_.gradients)
      if (tensor)
        std::fill(tensor->tolerance.begin(), tensor->tolerance.end(), std::numeric_limits<double>::infinity());
    return std::move(result_);
  }

  for (Row<R>& row : g) row = stored(row);
  const AttentionGradients<R> of_attention = attend_adjoint(heads, x, weights, carry, attended, g, threads_);
  for (std::size_t n = 0; n < N; ++n) {
    add(g[n], norm_attn.pull_back(n, of_attention.x[n]));
    put_rows<judged>({g[n]}, gradient("h"), n * call_.d);
  }
  for (const Norm<judged>* norm : {&norm_attn, &norm_kur, &norm_moe}) {
    put_rows<judged>({norm->weight_gradient()}, gradient(norm->name() + ".weight"));
    put_rows<judged>({norm->bias_gradient()}, gradient(norm->name() + ".bias"));
  }
  for (std::size_t i = 0; i < 3; ++i) {
    put_rows(of_attention.qkv[i], gradient("attn.w_qkv"), i * call_.d * call_.d);
    put_rows<judged>({of_attention.qkv_bias[i]}, gradient("attn.b_qkv"), i * call_.d);
  }
  put_rows(of_attention.out, gradient("attn.w_out"));
  put_rows<judged>({of_attention.out_bias}, gradient("attn.b_out"));
  put_rows<judged>({of_attention.level_logits}, gradient("attn.level_logits"));
  put_rows<judged>({domega}, gradient("kuramoto.omega"));
  put_rows<judged>({dlambda}, gradient("kuramoto.coupling_lambda"));
  put_rows(dU, gradient("kuramoto.coupling_u"));
  return std::move(result_);
}

}  // namespace

Expected expected(const Question& question) {
  return question.dtype == DType::float32 ? Evaluation<DType::float32>(question).run()
                                          : Evaluation<DType::float64>(question).run();
}

}  // namespace fractus::oracle::block_core
