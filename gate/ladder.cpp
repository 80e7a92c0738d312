#include "gate/ladder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "attest/files.h"
#include "attest/strict_json.h"
#include "gate/archive.h"

namespace fractus::gate {
namespace {

using nlohmann::json;

constexpr const char* name = "ladder";
constexpr std::size_t most_steps = 64, most_proofs = 64, most_artifacts = 256, most_path_bytes = 4096;

class Reader {
 public:
  Reader(std::string name, std::filesystem::path folder) : name_(std::move(name)), folder_(std::move(folder)) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(fmt::format("{}: {}", name_, what));
  }

  // An unknown member may be a known one misspelt, and what it was to say would be lost.
  void require_members(const json& object, const std::string& place, const std::vector<std::string>& wanted) const {
    if (!object.is_object()) fail(fmt::format("{} is no object", place));
    for (const auto& [key, held] : object.items())
      if (std::find(wanted.begin(), wanted.end(), key) == wanted.end())
        fail(fmt::format("{} has an unknown member {}; its members are {}", place, in_quotes(key),
                         fmt::join(wanted, ", ")));
    for (const std::string& key : wanted)
      if (!object.contains(key)) fail(fmt::format("{} has no '{}'", place, key));
  }

  const json& list(const json& value, const std::string& place, std::size_t most) const {
    if (!value.is_array() || value.empty() || value.size() > most)
      fail(fmt::format("{} is no list of 1 to {}", place, most));
    return value;
  }

  std::filesystem::path path(const json& value, const std::string& place) const {
    if (!value.is_string()) fail(fmt::format("{} is no path", place));
    const std::string& text = value.get_ref<const std::string&>();
    if (text.empty() || text.size() > most_path_bytes || text.find('\0') != text.npos)
      fail(fmt::format("{} is no path: {}", place, in_quotes(text)));
    return folder_ / text;
  }

  Proof proof(const json& value, const std::string& place) const {
    require_members(value, place, {"envelope", "artifacts"});
    Proof proof{.envelope = path(value["envelope"], place + ".envelope")};
    for (const json& artifact : list(value["artifacts"], place + ".artifacts", most_artifacts))
      proof.artifacts.push_back(path(artifact, place + ".artifacts"));
    return proof;
  }

  Step step(const json& value, const std::string& place) const {
    require_members(value, place, {"step", "done", "proofs"});
    if (!value["step"].is_string()) fail(fmt::format("{}.step is no text", place));
    if (!value["done"].is_boolean()) fail(fmt::format("{}.done is neither true nor false", place));
    Step step{.name = value["step"].get<std::string>(), .done = value["done"].get<bool>()};
    for (const json& one : list(value["proofs"], place + ".proofs", most_proofs))
      step.proofs.push_back(proof(one, fmt::format("{}.proofs[{}]", place, step.proofs.size())));
    return step;
  }

 private:
  std::string name_;
  std::filesystem::path folder_;
};

constexpr std::size_t rungs = std::size(ladder);

std::size_t place_of(const std::string& step) {
  return static_cast<std::size_t>(
      std::find_if(std::begin(ladder), std::end(ladder), [&](const Rung& rung) { return step == rung.step; }) - ladder);
}

std::string text_in(const json& predicate, const char* key) {
  const auto found = predicate.find(key);
  return found != predicate.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string order_text() {
  std::vector<std::string> names;
  for (const Rung& rung : ladder) names.emplace_back(rung.step);
  return fmt::format("{}", fmt::join(names, ", "));
}

void check_order(const std::vector<Step>& steps, Answer& answer) {
  const std::size_t before = answer.refusals.size();
  const std::string remedy = "take the steps in this order, each once: " + order_text();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::size_t place = place_of(steps[i].name);
    if (place == i && place < rungs) continue;
    const auto earlier = std::find_if(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(i),
                                      [&](const Step& step) { return step.name == steps[i].name; });
    std::string fact;
    if (place == rungs)
      fact = "is no step of the escalation";
    else if (earlier != steps.begin() + static_cast<std::ptrdiff_t>(i))
      fact = "is there twice";
    else if (i < rungs)
      fact =
          fmt::format("is {}, and {} is to be taken there", place > i ? "too early" : "out of order", ladder[i].step);
    else
      fact = "is beyond the last step";
    answer.refusals.push_back({name, fmt::format("step {}: {} {}", i + 1, in_quotes(steps[i].name), fact), remedy});
  }
  for (std::size_t i = 0; i + 1 < steps.size(); ++i)
    if (!steps[i].done)
      answer.refusals.push_back(
          {name,
           fmt::format("step {}: {} is not done, and {} is to be taken after it", i + 1, in_quotes(steps[i].name),
                       in_quotes(steps[i + 1].name)),
           "one step at a time: watch the curve after it, and set done once the run went on as before"});
  if (answer.refusals.size() == before)
    answer.checked.push_back({name, fmt::format("{} of {} steps, in order; {} {}", steps.size(), rungs,
                                                steps.back().name, steps.back().done ? "is done" : "is to be taken")});
}

}  // namespace

std::vector<Step> steps_from(std::string_view text, const std::string& file_name, const std::filesystem::path& folder) {
  const json parsed = attest::strict_json(text, file_name, {.bytes = 4 << 20, .values = 100'000, .depth = 16});
  const Reader reader(file_name, folder);
  reader.require_members(parsed, "the state", {"format", "steps"});
  if (parsed["format"] != ladder_format) reader.fail(fmt::format("format is not \"{}\"", ladder_format));
  std::vector<Step> steps;
  for (const json& one : reader.list(parsed["steps"], "steps", most_steps))
    steps.push_back(reader.step(one, fmt::format("steps[{}]", steps.size())));
  return steps;
}

Answer check_ladder(const std::filesystem::path& file, const Admit& admit) {
  Answer answer;
  std::vector<Step> steps;
  try {
    steps = steps_from(read_whole(file), in_quotes(file.string()), file.parent_path());
  } catch (const std::exception& e) {
    answer.refusals.push_back({name, e.what(), "write the state as docs/open-heart.md shows it"});
    return answer;
  }
  check_order(steps, answer);
  std::map<std::string, std::string> served;  // what a proof is about: the step that it stands under
  for (const Step& step : steps) {
    const std::size_t before = answer.refusals.size(), place = place_of(step.name);
    const char* wanted = place < rungs ? ladder[place].kernel : nullptr;
    bool has_kernel = wanted == nullptr;
    for (const Proof& proof : step.proofs) {
      const Admission admission = admit(proof.envelope, proof.artifacts);
      const std::string where =
          fmt::format("step {}, envelope {}", in_quotes(step.name), in_quotes(proof.envelope.string()));
      for (const Refusal& refusal : admission.answer.refusals)
        answer.refusals.push_back(
            {name, fmt::format("{}: {}: {}", where, refusal.check, refusal.fact), refusal.remedy});
      if (!admission.answer.admitted()) {
        if (admission.answer.refusals.empty())
          answer.refusals.push_back({name, where + ": nothing in it was checked", "give an envelope of --sign"});
        continue;
      }
      const std::string kernel = text_in(admission.predicate, "kernel");
      has_kernel = has_kernel || kernel == wanted;
      // The same form under two steps would let a step pass on what was proven for another one.
      std::set<std::string> digests;
      for (const Artifact& artifact : admission.artifacts) digests.insert(artifact.digest.hex);
      const json about = {
          {"kernel", kernel}, {"candidate", text_in(admission.predicate, "candidate")}, {"bytes", digests}};
      if (const auto [first, fresh] = served.emplace(about.dump(), step.name); !fresh)
        answer.refusals.push_back(
            {name, fmt::format("{}: the same form stands under step {} already", where, in_quotes(first->second)),
             "verify the form that this step brings, and give its own envelope"});
    }
    if (!has_kernel && answer.refusals.size() == before)
      answer.refusals.push_back(
          {name, fmt::format("step {}: none of its envelopes is about {}", in_quotes(step.name), wanted),
           fmt::format("verify the form of {} that this step brings", wanted)});
    if (answer.refusals.size() == before)
      answer.checked.push_back(
          {name, fmt::format("step {}: {} admitted", in_quotes(step.name),
                             step.proofs.size() == 1 ? std::string("its envelope is")
                                                     : fmt::format("its {} envelopes are", step.proofs.size()))});
  }
  return answer;
}

}  // namespace fractus::gate
