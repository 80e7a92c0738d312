#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>

#include "oracle/block_call.h"
#include "oracle/block_routing.h"
#include "oracle/kuramoto_token.h"
#include "oracle/moe_companion.h"

namespace fractus::oracle::block_core {
namespace {

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

template <DType judged>
class Evaluation {
 public:
  using R = Companion<judged>;

  explicit Evaluation(const Question& question)
      : call_(question),
        parameters_(moe::parameters_of(question.inputs, "moe.")),
        threads_(question.threads),
        steepness_(moe_gate::steepness_of<R>(call_.scalar("kappa"), call_.scalar("temperature"))),
        heads_{call_.B, call_.T, call_.H, call_.L, call_.D()},
        h_(rows_of<judged>(call_.need("h"), call_.tokens(), call_.d)),
        weights_(attention_weights<judged>(call_)),
        carry_(carry_of<judged>(call_)),
        norm_attn_(call_, "norm_attn", h_),
        attended_(attend(heads_, h_, norm_attn_.rows(), weights_, carry_, threads_)),
        norm_kur_(call_, "norm_kur", attended_.h1),
        norm_moe_(call_, "norm_moe", attended_.h1) {
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

  void carry_out();
  void oscillate();
  void balance();
  void mix_experts();
  void backward();
  moe::Weights<R> pull_back_experts(Matrix<R>& g);
  bool pull_back_routes(const moe::Weights<R>& of_weights, Matrix<R>& g);
  void pull_back_attention(Matrix<R> g);

  ExpectedTensor& gradient(const std::string& name) { return *result_.gradients[Call::position(name)]; }
  std::vector<std::size_t> chosen(const Sequence& sequence) const {
    return sequence.route.selections[sequence.selection];
  }
  moe::Experts<R> experts() const {
    return [this](std::size_t e) { return moe::expert<judged>(parameters_, e); };
  }
  kuramoto::Network<R> network() const {
    const Array &omega = call_.need("kuramoto.omega"), &U = call_.need("kuramoto.coupling_u"),
                &lambda = call_.need("kuramoto.coupling_lambda");
    return kuramoto::network_of<judged>(
        {omega.values.data(), U.values.data(), lambda.values.data(), call_.P, lambda.values.size()}, call_.scalar("dt"),
        call_.scalar("damping"));
  }
  std::size_t steps() const { return static_cast<std::size_t>(call_.scalar("n_steps")); }

  const Call call_;
  const moe::Parameters parameters_;
  const int threads_;
  const R steepness_;
  const Heads heads_;
  const Matrix<R> h_;
  const AttentionWeights<R> weights_;
  const std::vector<Carry<R>> carry_;
  Norm<judged> norm_attn_;
  const Attended<R> attended_;
  Norm<judged> norm_kur_, norm_moe_;
  std::vector<Sequence> sequences_;
  std::vector<R> from_balance_;  // by expert: the cotangent of the sum of its gates
  std::optional<moe::Passes<R>> passes_;
  Expected result_;
};

// S and z, detached.
template <DType judged>
void Evaluation<judged>::carry_out() {
  const std::size_t d = call_.d, D = call_.D();
  for (std::size_t i = 0; i < attended_.carry.size(); ++i) {
    const std::size_t b = i / call_.H, head = i % call_.H;
    for (std::size_t p = 0; p < D; ++p) {
      const std::size_t row = b * d + head * D + p;
      for (std::size_t c = 0; c < D; ++c)
        put(attended_.carry[i].S[p].get(c), result_.outputs[S_at], row * d + head * D + c);
      put(attended_.carry[i].z.get(p), result_.outputs[z_at], row);
    }
  }
}

// theta of every token, and the routes.
template <DType judged>
void Evaluation<judged>::oscillate() {
  const kuramoto::Network<R> network = this->network();
  const std::size_t P = call_.P;
  const double* got = call_.answered(theta_at, call_.tokens() * P);
  if (got != nullptr && !std::all_of(got, got + call_.tokens() * P, [](double x) { return std::isfinite(x); }))
    got = nullptr;
  ExpectedTensor& theta = result_.outputs[theta_at];
  std::vector<kuramoto::Doubt> doubts(call_.tokens());
  sequences_.resize(call_.B);
  for_each(call_.tokens(), threads_, [&](std::size_t n) {
    const double* own = got == nullptr ? nullptr : got + n * P;
    kuramoto::Settled<judged> settled =
        kuramoto::settle(network, kuramoto::origin_of(norm_kur_[n].mean_y), steps(), own, theta, n * P);
    doubts[n] = settled.doubt;
    if (n % call_.T + 1 != call_.T) return;
    std::vector<kuramoto::Branch<judged>>& branches = settled.branches;
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
    sequence.lost =
        sequence.route.lost || (own == nullptr && (settled.doubt.any || sequence.route.selections.size() > 1));
    sequence.branches = std::move(branches);
    sequence.branch = settled.branch;
  });
  kuramoto::count(doubts, result_);
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
  const Array* g = call_.cotangent(lb_at);
  moe_gate::Balanced<judged> balanced = moe_gate::balanced(sums, call_.tokens(), R(g == nullptr ? 0 : g->values.at(0)));
  put(balanced.lb, result_.outputs[lb_at], 0);
  if (lost) put_undecidable(result_.outputs[lb_at], 0);
  from_balance_ = std::move(balanced.of_gates);
}

// out, by the right selection that is nearest to the form's.
template <DType judged>
void Evaluation<judged>::mix_experts() {
  ExpectedTensor& out = result_.outputs[out_at];
  const double* got = call_.answered(out_at, call_.tokens() * call_.d);
  const std::size_t size = call_.T * call_.d, summed = moe::summed_forward(parameters_);
  moe::Chosen asked(call_.tokens());
  for (std::size_t n = 0; n < asked.size(); ++n) asked[n] = moe::any_of(sequences_[n / call_.T].route.selections);
  passes_ = moe::forward(experts(), call_.E, dense<judged>(norm_moe_.rows(), call_.d), asked, moe::gelu_of, threads_);
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
            residual<R>({attended_.h1[n]}, {moe::mixed(*passes_, n, selection, weights, summed)}, selection.size())
                .front());
        for (std::size_t c = 0; c < call_.d && count > 1; ++c) {
          const R x = rows[t].get(c);
          if (i > 0) moves = std::max(moves, magnitude(x.v - own[t].v[c]));
          if (got != nullptr) away = std::max(away, moe::used_by(got[n * call_.d + c], x));
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
  const auto shape = [](std::initializer_list<std::size_t> extents) { return Shape(extents.begin(), extents.end()); };
  result_.dtype = judged;
  result_.radius_per_tolerance = base_radius<judged>;
  result_.outputs = {blank<judged>("out", shape({call_.B, call_.T, call_.d})), blank<judged>("lb", {}),
                     blank<judged>("S", shape({call_.B, call_.d, call_.d})),
                     blank<judged>("z", shape({call_.B, call_.d})),
                     blank<judged>("theta", shape({call_.B, call_.T, call_.P}))};
  result_.choices_in_doubt += attended_.rows_in_doubt;
  for (std::size_t i = 0; i < 2; ++i)
    for (const Row<R>& row : attended_.qkv[i])
      for (std::size_t c = 0; c < row.size(); ++c)
        for (const R& offset : weights_.offsets)
          if (beyond_exp(row.get(c) + offset)) result_.shared_edge = true;
  carry_out();
  oscillate();
  balance();
  mix_experts();
  if (call_.backward()) backward();
  return std::move(result_);
}

template <DType judged>
void Evaluation<judged>::backward() {
  const auto& specs = fractus::block_core::contract().inputs;
  for (const TensorSpec& spec : specs) {
    const Array* input = call_.find(spec.name);
    const bool wanted = input != nullptr && spec.differentiable && !spec.name.starts_with("moe.");
    result_.gradients.push_back(wanted ? std::optional(blank<judged>("d" + spec.name, input->shape)) : std::nullopt);
  }
  const Array* g_out = call_.cotangent(out_at);
  Matrix<R> g =
      g_out == nullptr ? zero_matrix<R>(call_.tokens(), call_.d) : rows_of<judged>(*g_out, call_.tokens(), call_.d);
  const moe::Weights<R> of_weights = pull_back_experts(g);
  if (pull_back_routes(of_weights, g))
    pull_back_attention(std::move(g));
  else
    for (auto& tensor : result_.gradients)
      if (tensor)
        std::fill(tensor->tolerance.begin(), tensor->tolerance.end(), std::numeric_limits<double>::infinity());
}

// Through the experts to h1, whose cotangents in g gain that; the cotangents of the weights are the result.
template <DType judged>
moe::Weights<Companion<judged>> Evaluation<judged>::pull_back_experts(Matrix<R>& g) {
  moe::Chosen chosen;
  moe::Weights<R> weights;
  for (std::size_t n = 0; n < call_.tokens(); ++n) {
    chosen.push_back(this->chosen(sequences_[n / call_.T]));
    weights.push_back(sequences_[n / call_.T].weights);
  }
  moe::ParameterGradients<judged> of_experts(parameters_);
  moe::Pulled<R> pulled =
      moe::pull_back(experts(), *passes_, chosen, weights, dense<judged>(g, call_.d), call_.d, threads_,
                     [&](std::size_t e, const moe::ExpertGradients<R>& gradients) { of_experts.store(e, gradients); });
  passes_.reset();
  const auto& specs = fractus::block_core::contract().inputs;
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (specs[i].name.starts_with("moe.") && call_.find(specs[i].name) != nullptr) {
      result_.gradients[i] = of_experts.take(specs[i].name.substr(4));
      result_.gradients[i]->name = "d" + specs[i].name;
    }
  for (std::size_t n = 0; n < call_.tokens(); ++n) add(g[n], norm_moe_.pull_back(n, pulled.x.row(n)));
  return std::move(pulled.weights);
}

// Through the routes to the oscillators of the last tokens, and on to h1; false where there is no bound. The path hangs
// on few numbers, the cotangents of the weights and of the mean angle, which carry the errors of all experts; so what
// these are multiplied by is computed, and closed, by itself: |c' f' - c f| <= |c' - c| |f| + |c'| |f' - f|.
template <DType judged>
bool Evaluation<judged>::pull_back_routes(const moe::Weights<R>& of_weights, Matrix<R>& g) {
  for (const Sequence& sequence : sequences_)
    if (sequence.lost || sequence.open || sequence.branches.empty()) return false;
  const kuramoto::Network<R> network = this->network();
  Row<R> domega(call_.P), dlambda(network.lambda.size());
  Matrix<R> dU = zero_matrix<R>(call_.P, network.lambda.size());
  const R tokens(static_cast<double>(call_.T));
  for (std::size_t b = 0; b < call_.B; ++b) {
    const Sequence& sequence = sequences_[b];
    std::vector<R> of_gates;
    for (const R& one : from_balance_) {
      of_gates.push_back(one * tokens);
      may_add(of_gates.back(), call_.T);
    }
    const MeanAngle<judged> mean = mean_angle_of(sequence.route.phases);
    const RouteSlopes<judged> slopes = route_slopes(sequence.route, mean.value, call_.need("expert_phases").values,
                                                    steepness_, chosen(sequence), of_gates);
    // What is off in an expert's output is off in all that a kernel makes of it, so it meets the slope itself. A
    // kernel's own sums over g . output are not: one may subtract g . out, the mean of them, as a sum of its own.
    R c = slopes.gates;
    for (std::size_t s = 0; s < slopes.weights.size(); ++s) {
      R sum;
      double own = 0;
      for (std::size_t t = 0; t < call_.T; ++t) {
        const R& one = of_weights[b * call_.T + t][s];
        own += gamma<judged>(one.n + static_cast<double>(call_.T)) * (one.m + one.e);  // over width, over tokens
        sum = sum + R(one.v, magnitude(one.v), 0, one.e, one.w);
      }
      const R& slope = slopes.weights[s];
      const double terms = slope.m + slope.e;
      R product = sum * kuramoto::closed_number(slope);
      product.m = std::max(product.m, sum.m * terms);
      product.e += own * terms;
      c = c + product;
    }
    may_add(c, call_.T);  // tokens may be summed behind the slopes
    const std::size_t n = (b + 1) * call_.T - 1;
    const auto token = kuramoto::adjoint(network, kuramoto::origin_of(norm_kur_[n].mean_y), steps(),
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
    add(g[n], times_c(norm_kur_.pull_back(n, stored(dx), times_c)));
  }
  put_rows<judged>({domega}, gradient("kuramoto.omega"));
  put_rows<judged>({dlambda}, gradient("kuramoto.coupling_lambda"));
  put_rows(dU, gradient("kuramoto.coupling_u"));
  return true;
}

template <DType judged>
void Evaluation<judged>::pull_back_attention(Matrix<R> g) {
  for (Row<R>& row : g) row = stored(row);
  const AttentionGradients<R> of = attend_adjoint(heads_, norm_attn_.rows(), weights_, carry_, attended_, g, threads_);
  for (std::size_t n = 0; n < call_.tokens(); ++n) {
    add(g[n], norm_attn_.pull_back(n, of.x[n]));
    put_rows<judged>({g[n]}, gradient("h"), n * call_.d);
  }
  for (const Norm<judged>* norm : {&norm_attn_, &norm_kur_, &norm_moe_}) {
    put_rows<judged>({norm->weight_gradient()}, gradient(norm->name() + ".weight"));
    put_rows<judged>({norm->bias_gradient()}, gradient(norm->name() + ".bias"));
  }
  for (std::size_t i = 0; i < 3; ++i) {
    put_rows(of.qkv[i], gradient("attn.w_qkv"), i * call_.d * call_.d);
    put_rows<judged>({of.qkv_bias[i]}, gradient("attn.b_qkv"), i * call_.d);
  }
  put_rows(of.out, gradient("attn.w_out"));
  put_rows<judged>({of.out_bias}, gradient("attn.b_out"));
  put_rows<judged>({of.level_logits}, gradient("attn.level_logits"));
}

}  // namespace

Expected expected(const Question& question) {
  return question.dtype == DType::float32 ? Evaluation<DType::float32>(question).run()
                                          : Evaluation<DType::float64>(question).run();
}

}  // namespace fractus::oracle::block_core
