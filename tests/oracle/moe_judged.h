// A form's answer to a question, judged as the harness judges it.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "tests/oracle/moe_forms.h"

namespace fractus::oracle::moe {

// A run's tensors in the order of the expected ones: out, lb, gradients by input.
inline std::vector<Array> outputs_of(const std::vector<double>& out, double lb, const Question& question) {
  return {Array{"out", question.dtype, question.inputs[0]->shape, out}, Array{"lb", question.dtype, {}, {lb}}};
}

template <class T, class R>
std::vector<double> doubles(const std::vector<R>& x) {
  std::vector<double> result;
  for (const R& one : x) result.push_back(static_cast<double>(static_cast<T>(one)));
  return result;
}

// A form's answer in the judged type T, evaluated in R.
template <class T>
struct Answered {
  std::vector<Array> outputs;
  std::map<std::string, std::vector<double>> gradients;
};
template <class T, class R = T>
Answered<T> answered(const Question& question, const Form& form) {
  const Evaluated<R> run = Mixture<R>(question, form).run();
  Answered<T> answer{outputs_of(doubles<T>(run.out), static_cast<double>(static_cast<T>(run.lb)), question), {}};
  for (const auto& [name, gradient] : run.gradients) answer.gradients[name] = doubles<T>(gradient);
  return answer;
}

struct Tally {
  double elements = 0, undecidable = 0, ratio = 0;
  std::string worst = "none";

  std::string text() const {
    return fmt::format("{:.0f} elements, {:.0f} undecidable; worst error/tolerance {:.3f} of {}\n", elements,
                       undecidable, ratio, worst);
  }
};

// The first element that is not equal; undecidable ones are counted alone.
inline std::string refusal(const Expected& expected, const ExpectedTensor& tensor, const ExpectedTensor& either,
                           const std::vector<double>& got, Tally& tally) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    ++tally.elements;
    const Judgement judgement = judge(tensor, either, expected.radius_per_tolerance, i, got[i]);
    if (judgement.verdict == Verdict::undecidable) ++tally.undecidable;
    if (judgement.ratio > tally.ratio && judgement.verdict != Verdict::undecidable) {
      tally.ratio = judgement.ratio;
      tally.worst = tensor.name;
    }
    if (judgement.verdict == Verdict::different)
      return fmt::format("{}[{}]: got {}, value {}, tolerance {}, ratio {}", tensor.name, i, got[i], tensor.value[i],
                         tensor.tolerance[i], judgement.ratio);
  }
  return "";
}

template <class T>
std::string refusal(Question question, const Answered<T>& answer, Tally& tally) {
  question.answered = &answer.outputs;
  const Expected expected = moe::expected(question);
  for (std::size_t i = 0; i < 2; ++i)
    if (auto text = refusal(expected, expected.outputs[i], expected.outputs[i], answer.outputs[i].values, tally);
        !text.empty())
      return text;
  for (std::size_t i = 0; i < expected.gradients.size(); ++i)
    if (expected.gradients[i])
      if (auto text = refusal(expected, *expected.gradients[i],
                              *(expected.room.empty() ? expected.gradients : expected.room)[i],
                              answer.gradients.at(question.inputs[i]->name), tally);
          !text.empty())
        return text;
  return "";
}

}  // namespace fractus::oracle::moe
