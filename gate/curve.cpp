#include "gate/curve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "gate/archive.h"

namespace fractus::gate {
namespace {

constexpr const char* name = "curve";
constexpr double factor = 0.98;  // of ema_tf
constexpr std::size_t most_shown = 4;

std::size_t places_wanted(double level) { return static_cast<std::size_t>(std::ceil(1 / level - 1e-9)) - 1; }

double level_of(std::size_t series) { return false_alarms / static_cast<double>(questions * series); }

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// At a place: `past` has past_blocks blocks of `width` lines before it.
struct Place {
  double level = 0, slope = 0;  // of the line through the blocks' means; the slope is per block
  double expected = 0;          // where it leads, in the middle of the next block

  Place(std::span<const double> past, std::size_t width) {
    constexpr auto count = static_cast<double>(past_blocks);
    constexpr double centre = (count - 1) / 2;
    std::array<double, past_blocks> means;
    for (std::size_t i = 0; i < past_blocks; ++i) means[i] = mean_of(past.subspan(i * width, width));
    level = mean_of(means);
    // Least squares through (i, means[i]), i = 0 ... 7; the middle of the next block is at 8.
    for (std::size_t i = 0; i < past_blocks; ++i) slope += (static_cast<double>(i) - centre) * means[i];
    slope /= count * (count * count - 1) / 12;
    expected = level + slope * (count - centre);
  }

  double mean_distance(std::span<const double> block) const { return std::fabs(mean_of(block) - expected); }

  double single_distance(std::span<const double> block) const {
    double furthest = 0;
    for (std::size_t i = 0; i < block.size(); ++i) {
      const double at = (static_cast<double>(i) + 0.5) / static_cast<double>(block.size()) - 0.5;
      furthest = std::max(furthest, std::fabs(block[i] - (expected + slope * at)));
    }
    return furthest;
  }

  double late_distance(std::span<const double> block) const { return std::fabs(mean_of(block) - level); }
};

bool finite(const Sample& sample) {
  return std::isfinite(sample.tf) && std::isfinite(sample.ema_tf) && std::isfinite(sample.lb);
}

std::string place_of(const Sample& sample) {
  return sample.step ? fmt::format("step {}", *sample.step) : fmt::format("line {}", sample.line);
}

bool consecutive(const Sample& earlier, const Sample& later) {
  return !earlier.step || !later.step || *later.step == *earlier.step + 1;
}

// Is ema_tf what the one before it and tf give? Printed digits are half a unit off at most, each.
bool follows(const Sample& earlier, const Sample& later) {
  const double given = factor * earlier.ema_tf + (1 - factor) * later.tf;
  const double rounding = 0.5 * (later.ema_unit + factor * earlier.ema_unit + (1 - factor) * later.tf_unit);
  return std::fabs(later.ema_tf - given) <= rounding * (1 + 1e-9) + 1e-6 * std::fabs(later.ema_tf);
}

class Curve {
 public:
  Curve(const std::vector<Sample>& before, const std::vector<Sample>& after) : before_(before), after_(after) {}

  Answer answer() {
    if (before_.empty() || after_.empty()) {
      refuse(
          fmt::format("undecided: no line with tf=, ema_tf= and lb= {} the swap", before_.empty() ? "before" : "after"),
          "give the trainer's log, and the step of the swap as it counts them");
      return std::move(answer_);
    }
    if (!all_finite()) return std::move(answer_);
    const bool exact = check_average();
    std::vector<std::pair<std::string, double Sample::*>> series = {{"tf", &Sample::tf}, {"lb", &Sample::lb}};
    if (!exact) series.emplace_back("ema_tf", &Sample::ema_tf);
    const std::size_t wanted = lines_wanted(series.size());
    if (before_.size() < wanted || after_.size() < least_block) {
      refuse(
          fmt::format("undecided: {} lines before the swap and {} after it, wanted {} and {}", before_.size(),
                      after_.size(), wanted, least_block),
          "give the log from further back, log every step, or let the run go on; without the noise of the run itself "
          "nothing can be said of its curve");
      return std::move(answer_);
    }
    for (const auto& [what, member] : series) check_series(what, member, level_of(series.size()));
    return std::move(answer_);
  }

 private:
  void refuse(std::string fact, std::string remedy) {
    answer_.refusals.push_back({name, std::move(fact), std::move(remedy)});
  }
  void passed(std::string said) { answer_.checked.push_back({name, std::move(said)}); }

  bool all_finite() {
    std::vector<std::string> places;
    for (const auto* part : {&before_, &after_})
      for (const Sample& sample : *part)
        if (!finite(sample))
          places.push_back(fmt::format("{} the swap, {}", part == &before_ ? "before" : "after", place_of(sample)));
    if (places.empty()) {
      passed(fmt::format("no NaN and no infinity in {} lines before and {} after the swap", before_.size(),
                         after_.size()));
      return true;
    }
    refuse(fmt::format("tf, ema_tf or lb is not finite in {} lines, the first {}", places.size(), places.front()),
           "stop the run, go back to the last checkpoint that is finite and to the code before the swap");
    return false;
  }

  // Whether ema_tf's own rule settles it: then it holds nothing that tf does not. A log of every tenth step cannot show
  // the rule; that is seen from the lines before the swap, since no swap can have broken it there.
  bool check_average() {
    std::size_t pairs = 0, broken_before = 0;
    for (std::size_t i = 1; i < before_.size(); ++i)
      if (consecutive(before_[i - 1], before_[i])) {
        ++pairs;
        broken_before += follows(before_[i - 1], before_[i]) ? 0 : 1;
      }
    if (pairs == 0 || broken_before * 500 > pairs) {  // few of them are restarts that are long past
      passed("the lines are not of every step, so ema_tf cannot be computed again, and is held against its own noise");
      return false;
    }
    std::vector<std::string> broken;
    const Sample* earlier = &before_.back();
    const Sample* behind_gap = nullptr;
    for (const Sample& sample : after_) {
      if (!consecutive(*earlier, sample)) {
        if (behind_gap == nullptr) behind_gap = &sample;
      } else if (!follows(*earlier, sample))
        broken.push_back(fmt::format("at {} it is {}, and {:.6g} follows from tf {} and {} before it", place_of(sample),
                                     sample.ema_tf, factor * earlier->ema_tf + (1 - factor) * sample.tf, sample.tf,
                                     earlier->ema_tf));
      earlier = &sample;
    }
    if (!broken.empty()) {
      const std::size_t all = broken.size();
      broken.resize(std::min(all, most_shown));
      refuse(fmt::format("ema_tf breaks its own rule in {} lines after the swap: {}", all, fmt::join(broken, "; ")),
             "carry ema_tf over the swap: it is part of the run's state, and is not begun anew");
    }
    if (behind_gap != nullptr) {  // what is behind a gap follows from lines that nobody sees
      passed(fmt::format("the log lacks the lines right before step {}, so ema_tf is held against its own noise",
                         *behind_gap->step));
      return false;
    }
    if (broken.empty())
      passed(fmt::format("ema_tf follows from tf by its factor {}, through the swap and {} lines on", factor,
                         after_.size()));
    return true;
  }

  void check_series(const std::string& what, double Sample::*member, double level) {
    const auto values = [&](const std::vector<Sample>& samples) {
      std::vector<double> result;
      for (const Sample& sample : samples) result.push_back(sample.*member);
      return result;
    };
    const Continuity found =
        *continuity(values(before_), values(after_), level);  // enough lines: that was asked before
    const std::string text = fmt::format(
        "{}: mean {:.6g} of the first {} lines after the swap, expected {:.6g} (p {:.2g}, furthest line p {:.2g}, of "
        "{} "
        "places before); mean {:.6g} of the last of {} lines, {:.6g} before the swap (p {:.2g})",
        what, found.mean, found.block, found.expected, found.mean_p, found.single_p, found.places, found.late_mean,
        found.reach, found.level, found.late_p);
    if (found.reach < after_.size())
      refuse(fmt::format("undecided: {}: the lines before the swap measure {} lines behind it, and there are {}", what,
                         found.reach, after_.size()),
             fmt::format("give the log from further back, {} lines more; or a log that ends after {} lines",
                         after_.size() - found.reach, found.reach));
    if (!found.refused_at(level))
      passed(fmt::format("{}; level {:.2g} each, {:.2g} in all{}", text, level, false_alarms,
                         found.reach > 2 * found.block
                             ? "; what was over again between the first block and the last is not seen"
                             : ""));
    else
      refuse(fmt::format("{}; refused at {:.2g}, and a run without a change is refused in {:.2g} of all checks", text,
                         level, false_alarms),
             "go back to the code before the swap; the run does not go on within its own noise");
  }

  const std::vector<Sample>&before_, &after_;
  Answer answer_;
};

// Lines of steps that were run again later are no longer of the run.
std::vector<Sample> one_run(const std::vector<Sample>& samples) {
  std::vector<Sample> run;
  for (const Sample& sample : samples) {
    while (sample.step && !run.empty() && *run.back().step >= *sample.step) run.pop_back();
    run.push_back(sample);
  }
  return run;
}

// A new run that goes back in its own steps was itself begun again, and which part is to be judged is not said.
std::optional<Refusal> goes_back(const std::vector<Sample>& after, std::int64_t to) {
  for (std::size_t i = 1; i < after.size(); ++i)
    if (after[i].step && *after[i].step <= *after[i - 1].step && *after[i].step > to)
      return Refusal{name,
                     fmt::format("the steps go back from {} to {} after the swap, at line {}", *after[i - 1].step,
                                 *after[i].step, after[i].line),
                     "give the log of one run after the swap, or the step of the last swap"};
  return std::nullopt;
}

}  // namespace

std::size_t lines_wanted(std::size_t series) { return (places_wanted(level_of(series)) + past_blocks) * least_block; }

std::optional<Continuity> continuity(std::span<const double> before, std::span<const double> after, double level) {
  const std::size_t wanted = places_wanted(level), whole = wanted + past_blocks;
  if (after.size() < least_block || before.size() < whole * least_block) return std::nullopt;
  Continuity found;
  // Half of the lines before are for the blocks, and half for as many lines behind each of them as there are behind the
  // swap.
  found.block = std::max(least_block, std::min(after.size(), before.size() / (2 * whole)));
  found.reach = std::min(after.size(), before.size() - (whole - 1) * found.block);
  const std::size_t width = found.block, past = past_blocks * width, late = found.reach - width;
  const auto place_at = [&](std::size_t at) { return Place(before.subspan(at - past, past), width); };
  const Place here = place_at(before.size());
  found.mean = mean_of(after.first(width));
  found.expected = here.expected;
  found.late_mean = mean_of(after.subspan(late, width));
  found.level = here.level;
  // A series that stands still has distances that are the rounding of these sums.
  const double nothing = 1e-9 * std::fabs(here.expected);
  const double mean = here.mean_distance(after.first(width)) - nothing,
               single = here.single_distance(after.first(width)) - nothing,
               last = here.late_distance(after.subspan(late, width)) - nothing;
  std::size_t means = 0, singles = 0, lasts = 0;
  found.places = wanted;
  for (std::size_t i = 0; i < found.places; ++i) {
    const std::size_t at = before.size() - (i + 1) * width, of_late = before.size() - found.reach - i * width;
    const Place there = place_at(at);
    means += there.mean_distance(before.subspan(at, width)) >= mean ? 1 : 0;
    singles += there.single_distance(before.subspan(at, width)) >= single ? 1 : 0;
    lasts += place_at(of_late).late_distance(before.subspan(of_late + late, width)) >= last ? 1 : 0;
  }
  const auto rank = [&](std::size_t as_far) {
    return static_cast<double>(as_far + 1) / static_cast<double>(found.places + 1);
  };
  found.mean_p = rank(means);
  found.single_p = rank(singles);
  found.late_p = rank(lasts);
  return found;
}

Answer check_curve(const std::vector<Sample>& before, const std::vector<Sample>& after) {
  return Curve(before, after).answer();
}

Answer check_curve(const CurveQuestion& question) {
  Answer answer;
  std::vector<Sample> before, after;
  try {
    before = samples_of(question.log);
    if (question.log_after) after = samples_of(*question.log_after);
  } catch (const std::exception& e) {
    answer.refusals.push_back(
        {name, e.what(), "give the trainer's log as it wrote it, with tf=, ema_tf= and lb= in each of its lines"});
    return answer;
  }
  if (!question.log_after) {
    if (!question.swap) throw std::invalid_argument("a curve in one log needs the swap's place");
    const std::vector<Sample> all = std::move(before);
    before.clear();
    for (std::size_t i = 0; i < all.size(); ++i)
      (all[i].step.value_or(static_cast<std::int64_t>(i) + 1) < *question.swap ? before : after).push_back(all[i]);
  } else if (!before.empty() && !after.empty() && before.front().step.has_value() != after.front().step.has_value()) {
    answer.refusals.push_back(
        {name, "step= stands in one of the logs and not in the other", "give two logs of one trainer"});
    return answer;
  }
  const std::int64_t first = question.swap.value_or(after.empty() || !after.front().step ? 0 : *after.front().step);
  if (auto refusal = goes_back(after, first)) answer.refusals.push_back(std::move(*refusal));
  if (!answer.refusals.empty()) return answer;
  std::vector<Sample> run = one_run(after);
  if (run.size() < after.size()) {
    answer.checked.push_back(
        {name, fmt::format("{} lines of steps that ran again are taken for those of the code before the swap",
                           after.size() - run.size())});
    // Whose they are the log does not say, and a NaN among them may be why they ran again.
    const auto bad = std::find_if_not(after.begin(), after.end(), finite);
    if (bad != after.end() && std::all_of(run.begin(), run.end(), finite))
      answer.refusals.push_back(
          {name,
           fmt::format("tf, ema_tf or lb is not finite at line {}, of a step behind the swap that ran again",
                       bad->line),
           "find out which code wrote it: where it was the one before the swap, give two logs"});
  }
  after = std::move(run);
  if (!after.empty() && after.front().step)
    std::erase_if(before, [&](const Sample& sample) { return *sample.step >= *after.front().step; });
  answer.add(check_curve(one_run(before), after));
  return answer;
}

}  // namespace fractus::gate
