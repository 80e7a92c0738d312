#include "harness/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "attest/digest.h"
#include "harness/fork_server.h"
#include "harness/over_field.h"
#include "harness/region.h"
#include "reports/words.h"

namespace fractus {

using namespace std::chrono_literals;
using protocol::Descriptor;
using protocol::Json;
using protocol::Placement;

constexpr std::int64_t most_archive_bytes = std::int64_t{1} << 30;

namespace process {
namespace {

Json request_of(const char* op, const Call& call, const RegionPlan& plan) {
  const auto list = [](const std::vector<std::optional<Placement>>& placements) {
    Json all = Json::array();
    for (const auto& placement : placements) all.push_back(placement ? Json(*placement) : Json());
    return all;
  };
  return {{"op", op},
          {"kernel", call.kernel},
          {"form", call.form},
          {"settings", call.settings},
          {"scalars", protocol::json_of(call.scalars)},
          {"tied", call.tied ? Json{{"input", call.tied->input}, {"from", call.tied->from}, {"rows", call.tied->rows}}
                             : Json()},
          {"threads", call.threads},
          {"backward_twice", call.backward_twice},
          {"record_graph", call.record_graph},
          {"tracked_inputs", call.tracked_inputs},
          {"computed_inputs", call.computed_inputs},
          {"watch_memory", call.watch_memory},
          {"audited", call.audited},
          {"continues", call.continues},
          {"requires_grad", call.gradients},
          {"bytes", plan.bytes},
          {"inputs", list(plan.inputs)},
          {"cotangents", list(plan.cotangents)},
          {"outputs", plan.outputs},
          {"gradients", list(plan.gradients)}};
}

const FormInfo* find_form(const std::vector<FormInfo>& forms, std::string_view kernel, std::string_view name) {
  const auto found = std::find_if(forms.begin(), forms.end(),
                                  [&](const FormInfo& form) { return form.kernel == kernel && form.name == name; });
  return found == forms.end() ? nullptr : &*found;
}

// What the worker would refuse is refused here, so that all it says later is the form's doing.
RegionPlan checked_plan(const Child& child, const Call& call) {
  const Contract* contract = find_contract(call.kernel);
  if (contract == nullptr) throw std::invalid_argument(fmt::format("no kernel named '{}'", call.kernel));
  const FormInfo* form = find_form(child.server->forms, call.kernel, call.form);
  if (form == nullptr) throw std::invalid_argument(fmt::format("no form of {} named '{}'", call.kernel, call.form));
  for (const auto& [setting, value] : call.settings)
    if (!form->settings.contains(setting))
      throw std::invalid_argument(fmt::format("{} has no setting '{}'", call.form, setting));
  return plan_region(*contract, call);
}

Status status_from(const std::string& text) {
  if (text == "ok") return Status::ok;
  if (text == "raised") return Status::raised;
  if (text == "out_of_memory") return Status::out_of_memory;
  throw std::runtime_error("status '" + text + "'");
}

// What the child says of a call, together with what its memory says.
Answer read_answer(const Json& body, const RegionPlan& plan, const Region& region) {
  Answer answer;
  answer.status = status_from(body.at("status").get<std::string>());
  answer.message = visible(body.at("message").get<std::string>());
  for (const Json& breach : body.at("breaches"))
    answer.breaches.push_back(
        {visible(breach.at("kind").get<std::string>()), visible(breach.at("text").get<std::string>())});
  for (Breach& breach : compare_given(plan, region)) answer.breaches.push_back(std::move(breach));
  body.at("seconds").get_to(answer.seconds);
  body.at("forward_seconds").get_to(answer.forward_seconds);
  body.at("peak_extra_bytes").get_to(answer.peak_extra_bytes);
  body.at("peak_with_backward_bytes").get_to(answer.peak_with_backward_bytes);
  body.at("saved_bytes").get_to(answer.saved_bytes);
  body.at("add_depth").get_to(answer.add_depth);
  answer.remarks = protocol::remarks_from(body.at("remarks"));
  body.at("peak_resident_bytes").get_to(answer.peak_resident_bytes);
  body.at("resident_growth_bytes").get_to(answer.resident_growth_bytes);
  body.at("kept_bytes").get_to(answer.kept_bytes);
  body.at("heap_bytes").get_to(answer.heap_bytes);
  if (answer.status != Status::ok) return answer;

  const auto take = [&](const Placement& placement) {
    const std::string index = first_unwritten(region.mapping, placement);
    if (!index.empty())
      answer.breaches.push_back(
          {"unwritten", fmt::format("{}{} holds what was in memory before", placement.name, index)});
    return read_tensor(region.mapping, placement);
  };
  for (std::size_t i = 0; i < plan.outputs.size(); ++i)
    answer.outputs.push_back(body.at("outputs").at(i).get<bool>() ? take(plan.outputs[i]) : Array{});
  for (std::size_t i = 0; i < plan.gradients.size(); ++i) {
    answer.gradients.emplace_back();
    if (!plan.gradients[i] || !body.at("gradients").at(i).get<bool>()) continue;
    answer.gradients.back() = take(*plan.gradients[i]);
    answer.gradients.back()->name = plan.inputs[i]->name;
  }
  return answer;
}

// Asks the child to do `op` with the call; `read` takes its answer apart. An answer that cannot be read is a crash too.
template <class Result, class Read>
Result converse(Child& child, const Json& request, std::span<const int> memories, std::chrono::milliseconds limit,
                Read read) {
  Reply reply = child.exchange(request, memories, limit);
  const Json& body = reply.content.body;
  try {
    if (reply.status == Status::ok && body.contains("error")) {
      reply.message = body.at("error").get<std::string>();
      if (!body.contains("out_of_memory")) throw std::runtime_error(reply.message);
      reply.status = Status::out_of_memory;
    }
    if (reply.status == Status::ok) {
      child.server->noted.add(body);
      return read(body);
    }
  } catch (const std::exception& error) {
    child.reap(0ms);
    reply = {Status::crashed, fmt::format("its answer cannot be used: {}", error.what()), {}};
  }
  Result result;
  result.status = reply.status;
  result.message = visible(reply.message);
  return result;
}

// Times the largest item size it is still a number of bytes.
constexpr std::int64_t most_elements = std::numeric_limits<std::int64_t>::max() / 8;

Declared read_declared(const Reply& reply) {
  const auto trouble = [](const std::string& text) { return Declared{.trouble = visible(text)}; };
  if (reply.status == Status::timed_out) return {.timed_out = true, .trouble = reply.message};
  if (reply.status != Status::ok) return trouble("the process that was asked ended: " + reply.message);
  const Json& body = reply.content.body;
  for (const char* failed : {"raised", "error"})
    if (const auto found = body.find(failed); found != body.end() && found->is_string())
      return trouble("it raised: " + found->get<std::string>());
  const auto count = body.find("count");
  if (count == body.end() || !count->is_number_integer()) return trouble("the answer holds no count");
  const auto elements = count->get<std::int64_t>();
  if (elements < 0 || elements > most_elements)
    return trouble(fmt::format("it is {} elements; wanted 0 to {}", elements, most_elements));
  return {.elements = elements};
}

std::filesystem::path default_worker() {
  if (const char* set = std::getenv("FRACTUS_WORKER"); set != nullptr && *set != '\0') return set;
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fractus-worker";
}

std::vector<FormInfo> read_forms(const Json& list) {
  std::vector<FormInfo> forms;
  for (const Json& form : list) forms.push_back(read_form(form));
  return forms;
}

}  // namespace

FormInfo read_form(const Json& form) {
  FormInfo info;
  form.at("kernel").get_to(info.kernel);
  form.at("name").get_to(info.name);
  form.at("role").get_to(info.role);
  form.at("summary").get_to(info.summary);
  form.at("shown_by").get_to(info.shown_by);
  form.at("settings").get_to(info.settings);
  form.at("bit_equal_reruns").get_to(info.bit_equal_reruns);
  form.at("bit_equal_threads").get_to(info.bit_equal_threads);
  form.at("bit_equal_neighbours").get_to(info.bit_equal_neighbours);
  form.at("declares_memory").get_to(info.declares_memory);
  form.at("recomputes").get_to(info.recomputes);
  return info;
}

outside::Loaded digest_of_file(const std::filesystem::path& path) {
  try {
    const std::filesystem::path file = std::filesystem::canonical(path);
    return {{{file.string(), attest::sha256_of(file)}}, {}};
  } catch (const std::exception& error) {
    return {{}, {error.what()}};
  }
}

// A candidate from outside, in a process of its own that is forked from the server.
std::shared_ptr<Host> loaded(const std::shared_ptr<Server>& from, const outside::Spec& spec, const std::string& kernel,
                             const std::string& candidate, std::chrono::milliseconds limit) {
  const Json prepared =
      spec.kind->in_python ? from->ask({{"op", "prepare"}, {"path", spec.path}}, 5min) : Json::object();
  auto host = std::make_shared<Host>(from, Limits{}.extra_bytes);
  // Before it is read and after: where both are equal they are what was read, whatever reads it. A file that cannot be
  // read any more fails in the loading, or later where it is asked for.
  host->noted.add(digest_of_file(spec.path));
  host->load(kernel, candidate, limit);
  host->noted.add(digest_of_file(spec.path));
  if (prepared.value("compiles", false)) host->forms.front().patience = 1min;
  return host;
}

}  // namespace process

Process::Process(std::unique_ptr<process::Child> child) : child_(std::move(child)) {}
Process::~Process() = default;
Process::Process(Process&&) noexcept = default;
Process& Process::operator=(Process&&) noexcept = default;

bool Process::alive() const { return child_->alive; }
pid_t Process::pid() const { return child_->pid; }

std::string Process::output_tail() {
  child_->drain();
  return std::string(tail_of(visible_lines(child_->tail), process::tail_bytes));
}

Workshop::Workshop() : Workshop(process::default_worker()) {}

Workshop::Workshop(const std::filesystem::path& worker, std::chrono::milliseconds patience)
    : server_(std::make_shared<process::Server>(worker)) {
  server_->forms = process::read_forms(server_->first_answer(patience).at("forms"));
}

const std::vector<FormInfo>& Workshop::forms() const { return server_->forms; }
pid_t Workshop::pid() const { return server_->pid; }

const FormInfo* Workshop::find_form(std::string_view kernel, std::string_view name) const {
  if (const FormInfo* form = process::find_form(forms(), kernel, name)) return form;
  const auto host = hosts_.find(std::pair(std::string(kernel), std::string(name)));
  return host == hosts_.end() ? nullptr : &host->second->forms.front();
}

std::shared_ptr<process::Server> Workshop::start_python() const {
  auto started = std::make_shared<process::Server>(server_->path);
  try {
    started->first_answer(60s);
    started->ask({{"op", "open_python"}}, 5min);  // its first start compiles torch's Python files
  } catch (const std::exception& error) {
    throw std::runtime_error(
        fmt::format("candidates in Python cannot be run: {}\nThe launcher sets Python up where it is needed: start "
                    "./fractus-verify rather than the program that it built.",
                    visible_lines(error.what())));
  }
  return started;
}

std::shared_ptr<process::Server> Workshop::python() {
  if (!python_) python_ = start_python();
  return python_;
}

const FormInfo& Workshop::load(const std::string& kernel, const std::string& candidate,
                               std::chrono::milliseconds limit) {
  const auto spec = outside::spec_from(candidate);
  if (!spec) throw std::invalid_argument(fmt::format("'{}' is no candidate from outside", candidate));
  auto host = process::loaded(spec->kind->in_python ? python() : server_, *spec, kernel, candidate, limit);
  return (hosts_[{kernel, candidate}] = std::move(host))->forms.front();
}

void Workshop::unload(const std::string& kernel, const std::string& candidate) {
  hosts_.erase({kernel, candidate});
  const std::scoped_lock lock(elsewhere_->mutex);
  elsewhere_->hosts.erase({kernel, candidate});
}

std::vector<outside::Outlined> Workshop::outline(const std::filesystem::path& path) {
  process::Child child(python(), Limits{}.extra_bytes);
  const process::Reply reply = child.exchange({{"op", "outline"}, {"path", path.string()}}, {}, 20s);
  const Json& body = reply.content.body;
  if (reply.status != Status::ok || !body.contains("names"))
    throw UnreadableSource(fmt::format(
        "cannot read {} as Python: {}", path.string(),
        visible(reply.status != Status::ok ? reply.message : body.value("error", "the answer holds no names"))));
  std::vector<outside::Outlined> all;
  for (const Json& one : body.at("names"))
    all.push_back({one.at("name").get<std::string>(), one.at("is_function").get<bool>(),
                   one.at("parameters").get<std::vector<std::string>>()});
  return all;
}

Declared Workshop::extra_elements(const std::string& kernel, const std::string& form, const Dims& dims,
                                  const std::map<std::string, std::int64_t>& settings,
                                  std::chrono::milliseconds limit) const {
  const FormInfo* known = find_form(kernel, form);
  if (known == nullptr) throw std::runtime_error(fmt::format("no form of {} is named '{}'", kernel, form));
  if (!known->declares_memory) return {};
  process::Child child(server_, Limits{}.extra_bytes);
  const process::Reply reply = child.exchange(
      {{"op", "extra_elements"}, {"kernel", kernel}, {"form", form}, {"dims", dims}, {"settings", settings}}, {},
      limit);
  return process::read_declared(reply);
}

outside::Loaded Workshop::loaded(const FormInfo& form) const {
  const std::pair key(form.kernel, form.name);
  process::Noted all;
  if (const auto host = hosts_.find(key); host != hosts_.end()) all.add(host->second->noted.all());
  const std::scoped_lock lock(elsewhere_->mutex);
  if (const auto host = elsewhere_->hosts.find(key); host != elsewhere_->hosts.end())
    all.add(host->second->noted.all());
  return all.all();
}

std::filesystem::path Workshop::program() const { return fmt::format("/proc/{}/exe", server_->pid); }

Process Workshop::spawn(const Limits& limits) const {
  return Process(std::make_unique<process::Child>(server_, limits.extra_bytes));
}

Process Workshop::spawn_for(const FormInfo& form, const Limits& limits) const {
  const auto host = hosts_.find(std::pair(form.kernel, form.name));
  if (host == hosts_.end()) return spawn(limits);
  return Process(std::make_unique<process::Child>(host->second, limits.extra_bytes));
}

Process Workshop::spawn_elsewhere(const FormInfo& form, const Limits& limits) const {
  const auto spec = outside::spec_from(form.name);
  if (!spec) return spawn_for(form, limits);
  const std::scoped_lock lock(elsewhere_->mutex);
  std::shared_ptr<process::Host>& host = elsewhere_->hosts[{form.kernel, form.name}];
  if (!host) {
    if (spec->kind->in_python && !elsewhere_->python) elsewhere_->python = start_python();
    host = process::loaded(spec->kind->in_python ? elsewhere_->python : server_, *spec, form.kernel, form.name,
                           1min + form.patience);
  }
  if (const std::string& trouble = host->forms.front().trouble; !trouble.empty())
    throw CandidateGone("loaded a second time, " + trouble);
  return Process(std::make_unique<process::Child>(host, limits.extra_bytes));
}

std::vector<Array> Workshop::read_archive(const std::filesystem::path& path) const {
  const auto fail = [&](std::string_view reason) {
    return std::runtime_error(fmt::format("cannot read {}: {}", path.string(), visible(reason)));
  };
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe would wait for a writer
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) throw fail(std::strerror(errno));
  if (S_ISDIR(status.st_mode)) throw fail(std::strerror(EISDIR));
  if (!S_ISREG(status.st_mode)) throw fail("it is no regular file");
  if (status.st_size > most_archive_bytes)
    throw fail(fmt::format("it has {} bytes; wanted at most {}", status.st_size, most_archive_bytes));
  process::Child child(server_, Limits{}.extra_bytes);
  const process::Reply reply = child.exchange({{"op", "read_archive"}}, std::array{file.get()}, 60s);
  if (reply.status != Status::ok) throw fail(reply.message);
  const Json& body = reply.content.body;
  if (body.contains("error")) throw fail(body["error"].get<std::string>());
  const protocol::Mapping mapping(reply.content.descriptors.at(0).get(), body.at("bytes").get<std::int64_t>());
  std::vector<Array> arrays;
  for (const Json& tensor : body.at("tensors")) arrays.push_back(read_tensor(mapping, tensor.get<Placement>()));
  return arrays;
}

Answer call(Process& process, const Call& call, std::chrono::milliseconds limit) {
  const RegionPlan plan = process::checked_plan(*process.child_, call);
  const Region region = fill_region(plan, call);
  return process::converse<Answer>(*process.child_, process::request_of("call", call, plan),
                                   std::array{region.memory.get()}, limit,
                                   [&](const Json& body) { return process::read_answer(body, plan, region); });
}

std::vector<Answer> call_together(Process& process, const std::vector<Call>& calls, bool last_first,
                                  std::chrono::milliseconds limit) {
  if (calls.empty() || calls.size() > protocol::most_descriptors)
    throw std::invalid_argument(
        fmt::format("{} calls together: wanted 1 to {}", calls.size(), protocol::most_descriptors));
  std::vector<RegionPlan> plans;
  std::vector<Region> regions;
  std::vector<int> memories;
  Json request{{"op", "together"}, {"last_first", last_first}, {"calls", Json::array()}};
  for (const Call& call : calls) {
    plans.push_back(process::checked_plan(*process.child_, call));
    regions.push_back(fill_region(plans.back(), call));
    memories.push_back(regions.back().memory.get());
    request["calls"].push_back(process::request_of("call", call, plans.back()));
  }
  struct Together {
    Status status = Status::ok;
    std::string message;
    std::vector<Answer> answers;
  };
  Together together = process::converse<Together>(*process.child_, request, memories, limit, [&](const Json& body) {
    Together read;
    for (std::size_t k = 0; k < calls.size(); ++k)
      read.answers.push_back(process::read_answer(body.at("answers").at(k), plans[k], regions[k]));
    return read;
  });
  if (together.status != Status::ok)
    together.answers.assign(calls.size(), Answer{.status = together.status, .message = together.message});
  return std::move(together.answers);
}

FieldAnswer call_over_field(Process& process, const FieldCall& call, std::chrono::milliseconds limit) {
  const Call as_call = bits_of(call);
  const RegionPlan plan = process::checked_plan(*process.child_, as_call);
  const Region region = fill_region(plan, as_call);
  Json request = process::request_of("over_field", as_call, plan);
  request["bits"] = call.bits;
  request["traced"] = call.traced;
  struct Read {
    Status status = Status::ok;
    std::string message, no_device;
    FieldAnswer answer;
  };
  Read read =
      process::converse<Read>(*process.child_, request, std::array{region.memory.get()}, limit, [&](const Json& body) {
        if (body.contains("no_device")) return Read{.no_device = body.at("no_device").get<std::string>()};
        return Read{.answer = read_field_answer(body, plan, region)};
      });
  if (!read.no_device.empty())
    throw std::runtime_error(fmt::format("the device 'field' cannot be opened: {}", visible(read.no_device)));
  return read.status == Status::ok ? std::move(read.answer) : lost_over_field(read.status, read.message);
}

Timing measure(Process& process, const Call& call, int warmup, int runs, std::chrono::milliseconds limit) {
  const RegionPlan plan = process::checked_plan(*process.child_, call);
  const Region region = fill_region(plan, call);
  Json request = process::request_of("measure", call, plan);
  request["warmup"] = warmup;
  request["runs"] = runs;
  return process::converse<Timing>(*process.child_, request, std::array{region.memory.get()}, limit,
                                   [](const Json& body) {
                                     Timing timing;
                                     timing.status = process::status_from(body.at("status").get<std::string>());
                                     timing.message = visible(body.at("message").get<std::string>());
                                     body.at("forward_seconds").get_to(timing.forward_seconds);
                                     body.at("seconds").get_to(timing.seconds);
                                     body.at("resident_before").get_to(timing.resident_before);
                                     body.at("resident_after").get_to(timing.resident_after);
                                     body.at("forward_peak_extra_bytes").get_to(timing.forward_peak_extra_bytes);
                                     body.at("peak_extra_bytes").get_to(timing.peak_extra_bytes);
                                     return timing;
                                   });
}

}  // namespace fractus
