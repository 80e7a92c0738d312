#include "harness/attached.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace fractus {
namespace {

// A call has as many operations as one over floats, and a product costs 20 times as much; the first opens the device.
constexpr std::chrono::milliseconds time_limit_over_field{30'000};

}  // namespace

Attached::Attached(const Workshop& workshop, FormInfo form, std::map<std::string, std::int64_t> settings)
    : workshop_(workshop), form_(std::move(form)), settings_(std::move(settings)) {
  if (form_.recomputes.empty()) return;
  const FormInfo* plain = workshop.find_form(form_.kernel, form_.recomputes);
  if (plain == nullptr)
    throw std::runtime_error(fmt::format("{} declares that it runs '{}' again, and {} has no such form", form_.name,
                                         form_.recomputes, form_.kernel));
  std::map<std::string, std::int64_t> shared;  // what both have is to be the same
  for (const auto& [parameter, value] : settings_)
    if (plain->settings.contains(parameter)) shared[parameter] = value;
  plain_ = std::make_unique<Attached>(workshop, *plain, std::move(shared));
}

std::vector<Answer> Attached::answers(std::size_t count, const std::function<std::vector<Answer>(Process&)>& ask) {
  try {
    if (!process_ || !process_->alive()) process_.emplace(workshop_.spawn_for(form_));
  } catch (const CandidateGone& error) {
    // A form from outside may end the process that its own are forked from; what follows is its failure, not ours.
    ++deaths_;
    return std::vector<Answer>(count, Answer{.status = Status::crashed, .message = error.what()});
  }
  std::vector<Answer> all = ask(*process_);
  if (!process_->alive()) ++deaths_;
  return all;
}

std::chrono::milliseconds Attached::limit(const Call& call) const { return time_limit(call) + form_.patience; }

Subject Attached::subject() {
  Subject subject;
  subject.form = form_.name;
  subject.settings = form_.settings;
  for (const auto& [parameter, value] : settings_) subject.settings[parameter] = value;
  subject.bit_equal_reruns = form_.bit_equal_reruns;
  subject.bit_equal_threads = form_.bit_equal_threads;
  subject.bit_equal_neighbours = form_.bit_equal_neighbours;
  subject.call = [this](const Call& request) {
    return answers(1, [&](Process& process) { return std::vector{call(process, request, limit(request))}; }).front();
  };
  subject.call_together = [this](const std::vector<Call>& calls, bool last_first) {
    std::chrono::milliseconds together{0};
    for (const Call& each : calls) together += limit(each);
    return answers(calls.size(), [&](Process& process) { return call_together(process, calls, last_first, together); });
  };
  subject.call_fresh = [this](const std::vector<Call>& requests) {
    return fresh().answers(1, [&](Process& process) {
      std::vector<Answer> all;
      for (const Call& request : requests) {
        all.push_back(call(process, request, limit(request)));
        if (!process.alive()) break;
      }
      return all;
    });
  };
  if (plain_)
    subject.call_plain = [plain = plain_->subject()](Call request) {
      request.form = plain.form;
      request.settings = plain.settings;
      return plain.call(request);
    };
  subject.call_elsewhere = [this](const Call& request) -> Answer {
    try {
      Process process = workshop_.spawn_elsewhere(form_);
      return call(process, request, limit(request));
    } catch (const CandidateGone& error) {
      return {.status = Status::crashed, .message = error.what()};
    }
  };
  subject.call_over_field = [this](const FieldCall& request) -> FieldAnswer {
    try {
      if (!over_field_ || !over_field_->alive()) over_field_.emplace(workshop_.spawn_for(form_));
      return call_over_field(*over_field_, request, time_limit_over_field + form_.patience);
    } catch (const CandidateGone& error) {
      return {.status = FieldStatus::failed, .message = error.what()};
    }
  };
  subject.declared_elements = [this, settings = subject.settings](const Dims& dims) {
    return workshop_.extra_elements(form_.kernel, form_.name, dims, settings);
  };
  return subject;
}

std::string Attached::output_tail() { return process_ ? process_->output_tail() : std::string(); }

std::chrono::milliseconds time_limit(const Call& call) {
  // 10 s for small calls, and 20 us an element above that: 70 s at the training run's shape.
  return std::chrono::milliseconds(10'000 + static_cast<std::int64_t>(value_count(call.inputs)) / 50);
}

}  // namespace fractus
