#include "harness/attached.h"

#include <utility>

namespace fractus {

Attached::Attached(const Workshop& workshop, FormInfo form, std::map<std::string, std::int64_t> settings)
    : workshop_(workshop), form_(std::move(form)), settings_(std::move(settings)) {}

void Attached::revive() {
  if (!process_ || !process_->alive()) process_.emplace(workshop_.spawn_for(form_));
}

namespace {

// A form from outside may end the process that its own are forked from; what follows is its failure, not ours.
Answer gone(const CandidateGone& error) { return {.status = Status::crashed, .message = error.what()}; }

}  // namespace

Answer Attached::answer(const Call& request) {
  try {
    revive();
  } catch (const CandidateGone& error) {
    ++deaths_;
    return gone(error);
  }
  Answer answer = call(*process_, request, time_limit(request) + form_.patience);
  if (!process_->alive()) ++deaths_;
  return answer;
}

Subject Attached::subject() {
  Subject subject;
  subject.form = form_.name;
  subject.settings = form_.settings;
  for (const auto& [parameter, value] : settings_) subject.settings[parameter] = value;
  subject.bit_equal_reruns = form_.bit_equal_reruns;
  subject.bit_equal_threads = form_.bit_equal_threads;
  subject.bit_equal_neighbours = form_.bit_equal_neighbours;
  subject.call = [this](const Call& request) { return answer(request); };
  subject.call_together = [this](const std::vector<Call>& calls, bool last_first) {
    try {
      revive();
    } catch (const CandidateGone& error) {
      ++deaths_;
      return std::vector<Answer>(calls.size(), gone(error));
    }
    std::chrono::milliseconds limit{0};
    for (const Call& each : calls) limit += time_limit(each) + form_.patience;
    std::vector<Answer> answers = call_together(*process_, calls, last_first, limit);
    if (!process_->alive()) ++deaths_;
    return answers;
  };
  subject.call_fresh = [this](const std::vector<Call>& requests) {
    std::vector<Answer> answers;
    std::optional<Process> spawned;
    try {
      spawned.emplace(workshop_.spawn_for(form_));
    } catch (const CandidateGone& error) {
      return std::vector<Answer>{gone(error)};
    }
    Process& fresh = *spawned;
    for (const Call& request : requests) {
      answers.push_back(call(fresh, request, time_limit(request) + form_.patience));
      if (!fresh.alive()) break;
    }
    return answers;
  };
  subject.declared_elements = [this, settings = subject.settings](const Dims& dims) {
    return workshop_.extra_elements(form_.kernel, form_.name, dims, settings);
  };
  return subject;
}

std::string Attached::output_tail() { return process_ ? process_->output_tail() : std::string(); }

std::chrono::milliseconds time_limit(const Call& call) {
  std::size_t elements = 0;
  for (const auto& input : call.inputs)
    if (input) elements += input->values.size();
  // 10 s for small calls, and 20 us an element above that: 70 s at the training run's shape.
  return std::chrono::milliseconds(10'000 + static_cast<std::int64_t>(elements) / 50);
}

}  // namespace fractus
