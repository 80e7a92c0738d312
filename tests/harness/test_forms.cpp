// Forms that do what no candidate should, for the tests of the worker. Only fractus-test-worker holds them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <signal.h>
#include <sys/prctl.h>
#include <torch/csrc/autograd/custom_function.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>

#include "contracts/form.h"
#include "contracts/linear_attention.h"

namespace fractus {
namespace {

// Right in shape and type, and differentiable: y = 2q, S = k^T v, z = sum of k.
Tensors plain(const Tensors& in) { return {in[0] * 2, at::matmul(in[1].transpose(1, 2), in[2]), in[1].sum(1)}; }

Tensors with_y(const Tensors& in, const at::Tensor& y) {
  Tensors out = plain(in);
  out[0] = y;
  return out;
}

// A y that holds the given numbers first.
Tensors telling(const Tensors& in, const std::vector<double>& numbers) {
  at::Tensor y = at::zeros(in[0].sizes(), in[0].options().requires_grad(false));
  for (std::size_t i = 0; i < numbers.size(); ++i) y.view(-1)[static_cast<std::int64_t>(i)] = numbers[i];
  return with_y(in, y);
}

template <class Do>
void add(const char* name, Do run) {
  const Registration registration{{.kernel = "linear_attention",
                                   .name = std::string("test_") + name,
                                   .role = Role::wrong,
                                   .summary = "a test of the worker",
                                   .settings = {{"block", 64}},
                                   .run = [run](const Tensors& in, const Scalars&,
                                                const Settings& settings) -> Tensors { return run(in, settings); }}};
}

// A backward that gives other numbers every time.
struct Fickle : torch::autograd::Function<Fickle> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& g) {
    static int turn = 0;
    return {g[0] * ++turn};
  }
};

// A backward that works once.
struct Once : torch::autograd::Function<Once> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->saved_data["used"] = false;
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& g) {
    if (context->saved_data["used"].toBool()) throw std::runtime_error("already used");
    context->saved_data["used"] = true;
    return {g[0] * 2};
  }
};

template <class T>
void write_at(const at::Tensor& tensor, std::int64_t element, T value) {
  const_cast<T*>(static_cast<const T*>(tensor.const_data_ptr()))[element] = value;
}

void add_outputs() {
  add("plain", [](const Tensors& in, const Settings&) { return plain(in); });
  add("echo", [](const Tensors& in, const Settings&) { return Tensors{in[0].clone(), in[3].clone(), in[4].clone()}; });
  add("count", [](const Tensors& in, const Settings&) { return Tensors{plain(in)[0], plain(in)[1]}; });
  add("absent", [](const Tensors& in, const Settings&) { return with_y(in, {}); });
  add("shape", [](const Tensors& in, const Settings&) { return with_y(in, in[0].transpose(0, 1) * 2); });
  add("dtype", [](const Tensors& in, const Settings&) { return with_y(in, in[0].to(at::kDouble)); });
  add("device", [](const Tensors& in, const Settings&) {
    return with_y(in, at::empty(in[0].sizes(), in[0].options().device(at::kMeta)));
  });
  add("alias_input", [](const Tensors& in, const Settings&) { return with_y(in, in[0].view(in[0].sizes())); });
  add("alias_output", [](const Tensors& in, const Settings&) {
    Tensors out = plain(in);
    out[2] = out[1].select(2, 0);
    return out;
  });
  add("columns", [](const Tensors& in, const Settings&) {
    const at::Tensor both =
        at::zeros({in[0].size(0), in[0].size(2), in[0].size(2) + 1}, in[0].options().requires_grad(false));
    return Tensors{in[0] * 2, both.narrow(2, 0, in[0].size(2)), both.select(2, in[0].size(2))};
  });
  add("unwritten", [](const Tensors& in, const Settings&) {
    at::Tensor y = at::empty(in[0].sizes(), in[0].options().requires_grad(false));
    y.view(-1).narrow(0, 0, y.numel() - 1).fill_(1);
    return with_y(in, y);
  });
  add("detached", [](const Tensors& in, const Settings&) { return with_y(in, (in[0] * 2).detach()); });
}

// `looped` with an S that is off by most of what its bound allows a long sequence, and far more than any right form is.
void add_coarse() {
  add("coarse", [](const Tensors& in, const Settings& settings) {
    Tensors out = find_form("linear_attention", "looped")->run(in, {}, settings);
    if (in[0].size(1) >= 128 && in[0].scalar_type() == at::kFloat) out[1] = out[1] + out[1].detach() * (70 * 0x1p-24);
    return out;
  });
}

// y by halves of the sequence, and a backward by hand that computes den anew, from all scores at once. Right if it cuts
// by that den; else it divides by each den that there is.
template <bool cuts>
struct DenAnew : torch::autograd::Function<DenAnew<cuts>> {
  using Variables = torch::autograd::variable_list;
  static at::Tensor kept(const at::Tensor& den) { return den.abs() > linear_attention::cut; }
  static at::Tensor divisor(const at::Tensor& den) {
    return at::where(kept(den), den + linear_attention::epsilon, at::ones_like(den));
  }
  static Variables forward(torch::autograd::AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                           const at::Tensor& v, const at::Tensor& S0, const at::Tensor& z0) {
    context->save_for_backward({q, k, v, S0, z0});
    at::Tensor S = S0, z = z0;
    Variables ys;
    const std::int64_t T = q.size(1), half = (T + 1) / 2;
    for (std::int64_t start = 0; start < T; start += half) {
      const std::int64_t length = std::min(half, T - start);
      const at::Tensor qb = q.narrow(1, start, length), kb = k.narrow(1, start, length),
                       vb = v.narrow(1, start, length);
      const at::Tensor scores = at::matmul(qb, kb.mT()).tril();
      const at::Tensor den = scores.sum(-1, true) + at::matmul(qb, z.unsqueeze(-1));
      const at::Tensor y = (at::matmul(scores, vb) + at::matmul(qb, S)) / divisor(den);
      ys.push_back(at::where(kept(den), y, at::zeros_like(y)));
      S = S + at::matmul(kb.mT(), vb), z = z + kb.sum(1);
    }
    return {T == 0 ? q.clone() : at::cat(ys, 1), T == 0 ? S.clone() : S, T == 0 ? z.clone() : z};
  }
  static Variables backward(torch::autograd::AutogradContext* context, const Variables& g) {
    const Variables saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &S0 = saved[3], &z0 = saved[4];
    const at::Tensor scores = at::matmul(q, k.mT()).tril();
    const at::Tensor den = scores.sum(-1, true) + at::matmul(q, z0.unsqueeze(-1));
    const at::Tensor by_den =
        at::where(cuts ? kept(den) : den != 0, 1 / (den + linear_attention::epsilon), at::zeros_like(den));
    const at::Tensor dnum = g[0] * by_den, y = (at::matmul(scores, v) + at::matmul(q, S0)) * by_den;
    const at::Tensor dden = -(g[0] * y).sum(-1, true) * by_den;
    const at::Tensor dscores = (at::matmul(dnum, v.mT()) + dden).tril();
    return {at::matmul(dscores, k) + at::matmul(dnum, S0.mT()) + dden * z0.unsqueeze(1),
            at::matmul(dscores.mT(), q) + at::matmul(v, g[1].mT()) + g[2].unsqueeze(1),
            at::matmul(scores.mT(), dnum) + at::matmul(k, g[1]), g[1] + at::matmul(q.mT(), dnum),
            g[2] + (q * dden).sum(1)};
  }
};

template <bool cuts>
Tensors den_anew(const Tensors& in, const Settings&) {
  const at::Tensor &q = in[0], &S0 = in[3], &z0 = in[4];
  return DenAnew<cuts>::apply(q, in[1], in[2],
                              S0.defined() ? S0 : at::zeros({q.size(0), q.size(2), q.size(2)}, q.options()),
                              z0.defined() ? z0 : at::zeros({q.size(0), q.size(2)}, q.options()));
}

void add_den_anew() {
  add("den_anew", den_anew<true>);
  add("den_anew_uncut", den_anew<false>);
}

void add_memory() {
  add("modifies_input", [](const Tensors& in, const Settings&) {
    write_at<float>(in[1], 1, 7);
    return plain(in);
  });
  add("between", [](const Tensors& in, const Settings&) {  // with the layout sliced: the element between two
    write_at<float>(in[1], 1, 7);
    return plain(in);
  });
  add("behind_input", [](const Tensors& in, const Settings&) {
    write_at<float>(in[2], in[2].numel(), 7);
    return plain(in);
  });
  add("before_input", [](const Tensors& in, const Settings&) {
    write_at<float>(in[0], -1, 7);
    return plain(in);
  });
  add("behind_block", [](const Tensors& in, const Settings&) {
    Tensors out = plain(in);
    write_at<float>(out[1], out[1].numel(), 7);
    return out;
  });
  add("holds_megabyte", [](const Tensors& in, const Settings&) {
    at::empty({1 << 18}, at::kFloat).fill_(0);
    return plain(in);
  });
  add("hungry",
      [](const Tensors& in, const Settings&) { return with_y(in, at::empty({std::int64_t{25} << 30}, at::kFloat)); });
}

void add_state() {
  add("random", [](const Tensors& in, const Settings&) { return with_y(in, at::rand_like(in[0])); });
  add("counter", [](const Tensors& in, const Settings&) {
    static int calls = 0;
    return telling(in, {static_cast<double>(++calls)});
  });
  add("world", [](const Tensors& in, const Settings& settings) {
    return telling(in, {static_cast<double>(at::get_num_threads()), static_cast<double>(c10::GradMode::is_enabled()),
                        static_cast<double>(in[0].requires_grad()), static_cast<double>(settings.at("block"))});
  });
  add("environment", [](const Tensors& in, const Settings&) {
    const char* threads = std::getenv("OMP_NUM_THREADS");
    std::vector<double> present{threads == nullptr ? 0 : std::atof(threads)};
    for (const char* name :
         {"MKL_CBWR", "ATEN_CPU_CAPABILITY", "GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_PERTURB_", "TEST_ENVIRONMENT"})
      present.push_back(std::getenv(name) != nullptr);
    const char* policy = std::getenv("OMP_WAIT_POLICY");
    present.push_back(policy != nullptr && std::string(policy) == "passive");
    return telling(in, present);
  });
  add("strides", [](const Tensors& in, const Settings&) {
    return telling(in, {static_cast<double>(in[0].stride(0)), static_cast<double>(in[0].stride(1)),
                        static_cast<double>(in[0].stride(2)), static_cast<double>(in[0].storage_offset())});
  });
  add("fickle", [](const Tensors& in, const Settings&) { return with_y(in, Fickle::apply(in[0])); });
  add("once", [](const Tensors& in, const Settings&) { return with_y(in, Once::apply(in[0])); });
}

void add_endings() {
  add("raise",
      [](const Tensors&, const Settings&) -> Tensors { throw std::invalid_argument("wanted something else \xff"); });
  add("raise_torch", [](const Tensors& in, const Settings&) {
    return with_y(in, at::matmul(in[0], at::zeros({1, 2, 3})));
  });
  add("raise_int", [](const Tensors&, const Settings&) -> Tensors { throw 5; });
  add("raise_loudly", [](const Tensors&, const Settings&) -> Tensors {
    throw std::runtime_error("\033[2Jgone\n" + std::string(10'000'000, 'x'));
  });
  add("prints_escapes", [](const Tensors& in, const Settings&) {
    std::puts("first\n```\n\033]0;title\a \xff");
    return plain(in);
  });
  add("fault", [](const Tensors&, const Settings&) -> Tensors {
    std::puts("last words");
    signal(SIGSEGV, SIG_DFL);  // not the sanitizer's
    raise(SIGSEGV);
    return {};
  });
  add("exit", [](const Tensors&, const Settings&) -> Tensors { std::exit(0); });
  add("exit_at_once", [](const Tensors&, const Settings&) -> Tensors { _exit(3); });
  add("hang", [](const Tensors&, const Settings&) -> Tensors {
    for (volatile bool forever = true; forever;) {
    }
    return {};
  });
  add("orphan", [](const Tensors& in, const Settings&) {
    const pid_t pid = fork();
    if (pid == 0) {
      setsid();
      sleep(1000);
      _exit(0);
    }
    return telling(in, {static_cast<double>(pid)});
  });
  add("kills_parent", [](const Tensors& in, const Settings&) {  // and answers, if it still can
    kill(getppid(), SIGKILL);
    return plain(in);
  });
  add("terminates_parent", [](const Tensors&, const Settings&) -> Tensors {
    kill(getppid(), SIGTERM);
    sleep(1000);
    return {};
  });
  add("kills_parents_group", [](const Tensors&, const Settings&) -> Tensors {
    kill(-getpgid(getppid()), SIGKILL);
    sleep(1000);
    return {};
  });
  add("stops_parent", [](const Tensors&, const Settings&) -> Tensors {
    kill(getppid(), SIGSTOP);
    _exit(3);
  });
  add("outlives_parent", [](const Tensors& in, const Settings&) {
    prctl(PR_SET_PDEATHSIG, 0);
    kill(getppid(), SIGKILL);
    usleep(100'000);
    return plain(in);
  });
  add("closes", [](const Tensors&, const Settings&) -> Tensors {
    close(3);
    sleep(1000);
    return {};
  });
  add("garbage", [](const Tensors&, const Settings&) -> Tensors {
    const char bytes[] = "\x05\0\0\0hello";
    if (write(3, bytes, 9) != 9) _exit(1);
    sleep(1000);
    return {};
  });
  add("flood", [](const Tensors& in, const Settings&) {
    const std::string line(1 << 16, 'x');
    for (int i = 0; i < 500; ++i) std::fwrite(line.data(), 1, line.size(), i % 2 == 0 ? stdout : stderr);
    std::puts("end of flood");
    return plain(in);
  });
  add("flood_forever", [](const Tensors&, const Settings&) -> Tensors {
    while (true) std::puts("and on");
  });
}

// `looped`, so that all but its declaration is right.
template <class Declare>
void add_declaring(const char* name, Declare declare) {
  const Registration registration{{.kernel = "linear_attention",
                                   .name = std::string("test_declares") + name,
                                   .role = Role::wrong,
                                   .summary = "a test of what a form declares",
                                   .settings = {{"block", 64}},
                                   .declares = {.extra_elements = declare},
                                   .run = [](const Tensors& in, const Scalars&, const Settings& settings) {
                                     return find_form("linear_attention", "looped")->run(in, {}, settings);
                                   }}};
}

void add_declarations() {
  using Count = std::int64_t;
  add_declaring("", [](const Dims& dims, const Settings& set) -> Count { return dims.at("T") * set.at("block"); });
  add_declaring("_by_raising", [](const Dims&, const Settings&) -> Count { throw std::runtime_error("what for"); });
  add_declaring("_by_hanging", [](const Dims&, const Settings&) -> Count {
    sleep(1000);
    return 0;
  });
  add_declaring("_by_exit", [](const Dims&, const Settings&) -> Count { _exit(3); });
  add_declaring("_by_killing", [](const Dims&, const Settings&) -> Count {
    kill(getppid(), SIGKILL);
    sleep(1000);
    return 0;
  });
  add_declaring("_too_much", [](const Dims&, const Settings&) { return std::numeric_limits<Count>::max(); });
  add_declaring("_less_than_nothing", [](const Dims&, const Settings&) -> Count { return -1; });
}

const bool added =
    (add_outputs(), add_coarse(), add_den_anew(), add_memory(), add_state(), add_endings(), add_declarations(), true);

}  // namespace
}  // namespace fractus
