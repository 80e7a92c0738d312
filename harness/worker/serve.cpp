#include "harness/worker/serve.h"

#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <new>

#include "harness/worker/allocator.h"
#include "harness/worker/outside.h"
#include "harness/worker/over_field.h"
#include "harness/worker/run.h"

namespace fractus::worker {
namespace {

using protocol::Json;
using protocol::Message;

std::string_view name(Status status) {
  return status == Status::ok ? "ok" : status == Status::raised ? "raised" : "out_of_memory";
}

// Peak resident bytes of this process; the kernel hands them out in KiB.
std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} << 10;
}

// In use, by glibc's count of the main arena and of blocks with a mapping of their own.
std::int64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

// The form's own code, so it may fail like the call, whose answer then says so.
void add_depth(const Problem& problem, Json& answer) {
  const Form& form = *problem.form;
  answer["add_depth"] = 0;
  if (!form.declares.add_depth) return;
  try {
    const Contract& contract = *find_contract(form.kernel);
    const std::int64_t depth =
        form.declares.add_depth(dims_of(contract, problem.inputs, problem.scalars), problem.settings);
    if (depth < 1) throw std::invalid_argument(std::to_string(depth) + " additions; wanted 1 or more");
    answer["add_depth"] = depth;
  } catch (...) {
    answer["breaches"].push_back(
        {{"kind", "declared-depth"}, {"text", "its declared depth of addition cannot be had: " + exception_text()}});
  }
}

// Brings what a problem led to where the parent reads it.
Json written(const Problem& problem, const Outcome& outcome) {
  Json outputs = Json::array();
  for (std::size_t i = 0; i < outcome.usable.size(); ++i) {
    outputs.push_back(outcome.status == Status::ok && outcome.usable[i]);
    if (outputs.back() == true) tensor_at(problem.memory, problem.output_places[i]).copy_(outcome.outputs[i]);
  }
  Json gradients = Json::array();
  for (std::size_t i = 0; i < problem.gradient_places.size(); ++i) {
    const auto& place = problem.gradient_places[i];
    gradients.push_back(place && i < outcome.gradients.size() && outcome.gradients[i].defined());
    if (gradients.back() == true) tensor_at(problem.memory, *place).copy_(outcome.gradients[i]);
  }
  Json breaches = Json::array();
  for (const Breach& breach : outcome.breaches) breaches.push_back({{"kind", breach.kind}, {"text", breach.text}});
  Json answer{{"status", name(outcome.status)},
              {"message", outcome.message},
              {"outputs", outputs},
              {"gradients", gradients},
              {"breaches", breaches},
              {"remarks", protocol::json_of(outcome.remarks)},
              {"seconds", outcome.seconds},
              {"forward_seconds", outcome.forward_seconds},
              {"peak_extra_bytes", outcome.forward_peak_extra_bytes},
              {"peak_with_backward_bytes", outcome.peak_extra_bytes},
              {"saved_bytes", outcome.saved_bytes},
              {"resident_growth_bytes", outcome.resident_growth_bytes},
              {"peak_resident_bytes", peak_resident_bytes()}};
  add_depth(problem, answer);
  return answer;
}

void add_violations(Json& answer) {
  for (std::string& text : take_violations())
    answer["breaches"].push_back({{"kind", "guard"}, {"text", std::move(text)}});
}

// What a language of the form's own still holds, and what the form changed in it.
void settle(const Form& form, Json& answer) {
  if (!form.settle) return;
  for (std::string& text : form.settle())
    answer["breaches"].push_back({{"kind", "global-state"}, {"text", std::move(text)}});
}

// Large blocks come from the kernel and go back to it. By itself glibc would soon put them into its heap, where a small
// block that outlives one keeps the next from fitting its place: the process grows although the form holds nothing.
void use_own_pages() { mallopt(M_MMAP_THRESHOLD, 128 << 10); }

Json serve_call(const Json& request, const protocol::Descriptor& memory) {
  const bool watched = request.at("watch_memory").get<bool>();
  if (watched) use_own_pages();
  const std::int64_t held = live_bytes();
  const std::int64_t heap = watched ? heap_bytes() : 0;
  Json answer;
  const Form* form = nullptr;
  {
    const Problem problem = read_problem(request, memory);
    form = problem.form;
    const Outcome outcome = run(problem, /*checked=*/true);
    const c10::NoGradGuard no_grad;
    answer = written(problem, outcome);
  }
  settle(*form, answer);
  // The results are gone: their guard bands were looked at, and what is held now a later call finds held.
  add_violations(answer);
  answer["kept_bytes"] = live_bytes() - held;
  answer["heap_bytes"] = heap;
  return answer;
}

Json serve_together(const Json& request, const std::vector<protocol::Descriptor>& memories) {
  const Json& calls = request.at("calls");
  std::vector<Problem> problems;
  for (std::size_t k = 0; k < calls.size(); ++k) problems.push_back(read_problem(calls[k], memories.at(k)));
  std::vector<Outcome> outcomes = run_together(problems, request.at("last_first").get<bool>());
  const c10::NoGradGuard no_grad;
  Json answers = Json::array();
  for (std::size_t k = 0; k < problems.size(); ++k) answers.push_back(written(problems[k], outcomes[k]));
  const Form* form = problems.empty() ? nullptr : problems.front().form;
  outcomes.clear();
  problems.clear();
  if (form != nullptr) settle(*form, answers.front());
  for (Json& answer : answers) answer["kept_bytes"] = answer["heap_bytes"] = 0;
  if (!answers.empty()) add_violations(answers.front());
  return {{"answers", answers}};
}

Json serve_measure(const Json& request, const protocol::Descriptor& memory) {
  const Problem problem = read_problem(request, memory);
  const int warmup = request.at("warmup").get<int>();
  const int runs = request.at("runs").get<int>();
  const std::int64_t resident_before = peak_resident_bytes();
  std::vector<double> seconds;
  std::vector<double> forward_seconds;
  std::int64_t forward_peak = 0;
  std::int64_t peak = 0;
  Outcome outcome;
  set_poisoning(false);
  for (int i = 0; i < warmup + runs && outcome.status == Status::ok; ++i) {
    outcome = {};  // the last run's tensors are gone before the next begins
    outcome = run(problem, /*checked=*/false);
    forward_peak = std::max(forward_peak, outcome.forward_peak_extra_bytes);
    peak = std::max(peak, outcome.peak_extra_bytes);
    if (i < warmup) continue;
    seconds.push_back(outcome.seconds);
    forward_seconds.push_back(outcome.forward_seconds);
  }
  set_poisoning(true);
  return {{"status", name(outcome.status)},           {"message", outcome.message},
          {"forward_seconds", forward_seconds},       {"seconds", seconds},
          {"resident_before", resident_before},       {"resident_after", peak_resident_bytes()},
          {"forward_peak_extra_bytes", forward_peak}, {"peak_extra_bytes", peak}};
}

Json outlined(const std::string& path) {
  Json names = Json::array();
  for (const outside::Outlined& one : language()->outline(path))
    names.push_back({{"name", one.name}, {"is_function", one.is_function}, {"parameters", one.parameters}});
  return {{"names", names}};
}

// A form may not read the global generator either: it finds another state at each request.
void stir_global_generator() {
  static std::uint64_t calls = 0;
  at::manual_seed(++calls);
}

Message answer_to(const Message& request) {
  const auto& op = request.body.at("op").get_ref<const std::string&>();
  if (op == "extra_elements") return {extra_elements(request.body), {}};
  if (op == "outline") return {outlined(request.body.at("path").get<std::string>()), {}};
  const protocol::Descriptor& file = request.descriptors.at(0);
  if (op == "over_field") return {serve_over_field(request.body, file), {}};  // seeds are no field's
  stir_global_generator();
  if (op == "call") return {serve_call(request.body, file), {}};
  if (op == "together") return {serve_together(request.body, request.descriptors), {}};
  if (op == "measure") return {serve_measure(request.body, file), {}};
  if (op == "read_archive") return read_archive(file);
  throw std::invalid_argument("no request '" + op + "'");
}

}  // namespace

void add_loaded(Json& answer) {
  const Language* const spoken = language();
  if (spoken == nullptr) return;
  const outside::Loaded loaded = spoken->loaded();
  if (!loaded.digests.empty()) answer["loaded"] = loaded.digests;
  if (!loaded.unbound.empty()) answer["unbound"] = loaded.unbound;
}

std::string exception_text() {
  constexpr std::size_t longest = 2000;  // it is repeated in every report
  std::string text = "something that is no std::exception";
  const Language* const spoken = language();
  const std::optional<std::string> foreign = spoken != nullptr ? spoken->exception_text() : std::nullopt;
  if (foreign)
    text = *foreign;
  else
    try {
      throw;
    } catch (const c10::Error& error) {
      text = error.what_without_backtrace();
    } catch (const std::exception& error) {
      text = error.what();
    } catch (...) {
    }
  if (text.size() <= longest) return text;
  return text.substr(0, longest) + "... (" + std::to_string(text.size() - longest) + " bytes more)";
}

void serve(int socket) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what was printed before a crash is not lost
  install_allocator();
  while (true) {
    protocol::Received received = protocol::receive(socket);
    if (received.delivery != protocol::Delivery::message) _exit(0);
    Message answer;
    try {
      answer = answer_to(received.message);
      add_loaded(answer.body);
    } catch (const std::bad_alloc&) {
      answer.body = {{"error", "no memory left for the call's tensors"}, {"out_of_memory", true}};
    } catch (...) {
      answer.body = {{"error", exception_text()}};
    }
    received.message.descriptors.clear();  // whoever gets the answer finds the memory of the call returned
    std::cout.flush();
    std::fflush(stdout);
    const int descriptor = answer.descriptors.empty() ? -1 : answer.descriptors[0].get();
    if (!protocol::send(socket, answer.body, {&descriptor, answer.descriptors.size()})) _exit(0);
  }
}

}  // namespace fractus::worker
