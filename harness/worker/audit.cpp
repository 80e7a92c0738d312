#include "harness/worker/audit.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "harness/worker/outside.h"

namespace fractus::worker {
namespace {

using Names = std::set<std::string_view>;

// What has no meaning over a field. An operation that torch makes of these is not listed: they are seen inside of it.
const Names& non_algebraic() {
  static const Names names{
      "_log_softmax",
      "_scaled_dot_product_flash_attention_for_cpu",
      "_softmax",
      "acos",
      "acosh",
      "amax",
      "amin",
      "aminmax",
      "angle",
      "argmax",
      "argmin",
      "argsort",
      "asin",
      "asinh",
      "atan",
      "atan2",
      "atanh",
      "ceil",
      "celu",
      "clamp",
      "clamp_max",
      "clamp_min",
      "copysign",
      "cos",
      "cosh",
      "cummax",
      "cummin",
      "digamma",
      "elu",
      "erf",
      "erfc",
      "erfinv",
      "exp",
      "exp2",
      "expm1",
      "floor",
      "floor_divide",
      "fmax",
      "fmin",
      "fmod",
      "frac",
      "frexp",
      "gelu",
      "hardtanh",
      "hypot",
      "i0",
      "kthvalue",
      "leaky_relu",
      "lgamma",
      "linalg_vector_norm",
      "log",
      "log10",
      "log1p",
      "log2",
      "log_sigmoid",
      "logaddexp",
      "logaddexp2",
      "logsumexp",
      "max",
      "maximum",
      "median",
      "min",
      "minimum",
      "mish",
      "native_layer_norm",
      "nextafter",
      "norm",
      "polygamma",
      "relu",
      "remainder",
      "round",
      "rsqrt",
      "sgn",
      "sigmoid",
      "sign",
      "silu",
      "sin",
      "sinc",
      "sinh",
      "softplus",
      "sort",
      "sqrt",
      "std",
      "tan",
      "tanh",
      "threshold",
      "topk",
      "trunc",
  };
  return names;
}

const Names& comparisons() {
  static const Names names{"allclose", "eq",    "equal", "ge", "gt", "isclose", "isfinite",
                           "isinf",    "isnan", "le",    "lt", "ne", "signbit"};
  return names;
}

// A value of a tensor becomes a number, or an extent, of the program.
const Names& branches() {
  static const Names names{"_local_scalar_dense", "masked_select", "nonzero", "unique_dim", "_unique2"};
  return names;
}

const Names& random_operations() {
  static const Names names{"bernoulli",   "cauchy",         "exponential",  "geometric", "log_normal",
                           "multinomial", "native_dropout", "normal",       "poisson",   "rand",
                           "rand_like",   "randint",        "randint_like", "randn",     "randn_like",
                           "random",      "randperm",       "rrelu",        "uniform"};
  return names;
}

// What torch names as without a fixed order on a GPU (torch.use_deterministic_algorithms, torch 2.11). A backward has
// some of them.
const Names& unordered_on_gpu() {
  static const Names names{"bincount", "cumsum", "embedding_dense_backward", "histc", "index_add", "scatter_add"};
  return names;
}

// "aten::exp_" and "aten::exp.out" are exp.
std::string_view plain(std::string_view name) {
  if (name.starts_with("aten::")) name.remove_prefix(6);
  if (name.ends_with("_") && !name.ends_with("__")) name.remove_suffix(1);
  return name;
}

std::optional<at::ScalarType> float_type(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return std::nullopt;
  // A number of the program has no type of its own.
  if (value.toTensor().unsafeGetTensorImpl()->is_wrapped_number()) return std::nullopt;
  const at::ScalarType type = value.toTensor().scalar_type();
  return at::isFloatingType(type) ? std::optional(type) : std::nullopt;
}

std::string type_name(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return "float64";
    case at::kFloat: return "float32";
    case at::kHalf: return "float16";
    case at::kBFloat16: return "bfloat16";
    default: return c10::toString(type);
  }
}

// Fewer bits of significand, or a whole number.
std::optional<std::string> narrowed(std::optional<at::ScalarType> from, std::optional<at::ScalarType> to) {
  if (!from || !to || *from == *to || *to == at::kBool) return std::nullopt;
  const auto digits = [](at::ScalarType type) {
    return type == at::kDouble ? 53 : type == at::kFloat ? 24 : type == at::kHalf ? 11 : type == at::kBFloat16 ? 8 : 0;
  };
  if (digits(*to) >= digits(*from)) return std::nullopt;
  return fmt::format("{} to {}", type_name(*from), type_name(*to));
}

struct Remarked {
  std::string kind, detail;
};

bool any_float(c10::ArrayRef<const c10::IValue> inputs) {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const c10::IValue& x) { return float_type(x).has_value() || x.isTensorList(); });
}

std::optional<Remarked> remarked(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  if (name == "_to_copy" && inputs.size() > 1 && inputs[1].isInt()) {
    const auto detail = narrowed(float_type(inputs[0]), static_cast<at::ScalarType>(inputs[1].toInt()));
    return detail ? std::optional(Remarked{"cast", *detail}) : std::nullopt;
  }
  if (name == "copy" && inputs.size() > 1 && inputs[0].isTensor()) {
    const auto detail = narrowed(float_type(inputs[1]), inputs[0].toTensor().scalar_type());
    return detail ? std::optional(Remarked{"cast", *detail}) : std::nullopt;
  }
  if (random_operations().contains(name)) return Remarked{"non-deterministic", "draws random numbers"};
  if (unordered_on_gpu().contains(name) && any_float(inputs))
    return Remarked{"non-deterministic", "on a GPU, where its sums have no fixed order"};
  if ((name == "index_put" || name == "_index_put_impl") && inputs.size() > 3 && inputs[3].isBool() &&
      inputs[3].toBool() && any_float(inputs))
    return Remarked{"non-deterministic", "on a GPU, where its sums have no fixed order"};
  if (branches().contains(name)) return Remarked{"branch", ""};
  if (!any_float(inputs)) return std::nullopt;
  if (comparisons().contains(name)) return Remarked{"comparison", ""};
  if (name == "pow") {
    const bool whole = inputs.size() > 1 && inputs[1].isScalar() &&
                       inputs[1].toScalar().toDouble() == std::floor(inputs[1].toScalar().toDouble());
    return whole ? std::nullopt : std::optional(Remarked{"non-algebraic", ""});
  }
  if (non_algebraic().contains(name)) return Remarked{"non-algebraic", ""};
  return std::nullopt;
}

std::string place() {
  if (const Language* const spoken = language()) {
    std::string where = spoken->place();
    if (!where.empty()) return where;
  }
  if (const auto node = torch::autograd::get_current_node()) return node->name();
  return {};
}

// Of this thread. Inside of an operation that is remarked nothing else is: it is torch's own way to compute it.
struct Listening {
  std::vector<Remark> remarks;
  int inside = 0;
};
thread_local Listening listening;

struct Inside : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  if (listening.inside > 0) {
    ++listening.inside;
    return std::make_unique<Inside>();
  }
  const auto found = remarked(plain(function.name()), function.inputs());
  if (!found) return nullptr;
  listening.inside = 1;
  // The place is asked for below the operation: what that costs in operations of its own is inside, too.
  Remark remark{found->kind, function.name(), place(), found->detail};
  for (Remark& known : listening.remarks)
    if (known.kind == remark.kind && known.operation == remark.operation && known.place == remark.place &&
        known.detail == remark.detail) {
      ++known.count;
      return std::make_unique<Inside>();
    }
  listening.remarks.push_back(std::move(remark));
  return std::make_unique<Inside>();
}

void end(const at::RecordFunction&, at::ObserverContext* context) {
  if (context != nullptr) --listening.inside;
}

}  // namespace

Audit::Audit()
    : handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(begin, end).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {
  listening = {};
}

Audit::~Audit() { at::removeCallback(handle_); }

std::vector<Remark> Audit::take() { return std::exchange(listening.remarks, {}); }

}  // namespace fractus::worker
