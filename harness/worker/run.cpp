#include "harness/worker/run.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <xmmintrin.h>

#include <algorithm>
#include <cfenv>
#include <cstring>
#include <fstream>
#include <new>
#include <span>
#include <stdexcept>
#include <string_view>
#include <typeinfo>
#include <unordered_set>
#include <utility>

#include "harness/worker/allocator.h"
#include "harness/worker/audit.h"
#include "harness/worker/outside.h"
#include "harness/worker/serve.h"

namespace fractus::worker {
namespace {

using protocol::Placement;

std::int64_t held_bytes(const Tensors& tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided)
      bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

std::vector<std::optional<Placement>> placements(const protocol::Json& list) {
  std::vector<std::optional<Placement>> all;
  for (const protocol::Json& item : list)
    all.push_back(item.is_null() ? std::nullopt : std::optional(item.get<Placement>()));
  return all;
}

// torch.utils.checkpoint with use_reentrant=True refuses to be asked for the gradients of given inputs. It is a node of
// Python's; the name of any other is spelled out for each call of name(), which costs more than the node.
bool holds_reentrant_checkpoint(const std::vector<at::Tensor>& outputs) {
  std::vector<torch::autograd::Node*> waiting;
  std::unordered_set<torch::autograd::Node*> seen;
  const auto visit = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) waiting.push_back(node);
  };
  for (const at::Tensor& output : outputs) visit(output.grad_fn().get());
  while (!waiting.empty()) {
    torch::autograd::Node* const node = waiting.back();
    waiting.pop_back();
    if (std::string_view(typeid(*node).name()).ends_with("PyNodeE") && node->name() == "CheckpointFunctionBackward")
      return true;
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
  return false;
}

// From the outputs that a cotangent flows into and that lead back to an input, to the inputs that are leaves: through
// one graph, however many problems it runs through. The gradients land in each outcome. They are what the form's own
// backward returns: backward() would copy a gradient before it is read, and hide that the form writes on into it.
void find_gradients(std::span<const Problem> problems, std::span<Outcome> outcomes, bool keep_graph) {
  std::vector<at::Tensor> outputs, cotangents, leaves;
  std::vector<at::Tensor*> places;
  for (std::size_t k = 0; k < problems.size(); ++k) {
    const Problem& problem = problems[k];
    outcomes[k].gradients.assign(problem.inputs.size(), at::Tensor());
    for (std::size_t i = 0; i < problem.cotangents.size(); ++i) {
      if (!problem.cotangents[i].defined() || i >= outcomes[k].usable.size() || !outcomes[k].usable[i]) continue;
      if (!outcomes[k].outputs[i].requires_grad()) continue;
      outputs.push_back(outcomes[k].outputs[i]);
      cotangents.push_back(problem.cotangents[i]);
    }
    for (std::size_t i = 0; i < problem.leaves.size(); ++i) {
      if (!problem.leaves[i].defined() || !problem.leaves[i].requires_grad()) continue;
      leaves.push_back(problem.leaves[i]);
      places.push_back(&outcomes[k].gradients[i]);
    }
  }
  if (outputs.empty() || leaves.empty()) return;
  if (language() != nullptr && holds_reentrant_checkpoint(outputs)) {
    torch::autograd::backward(outputs, cotangents, keep_graph);
    for (std::size_t i = 0; i < places.size(); ++i) *places[i] = std::exchange(leaves[i].mutable_grad(), at::Tensor());
    return;
  }
  const auto found =
      torch::autograd::grad(outputs, leaves, cotangents, keep_graph, /*create_graph=*/false, /*allow_unused=*/true);
  for (std::size_t i = 0; i < places.size(); ++i) *places[i] = found[i];
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  const at::Tensor left = a.contiguous();
  const at::Tensor right = b.contiguous();
  return left.nbytes() == right.nbytes() &&
         std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

// Every operation on the way of a gradient is linear in the cotangent, and rounding to nearest is symmetric about 0:
// with the signs of all cotangents changed, a gradient changes its sign and not another bit, whatever the order (IEEE
// 754, 4.3.1). One that is remembered from the first backward, or added to it, does not.
bool opposite(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.sizes() == b.sizes() && ((a == -b).logical_or(a.isnan().logical_and(b.isnan()))).all().item<bool>();
}

// The cotangents' signs are changed where they lie while this lives: a copy would lie in memory otherwise, and a
// product with it may sum in another order.
struct Negated {
  const Problem& problem;
  explicit Negated(const Problem& p) : problem(p) { change(); }
  ~Negated() { change(); }
  void change() const {
    for (const auto& place : problem.cotangent_places) {
      if (!place) continue;
      Placement flat = *place;
      flat.shape = {place->storage_bytes / static_cast<std::int64_t>(item_size(place->dtype))};
      flat.strides = {1};
      flat.storage_offset = 0;
      tensor_at(problem.memory, flat).neg_();
    }
  }
};

// A leaf that already has a gradient, as one has that other losses or other uses feed: a backward hands its own to
// autograd and leaves that one alone. One number stands for all of it, so that it costs no memory.
class EarlierGradients {
 public:
  explicit EarlierGradients(const Problem& problem) : problem_(problem) {
    for (const at::Tensor& leaf : problem.leaves) {
      earlier_.emplace_back();
      if (!leaf.defined() || !leaf.requires_grad()) continue;
      earlier_.back() = at::full({}, 3, leaf.options().requires_grad(false)).expand(leaf.sizes());
      leaf.mutable_grad() = earlier_.back();
    }
  }
  // Takes them away again.
  void check(Outcome& outcome) {
    for (std::size_t i = 0; i < earlier_.size(); ++i) {
      if (!earlier_[i].defined()) continue;
      at::Tensor now = std::exchange(problem_.leaves[i].mutable_grad(), at::Tensor());
      if (!now.is_same(earlier_[i]) || (now.numel() > 0 && now.flatten()[0].item<double>() != 3))
        outcome.breaches.push_back({"modified-input", fmt::format("the gradient that the caller's {} had before the "
                                                                  "backward was cleared, replaced or added to",
                                                                  problem_.input_places[i]->name)});
    }
  }

 private:
  const Problem& problem_;
  Tensors earlier_;
};

void second_backward(const Problem& problem, Outcome& outcome) {
  Tensors first;  // a gradient may be the cotangent itself
  for (const at::Tensor& gradient : outcome.gradients)
    first.push_back(gradient.defined() ? gradient.clone() : gradient);
  try {
    const c10::NoGradGuard no_grad;
    const Negated negated(problem);
    Outcome again;
    again.outputs = outcome.outputs;
    again.usable = outcome.usable;
    find_gradients({&problem, 1}, {&again, 1}, /*keep_graph=*/false);
    for (std::size_t i = 0; i < first.size(); ++i)
      if (!opposite(first[i], again.gradients[i]))
        outcome.breaches.push_back(
            {"second-backward", fmt::format("the gradient of {} is another one in a second backward through the same "
                                            "graph, with the cotangents' signs changed",
                                            problem.input_places[i]->name)});
  } catch (...) {
    outcome.breaches.push_back(
        {"second-backward", "a second backward through the same graph raised: " + exception_text()});
  }
}

// What a call may neither use up nor leave changed, for whatever runs after it in the process.
struct GlobalState {
  at::Tensor random = at::detail::getDefaultCPUGenerator().get_state();
  bool grad_mode = c10::GradMode::is_enabled();
  bool deterministic = at::globalContext().deterministicAlgorithms();
  int threads = at::get_num_threads();
  caffe2::TypeMeta dtype = c10::get_default_dtype();
  at::Float32MatmulPrecision matmul_precision = at::globalContext().float32MatmulPrecision();
  int rounding = std::fegetround();
  unsigned float_control = _mm_getcsr() & ~_MM_EXCEPT_MASK;  // flushing and rounding; the sticky flags change by use
};

std::vector<Breach> changes(const GlobalState& before, const GlobalState& now) {
  std::vector<std::string> what;
  if (!same_bits(before.random, now.random)) what.emplace_back("the global random generator was used or seeded");
  if (before.grad_mode != now.grad_mode) what.emplace_back("grad mode was left changed");
  if (before.deterministic != now.deterministic)
    what.emplace_back("the setting of deterministic algorithms was changed");
  if (before.threads != now.threads)
    what.push_back(fmt::format("the number of threads was changed from {} to {}", before.threads, now.threads));
  if (before.matmul_precision != now.matmul_precision)
    what.emplace_back("the precision of matrix products was changed");
  if (before.dtype != now.dtype) what.emplace_back("the default dtype was changed");
  if (before.rounding != now.rounding || before.float_control != now.float_control)
    what.emplace_back("the processor's rounding or its treatment of subnormal numbers was changed");
  std::vector<Breach> breaches;
  for (std::string& text : what) breaches.push_back({"global-state", std::move(text)});
  return breaches;
}

// A line of /proc/self/status that counts KiB, in bytes.
std::int64_t status_bytes(std::string_view field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field)) return std::atoll(line.c_str() + field.size() + 1) << 10;
  return 0;
}

// The same memory through handles of their own, so that what is done to the originals shows beside them.
Tensors shallow(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors)
    copies.push_back(tensor.defined() ? tensor.detach().set_requires_grad(tensor.requires_grad()) : tensor);
  return copies;
}

// The form's own work, and none of ours, under an audit where one is wanted.
template <class Work>
void heard(const Problem& problem, Outcome& outcome, Work work) {
  if (!problem.audited) return work();
  Audit audit;
  work();
  for (Remark& remark : audit.take()) outcome.remarks.push_back(std::move(remark));
}

void run_forward(const Problem& problem, bool checked, Outcome& outcome) {
  restart_peak();
  const std::int64_t held = live_bytes();
  const std::int64_t resident = problem.watch_memory ? status_bytes("VmHWM") : 0;
  const Tensors inputs = checked ? shallow(problem.inputs) : Tensors();
  const auto start = Clock::now();
  heard(problem, outcome,
        [&] { outcome.outputs = problem.form->run(problem.inputs, problem.scalars, problem.settings); });
  outcome.forward_seconds = seconds_since(start);
  outcome.seconds = outcome.forward_seconds;
  outcome.forward_peak_extra_bytes = std::max<std::int64_t>(0, peak_bytes() - held - held_bytes(outcome.outputs));
  outcome.saved_bytes = std::max<std::int64_t>(0, live_bytes() - held - held_bytes(outcome.outputs));
  if (checked) {
    if (problem.watch_memory) outcome.resident_growth_bytes = status_bytes("VmHWM") - resident;
    check_inputs_untouched(problem, inputs, outcome);
    check_outputs(problem, outcome);
  } else {
    outcome.usable.assign(outcome.outputs.size(), true);
  }
}

void run_form(const Problem& problem, bool checked, Outcome& outcome) {
  const c10::AutoGradMode grad_mode(problem.record_graph);
  const auto before = checked ? std::optional<GlobalState>(std::in_place) : std::nullopt;
  const std::int64_t held = live_bytes();
  run_forward(problem, checked, outcome);
  if (problem.backward) {
    // A reentrant checkpoint's gradients are themselves added to what the leaves have.
    std::optional<EarlierGradients> earlier;
    if (checked && problem.backward_twice && !(language() != nullptr && holds_reentrant_checkpoint(outcome.outputs)))
      earlier.emplace(problem);
    const auto start = Clock::now();
    heard(problem, outcome, [&] {
      find_gradients({&problem, 1}, {&outcome, 1}, /*keep_graph=*/checked && problem.backward_twice);
    });
    outcome.seconds += seconds_since(start);
    if (earlier) earlier->check(outcome);
  }
  outcome.peak_extra_bytes =
      std::max<std::int64_t>(0, peak_bytes() - held - held_bytes(outcome.outputs) - held_bytes(outcome.gradients));
  if (!checked) return;
  if (problem.backward && problem.backward_twice) second_backward(problem, outcome);
  for (Breach& breach : changes(*before, GlobalState())) outcome.breaches.push_back(std::move(breach));
  std::fesetround(before->rounding);
  _mm_setcsr(before->float_control);
}

// Runs `work`; what it throws becomes the outcome's status.
template <class Work>
void guarded(Outcome& outcome, Work work) {
  try {
    return work();
  } catch (const c10::OutOfMemoryError&) {
    outcome.status = Status::out_of_memory;
    outcome.message = exception_text();
  } catch (const std::bad_alloc&) {
    outcome.status = Status::out_of_memory;
    outcome.message = "std::bad_alloc";
  } catch (...) {
    outcome.status = Status::raised;
    outcome.message = exception_text();
  }
  outcome.outputs.clear();
  outcome.gradients.clear();
}

void use_threads(int threads) {
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
}

}  // namespace

at::Tensor tensor_at(const std::shared_ptr<protocol::Mapping>& memory, const Placement& placement) {
  const at::ScalarType type = placement.dtype == DType::float32   ? at::kFloat
                              : placement.dtype == DType::float64 ? at::kDouble
                                                                  : at::kLong;
  return at::from_blob(
      memory->data() + placement.base, placement.shape, placement.strides, placement.storage_offset, [memory](void*) {},
      at::TensorOptions().dtype(type));
}

namespace {

// The input that is tied to another becomes rows of it, and is no leaf of its own.
void look_up(Problem& problem, const protocol::Json& tied) {
  const auto input = tied.at("input").get<std::size_t>(), from = tied.at("from").get<std::size_t>();
  const at::Tensor rows = at::tensor(tied.at("rows").get<std::vector<std::int64_t>>(), at::kLong);
  const c10::AutoGradMode recorded(problem.record_graph);
  problem.inputs.at(input) = problem.inputs.at(from).index_select(0, rows);
  problem.leaves.at(input) = at::Tensor();
  problem.input_places.at(input).reset();
}

}  // namespace

Problem read_problem(const protocol::Json& request, const protocol::Descriptor& memory) {
  Problem problem;
  const auto& kernel = request.at("kernel").get_ref<const std::string&>();
  const auto& form = request.at("form").get_ref<const std::string&>();
  problem.form = find_form(kernel, form);
  if (problem.form == nullptr) throw std::invalid_argument(fmt::format("no form of {} is named '{}'", kernel, form));
  problem.settings = problem.form->settings;
  for (const auto& [key, value] : request.at("settings").get<Settings>()) {
    if (!problem.settings.contains(key)) throw std::invalid_argument(fmt::format("{} has no setting '{}'", form, key));
    problem.settings[key] = value;
  }
  problem.scalars = protocol::scalars_from(request.at("scalars"));
  request.at("threads").get_to(problem.threads);
  request.at("backward_twice").get_to(problem.backward_twice);
  request.at("watch_memory").get_to(problem.watch_memory);
  request.at("audited").get_to(problem.audited);
  request.at("outputs").get_to(problem.output_places);
  problem.gradient_places = placements(request.at("gradients"));
  problem.input_places = placements(request.at("inputs"));
  problem.memory = std::make_shared<protocol::Mapping>(memory.get(), request.at("bytes").get<std::int64_t>());

  problem.cotangent_places = placements(request.at("cotangents"));
  for (const auto& place : problem.cotangent_places) {
    problem.cotangents.push_back(place ? tensor_at(problem.memory, *place) : at::Tensor());
    problem.backward |= place.has_value();
  }
  request.at("continues").get_to(problem.continues);
  problem.record_graph = problem.backward || request.at("record_graph").get<bool>();
  const bool computed = problem.record_graph && request.at("computed_inputs").get<bool>();
  const bool tracked = problem.record_graph || request.at("tracked_inputs").get<bool>();
  const auto requires_grad = request.at("requires_grad").get<std::vector<bool>>();
  for (std::size_t i = 0; i < problem.input_places.size(); ++i) {
    const auto& place = problem.input_places[i];
    at::Tensor tensor = place ? tensor_at(problem.memory, *place) : at::Tensor();
    if (tensor.defined() && tracked && i < requires_grad.size() && requires_grad[i] && tensor.is_floating_point())
      tensor.set_requires_grad(true);
    const c10::AutoGradMode recorded(problem.record_graph);
    problem.leaves.push_back(tensor);
    problem.inputs.push_back(computed && tensor.defined() && tensor.requires_grad() ? tensor.alias() : tensor);
  }
  if (const protocol::Json& tied = request.at("tied"); !tied.is_null()) look_up(problem, tied);
  return problem;
}

void warm_up() {
  const c10::AutoGradMode grad_mode(true);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::ones({2, 3, 3}, type).set_requires_grad(true);
    const at::Tensor sums = (x.unsqueeze(3) * x.unsqueeze(2)).cumsum(1).add(x.unsqueeze(1));
    const at::Tensor products = at::matmul(x, x.transpose(1, 2)) + at::einsum("gtp,gtpm->gtm", {x, sums});
    const at::Tensor row = (x * products).sum(-1, /*keepdim=*/true);
    const at::Tensor kept = at::where(row.abs() > 1, products / row, at::zeros({}, type)).tril();
    at::cat({kept, kept.slice(1, 0, 2)}, 1).clone().detach().copy_(at::zeros({}, type));
  }
}

Outcome run(const Problem& problem, bool checked) {
  use_threads(problem.threads);
  Outcome outcome;
  guarded(outcome, [&] { run_form(problem, checked, outcome); });
  return outcome;
}

std::vector<Outcome> run_together(std::vector<Problem>& problems, bool last_first) {
  std::vector<Outcome> outcomes(problems.size());
  const bool chained =
      std::any_of(problems.begin(), problems.end(), [](const Problem& p) { return !p.continues.empty(); });
  Outcome whole;
  guarded(whole, [&] {
    for (std::size_t k = 0; k < problems.size(); ++k) {
      use_threads(problems[k].threads);
      for (const auto& [input, output] : problems[k].continues)
        problems[k].inputs.at(input) = outcomes.at(k - 1).outputs.at(output);
      const c10::AutoGradMode grad_mode(problems[k].record_graph);
      run_forward(problems[k], /*checked=*/true, outcomes[k]);
    }
    const std::span<const Problem> all(problems);
    const std::span<Outcome> results(outcomes);
    if (chained) return find_gradients(all, results, false);
    for (std::size_t i = 0; i < problems.size(); ++i) {
      const std::size_t k = last_first ? problems.size() - 1 - i : i;
      if (problems[k].backward) find_gradients(all.subspan(k, 1), results.subspan(k, 1), false);
    }
  });
  if (whole.status != Status::ok) outcomes.assign(problems.size(), whole);
  return outcomes;
}

}  // namespace fractus::worker
