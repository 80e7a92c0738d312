#include "oracle/moe.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "oracle/moe_companion.h"
#include "oracle/moe_expected.h"
#include "oracle/moe_routing.h"

namespace fractus::oracle::moe {
namespace {

const Array* find(const Question& question, const std::string& name) {
  for (const auto& input : question.inputs)
    if (input && input->name == name) return &*input;
  return nullptr;
}

struct Call {
  const Array *h, *phases, *mu;
  Parameters parameters;
  ExpertExtents experts;
  std::size_t tokens, P;
  const Array *of_out, *of_lb;  // cotangents, nullptr where there is none
  const double* answered;       // the form's out; nullptr where there is none
};

Call call_of(const Question& question) {
  Call call{find(question, "h"),
            find(question, "phases"),
            find(question, "expert_phases"),
            {},
            {},
            0,
            0,
            nullptr,
            nullptr,
            nullptr};
  if (call.h == nullptr || call.phases == nullptr || call.mu == nullptr)
    throw std::invalid_argument("moe: h, phases and expert_phases are all needed");
  call.parameters = parameters_of(question.inputs);
  call.experts = extents_of(call.parameters);
  const Shape &h = call.h->shape, &phases = call.phases->shape;
  if (h.size() != 3 || phases.size() != 3 || h[0] != phases[0] || h[1] != phases[1] ||
      static_cast<std::size_t>(h[2]) != call.experts.d || call.mu->values.size() != call.experts.E ||
      call.h->values.empty() || call.phases->values.empty() || call.experts.F == 0)
    throw std::invalid_argument("moe: shapes " + to_string(h) + ", " + to_string(phases) + " and " +
                                to_string(call.mu->shape));
  if (question.top_k < 1 || question.top_k > call.experts.E)
    throw std::invalid_argument("moe: top_k " + std::to_string(question.top_k) + " of " + to_string(call.mu->shape));
  call.tokens = static_cast<std::size_t>(h[0] * h[1]);
  call.P = static_cast<std::size_t>(phases[2]);
  const auto cotangent = [&](std::size_t i) {
    return i < question.cotangents.size() && question.cotangents[i] ? &*question.cotangents[i] : nullptr;
  };
  call.of_out = cotangent(0);
  call.of_lb = cotangent(1);
  if (question.answered != nullptr && !question.answered->empty() &&
      question.answered->front().values.size() == call.h->values.size())
    call.answered = question.answered->front().values.data();
  return call;
}

// Rows of leaves.
template <DType judged>
Dense<Companion<judged>> leaves(const Array& array, std::size_t rows) {
  const std::size_t columns = array.values.size() / rows;
  Dense<Companion<judged>> result(rows, columns);
  for (std::size_t r = 0; r < rows; ++r) {
    Row<Companion<judged>> row(columns);
    for (std::size_t c = 0; c < columns; ++c) row.set(c, Companion<judged>(array.values[r * columns + c]));
    result.set_row(r, row);
  }
  return result;
}

template <DType judged>
struct Evaluation {
  using R = Companion<judged>;

  const Question& question;
  const Call call;
  std::vector<Route<judged>> routes;
  Dense<R> x;
  std::optional<Passes<R>> passes;
  Chosen chosen;
  Weights<R> weights;
  // By token: the selections that it may have been given as far as its out tells; more than one where out is the same.
  std::vector<std::vector<std::vector<std::size_t>>> fitting;
  std::vector<char> open;  // by token: there is no bound on what its choice reaches
  Expected result;
  std::mutex mutex;  // of result's counts

  explicit Evaluation(const Question& asked)
      : question(asked),
        call(call_of(asked)),
        routes(call.tokens),
        x(leaves<judged>(*call.h, call.tokens)),
        chosen(call.tokens),
        weights(call.tokens),
        fitting(call.tokens),
        open(call.tokens) {
    result.dtype = judged;
    result.radius_per_tolerance = base_radius<judged>;
    result.outputs = {blank<judged>("out", call.h->shape), blank<judged>("lb", {})};
  }

  R steepness() const { return moe_gate::steepness_of<R>(question.kappa, question.temperature); }
  Experts<R> experts() const {
    return [this](std::size_t e) { return expert<judged>(call.parameters, e); };
  }

  void route() {
    for_each(call.tokens, question.threads, [&](std::size_t t) {
      const double* phases = call.phases->values.data() + t * call.P;
      routes[t] = routed(std::vector<R>(phases, phases + call.P), call.mu->values, steepness(), question.top_k);
    });
    Chosen asked(call.tokens);
    for (std::size_t t = 0; t < call.tokens; ++t) asked[t] = any_of(routes[t].selections);
    passes = forward<R>(experts(), call.experts.E, x, asked, gelu_of, question.threads);
  }

  Row<R> out_of(std::size_t t, const std::vector<std::size_t>& selection, const std::vector<R>& weights) const {
    return mixed(*passes, t, selection, weights, summed_forward(call.parameters));
  }

  // The largest error over tolerance of the form's out, were it this one.
  double distance(const Row<R>& out, std::size_t t) const {
    double most = 0;
    for (std::size_t c = 0; c < out.size(); ++c)
      most = std::max(most, used_by(call.answered[t * out.size() + c], out.get(c)));
    return most;
  }

  // out of one token, by the selection nearest to the form's own.
  void choose(std::size_t t) {
    const Route<judged>& route = routes[t];
    Row<R> first, nearest;
    double least = std::numeric_limits<double>::infinity(), moves = 0;
    std::size_t taken = 0;
    for (std::size_t s = 0; s < route.selections.size(); ++s) {
      const std::vector<std::size_t>& selection = route.selections[s];
      std::vector<R> its = route.weights(selection);
      Row<R> out = out_of(t, selection, its);
      const double away = call.answered == nullptr ? 0 : distance(out, t);
      if (away <= 1) fitting[t].push_back(selection);
      if (s == 0) first = out;
      for (std::size_t c = 0; c < out.size(); ++c) moves = std::max(moves, magnitude(out.v[c] - first.v[c]));
      if (s > 0 && !(away < least)) continue;
      least = away;
      taken = s;
      nearest = std::move(out);
      chosen[t] = selection;
      weights[t] = std::move(its);
    }
    const bool in_doubt = route.lost || route.selections.size() > 1;
    open[t] = route.lost || (in_doubt && call.answered == nullptr);
    for (std::size_t c = 0; c < nearest.size(); ++c) {
      put(nearest.get(c), result.outputs[0], t * nearest.size() + c);
      if (open[t]) put_undecidable(result.outputs[0], t * nearest.size() + c);
    }
    if (open[t] || fitting[t].empty()) fitting[t] = {chosen[t]};
    if (!in_doubt) return;
    const std::scoped_lock lock(mutex);
    ++result.choices_in_doubt;
    result.choices_flipped += taken != 0;
    result.flip_moves = std::max(result.flip_moves, moves);
  }

  // Where out does not tell which selection it is of, the weights stand for those of each, 0 where it lacks the expert.
  void stand_for_all(std::size_t t) {
    std::map<std::size_t, std::vector<R>> by_expert;
    for (const auto& selection : fitting[t]) {
      const std::vector<R> its = routes[t].weights(selection);
      for (std::size_t s = 0; s < selection.size(); ++s) by_expert[selection[s]].push_back(its[s]);
    }
    chosen[t].clear();
    weights[t].clear();
    for (auto& [e, list] : by_expert) {
      if (list.size() < fitting[t].size()) list.push_back(R());
      chosen[t].push_back(e);
      weights[t].push_back(hull(list));
    }
  }

  // The cotangents of a token's phases, for each of the selections.
  Row<R> of_phases(std::size_t t, const std::vector<std::vector<std::size_t>>& selections,
                   const std::vector<R>& of_gates, const std::vector<R>& of_weights) const {
    std::vector<Row<R>> rows;
    for (const auto& selection : selections) {
      std::vector<R> its;
      for (const std::size_t e : selection)
        if (!of_weights.empty())
          its.push_back(of_weights[static_cast<std::size_t>(std::find(chosen[t].begin(), chosen[t].end(), e) -
                                                            chosen[t].begin())]);
      rows.push_back(routed_adjoint(routes[t], call.mu->values, steepness(), selection, of_gates, its));
    }
    Row<R> result(call.P);
    for (std::size_t p = 0; p < call.P; ++p) {
      std::vector<R> list;
      for (const Row<R>& row : rows) list.push_back(row.get(p));
      result.set(p, hull(list));
    }
    return result;
  }

  // Gradients that the choices of a token reach have no bound where nothing settles it.
  void lose(std::size_t t, ParameterGradients<judged>& parameters, ExpectedTensor& dh) const {
    for (std::size_t c = 0; c < call.experts.d; ++c) put_undecidable(dh, t * call.experts.d + c);
    for (std::size_t e = 0; e < call.experts.E; ++e)
      if (!routes[t].theta_known || routes[t].taken == Branch::either || !routes[t].certain.must_out[e])
        parameters.lose(e);
  }

  // By what each token has been given, or may have been given, as far as its out tells.
  std::vector<std::optional<ExpectedTensor>> backward(const moe_gate::Balanced<judged>& balanced, bool with_room) {
    std::vector<std::optional<ExpectedTensor>> result;
    ParameterGradients<judged> parameters(call.parameters);
    ExpectedTensor dh = blank<judged>("dh", call.h->shape), dphases = blank<judged>("dphases", call.phases->shape);
    Weights<R> of_weights(call.tokens);
    if (call.of_out != nullptr) {
      const Pulled<R> pulled =
          pull_back<R>(experts(), *passes, chosen, weights, leaves<judged>(*call.of_out, call.tokens), call.experts.d,
                       question.threads,
                       [&](std::size_t e, const ExpertGradients<R>& gradients) { parameters.store(e, gradients); });
      of_weights = pulled.weights;
      for (std::size_t t = 0; t < call.tokens; ++t) {
        const Row<R> row = pulled.x.row(t);
        for (std::size_t c = 0; c < row.size(); ++c) put(row.get(c), dh, t * row.size() + c);
        if (open[t]) lose(t, parameters, dh);
      }
    }
    for_each(call.tokens, question.threads, [&](std::size_t t) {
      const bool without_bound =
          !routes[t].theta_known || routes[t].taken == Branch::either || (open[t] && call.of_out != nullptr);
      if (without_bound) {
        for (std::size_t p = 0; p < call.P; ++p) {
          // Behind an angle of nothing there is no derivative: a NaN says as much as any number.
          if (!routes[t].theta_known) dphases.value[t * call.P + p] = std::numeric_limits<double>::quiet_NaN();
          put_undecidable(dphases, t * call.P + p);
        }
        return;
      }
      const std::vector<std::vector<std::size_t>> own{chosen[t]};
      const Row<R> row = of_phases(t, with_room ? fitting[t] : own,
                                   call.of_lb == nullptr ? std::vector<R>() : balanced.of_gates, of_weights[t]);
      for (std::size_t p = 0; p < call.P; ++p) put(row.get(p), dphases, t * call.P + p);
    });
    for (const auto& input : question.inputs) {
      if (!input)
        result.push_back(std::nullopt);
      else if (input->name == "h")
        result.push_back(std::move(dh));
      else if (input->name == "phases")
        result.push_back(std::move(dphases));
      else
        result.push_back(parameters.take(input->name));
    }
    return result;
  }

  void gradients(const moe_gate::Balanced<judged>& balanced) {
    result.gradients = backward(balanced, false);
    bool told = true;
    for (std::size_t t = 0; t < call.tokens; ++t)
      if (fitting[t].size() > 1) {
        told = false;
        stand_for_all(t);
      }
    if (!told) result.room = backward(balanced, true);
  }
};

template <DType judged>
Expected expected_in(const Question& question) {
  Evaluation<judged> all(question);
  all.route();
  for_each(all.call.tokens, question.threads, [&](std::size_t t) { all.choose(t); });
  const moe_gate::Balanced<judged> lb =
      moe_gate::balanced(all.routes, Companion<judged>(all.call.of_lb == nullptr ? 0 : all.call.of_lb->values.at(0)));
  put(lb.lb, all.result.outputs[1], 0);
  if (all.call.of_out != nullptr || all.call.of_lb != nullptr) all.gradients(lb);
  return std::move(all.result);
}

}  // namespace

Expected expected(const Question& question) {
  return question.dtype == DType::float32 ? expected_in<DType::float32>(question)
                                          : expected_in<DType::float64>(question);
}

}  // namespace fractus::oracle::moe
