// Does a run go on as it was? How often the answer is wrong, in both directions, is measured here.
#include "gate/curve.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <random>
#include <sstream>

#include "tests/gate/example.h"

namespace fractus::gate {
namespace {

using Series = std::vector<double>;
using Noise = std::function<void(Series&, std::mt19937_64&)>;

void independent(Series& x, std::mt19937_64& random) {
  std::normal_distribution<> normal;
  for (double& value : x) value = normal(random);
}

void heavy(Series& x, std::mt19937_64& random) {
  std::student_t_distribution<> student(3);
  for (double& value : x) value = student(random);
}

Noise remembering(double r) {
  return [r](Series& x, std::mt19937_64& random) {
    std::normal_distribution<> normal;
    double state = normal(random);
    for (double& value : x) value = state = r * state + std::sqrt(1 - r * r) * normal(random);
  };
}

// What is added behind the swap, in units of the noise: to all lines, to the first, and growing up to the last line.
struct Change {
  double shift = 0, spike = 0, drift = 0;
};

// A share of `runs` curves that fall as 8 (start + step)^-0.3, with noise of 0.2 around it, that are refused.
double refused(int runs, const Noise& noise, const Change& change = {}, double level = false_alarms / 6,
               std::size_t times = 1, double start = 100) {
  std::mt19937_64 random(7);
  const std::size_t before = times * lines_wanted(2), after = times == 1 ? least_block : 1000;
  int count = 0;
  for (int run = 0; run < runs; ++run) {
    Series x(before + after);
    noise(x, random);
    x[before] += change.spike;
    for (std::size_t i = before; i < x.size(); ++i)
      x[i] += change.shift + change.drift * static_cast<double>(i - before) / static_cast<double>(after);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 8 * std::pow(start + static_cast<double>(i), -0.3) + 0.2 * x[i];
    count += continuity(std::span(x).first(before), std::span(x).subspan(before), level)->refused_at(level) ? 1 : 0;
  }
  return static_cast<double>(count) / runs;
}

// Protects a run that goes on as it was: three questions of 0.02 / 6 refuse 0.01 of such runs at most, whatever the
// noise. 0.02 is more than three standard deviations of 1000 runs above that.
TEST(Curve, FalseAlarmsStayAtTheirLevel) {
  EXPECT_LE(refused(400, independent), 0.03);
  EXPECT_LE(refused(400, heavy), 0.03);
  EXPECT_LE(refused(400, remembering(0.5)), 0.03);
  EXPECT_LE(refused(400, remembering(0.9)), 0.03);
  EXPECT_LE(refused(400, remembering(0.98)), 0.03);
  EXPECT_LE(refused(200, remembering(0.9), {}, false_alarms / 6, 2, 1e5), 0.03);
  // The same at a level where a wrong rank would show: three questions of 0.1, some of them alike.
  const double often = refused(400, independent, {}, 0.1, 1, 1e5);
  EXPECT_GT(often, 0.1);
  EXPECT_LT(often, 0.33);
}

// Protects the run from a swap that changes it: what is found how often, at the fewest lines that are taken.
TEST(Curve, ChangesAreFound) {
  EXPECT_GT(refused(100, independent, {.shift = 1.5}), 0.85);
  EXPECT_EQ(refused(100, independent, {.shift = 2.5}), 1);
  EXPECT_EQ(refused(100, independent, {.shift = -2.5}), 1);  // a fall that the run did not have is as strange as a rise
  EXPECT_GT(refused(100, independent, {.spike = 6}), 0.9);
  EXPECT_EQ(refused(100, independent, {.spike = 12}), 1);
  // What a wrong gradient does: nothing at first, and more with each step.
  EXPECT_GT(refused(100, independent, {.drift = 1.5}, false_alarms / 6, 2, 1e5), 0.85);
}

// A trainer and its log.
struct Trainer {
  std::mt19937_64 random{3};
  double ema = 0;
  int digits = 4;
  std::vector<Sample> samples;
  std::string text;

  void step(std::int64_t number, double tf, double lb) {
    ema = samples.empty() && ema == 0 ? tf : 0.98 * ema + 0.02 * tf;
    const std::string line = fmt::format("[12:00:01] step={} tf={:.{}f} | ema_tf={:.{}f} lb={:.{}f} tok/s=1554\n",
                                         number, tf, digits, ema, digits, lb, digits);
    text += line;
    std::istringstream in(line);
    samples.push_back(samples_from(in, "log").at(0));
  }
  void run(std::int64_t from, std::int64_t to, double shift = 0, double lb_shift = 0) {
    std::normal_distribution<> normal;
    for (std::int64_t i = from; i < to; ++i)
      step(i, 8 * std::pow(100.0 + static_cast<double>(i), -0.3) + 0.2 * normal(random) + shift,
           14.028 + 0.02 * normal(random) + lb_shift);
  }
};

constexpr std::int64_t swap_step = 5000, last_step = 5040;

Answer judged(const Trainer& trainer, std::int64_t swap = swap_step) {
  const Folder folder;
  return check_curve(CurveQuestion{.log = folder.put("train.log", trainer.text), .swap = swap});
}

Trainer steady() {
  Trainer trainer;
  trainer.run(1, last_step);
  return trainer;
}

// Protects: a log of a run that goes on is let through, with its exact rule for ema_tf, in one log and in two, and
// where the new run takes up a step that the old one had gone beyond.
TEST(Curve, AdmitsARunThatGoesOn) {
  const Answer answer = judged(steady());
  EXPECT_TRUE(answer.admitted()) << text_of(answer);
  EXPECT_EQ(answer.checked.size(), 4u);

  Trainer old, fresh;
  old.run(1, swap_step);
  fresh.ema = old.ema, fresh.random = old.random;
  old.run(swap_step, swap_step + 7);  // steps after the checkpoint, which the new code runs again
  fresh.run(swap_step, last_step);
  const Folder folder;
  const Answer two =
      check_curve(CurveQuestion{.log = folder.put("a.log", old.text), .log_after = folder.put("b.log", fresh.text)});
  EXPECT_TRUE(two.admitted()) << text_of(two);
  const Answer one = check_curve(CurveQuestion{.log = folder.put("c.log", old.text + fresh.text), .swap = swap_step});
  EXPECT_TRUE(one.admitted()) << text_of(one);
}

// Protects: each way in which a swap breaks the curve, on its own.
TEST(Curve, RefusesEachBreak) {
  Trainer worse;
  worse.run(1, swap_step), worse.run(swap_step, last_step, 0.5);
  expect_one(judged(worse), "curve", "tf: mean");

  Trainer balance;
  balance.run(1, swap_step), balance.run(swap_step, last_step, 0, 0.1);
  expect_one(judged(balance), "curve", "lb: mean");

  Trainer reset;
  reset.run(1, swap_step);
  reset.ema = 0.9 * reset.ema;
  reset.run(swap_step, last_step);
  expect_one(judged(reset), "curve", "ema_tf breaks its own rule in 1 lines after the swap: at step 5000");

  Trainer broken;
  broken.run(1, swap_step + 3), broken.step(swap_step + 3, std::nan(""), 14), broken.run(swap_step + 4, last_step);
  expect_one(judged(broken), "curve", "not finite in 37 lines, the first after the swap, step 5003");

  Trainer again = steady();
  again.run(swap_step + 5, last_step);
  expect_one(judged(again), "curve", "the steps go back from 5039 to 5005");

  Trainer rerun;
  rerun.run(1, swap_step), rerun.step(swap_step, std::nan(""), 14);
  rerun.ema = rerun.samples[swap_step - 2].ema_tf;
  rerun.run(swap_step, last_step);
  expect_one(judged(rerun), "curve", "not finite at line 5000, of a step behind the swap that ran again");

  // An average that is begun anew, in a log that lacks the very lines that would show it.
  Trainer anew, thinned;
  anew.run(1, swap_step);
  thinned.text = anew.text;
  anew.ema = 9;
  anew.run(swap_step, swap_step + 80);
  for (std::size_t i = swap_step; i < anew.samples.size(); i += 2) {
    const Sample& s = anew.samples[i];
    thinned.text += fmt::format("step={} tf={} ema_tf={} lb={}\n", *s.step, s.tf, s.ema_tf, s.lb);
  }
  const Answer answer = judged(thinned);
  EXPECT_FALSE(answer.admitted());
  EXPECT_EQ(text_of(answer).find("ema_tf follows"), std::string::npos);
}

// Protects: with too little to go by nothing is admitted, and the lines that are wanted are named.
TEST(Curve, TooFewLinesAreUndecided) {
  expect_one(judged(steady(), 4000), "curve",
             "undecided: 3999 lines before the swap and 1040 after it, wanted 4912 and 16");
  expect_one(judged(steady(), last_step - 3), "curve", "and 3 after it");
  expect_one(judged(steady(), last_step + 10), "curve", "no line with tf=, ema_tf= and lb= after the swap");
  expect_one(judged(steady(), 0), "curve", "before the swap");

  Trainer far;  // 4999 lines before the swap measure 103 behind it
  far.run(1, swap_step + 200);
  const Answer answer = judged(far);
  ASSERT_EQ(answer.refusals.size(), 2u) << text_of(answer);
  EXPECT_NE(
      answer.refusals[0].fact.find("tf: the lines before the swap measure 103 lines behind it, and there are 200"),
      std::string::npos)
      << text_of(answer);
}

// Protects: a log of every tenth step, where ema_tf cannot be computed again, is held against its own noise, and a
// reset is found there too.
TEST(Curve, SparseLogs) {
  const auto sparse = [](double ema_factor) {
    Trainer all, kept;
    all.run(100'001, 180'001);
    all.ema *= ema_factor;
    all.run(180'001, 180'401);
    for (std::size_t i = 9; i < all.samples.size(); i += 10) {
      const Sample& s = all.samples[i];
      kept.text += fmt::format("step={} tf={} ema_tf={} lb={}\n", *s.step, s.tf, s.ema_tf, s.lb);
    }
    return judged(kept, 180'010);
  };
  const Answer same = sparse(1);
  EXPECT_TRUE(same.admitted()) << text_of(same);
  EXPECT_NE(same.checked[1].said.find("not of every step"), std::string::npos);
  expect_one(sparse(0), "curve", "ema_tf: mean");
}

// Protects: a curve that stands still is no alarm by the rounding of its sums, and one that then moves is.
TEST(Curve, AConstantSeries) {
  const Series constant(4000, 14.028);
  Series moved(20, 14.028);
  EXPECT_EQ(continuity(constant, moved, 0.01)->mean_p, 1);
  for (double& value : moved) value += 0.001;
  EXPECT_TRUE(continuity(constant, moved, 0.01)->refused_at(0.01));
}

std::vector<Sample> read(const std::string& text) {
  std::istringstream in(text);
  return samples_from(in, "log");
}

std::string log_fault(const std::string& text) {
  try {
    read(text);
  } catch (const std::runtime_error& fault) {
    return fault.what();
  }
  return "";
}

// Protects: what a line says is read whole or refused by its number; nothing is taken for what it is not.
TEST(CurveLog, ReadsFields) {
  const auto samples =
      read("hello\nema_tf=4.25, tf=4.5 lb=1.4e1 other_tf=9\r\nx tf=nan ema_tf=-inf lb=14\ncut tf=4 ema_tf=4 lb=1");
  ASSERT_EQ(samples.size(), 2u);  // the last line has no end
  EXPECT_EQ(samples[0].tf, 4.5);
  EXPECT_EQ(samples[0].ema_tf, 4.25);
  EXPECT_EQ(samples[0].lb, 14);
  EXPECT_DOUBLE_EQ(samples[0].tf_unit, 0.1);
  EXPECT_DOUBLE_EQ(samples[0].ema_unit, 0.01);
  EXPECT_EQ(samples[0].line, 2u);
  EXPECT_TRUE(std::isnan(samples[1].tf) && std::isinf(samples[1].ema_tf));
  EXPECT_DOUBLE_EQ(read("tf=1.25e-03 ema_tf=1e+2 lb=1\n")[0].tf_unit, 1e-5);
  EXPECT_EQ(log_fault("ema_tf=1 lb=1\n"), "log, line 1: it has ema_tf= and no tf=");
  EXPECT_EQ(log_fault("tf=1 ema_tf=1\n"), "log, line 1: it has ema_tf= and no lb=");
  EXPECT_EQ(log_fault("\ntf=1 tf=2 ema_tf=1 lb=1\n"), "log, line 2: tf= stands there twice");
  for (const char* wrong : {"", "--", "1.2.3", "1x", "1e", "1-2", "0x10", "+1"})
    EXPECT_NE(log_fault(fmt::format("tf=1 ema_tf=1 lb={}\n", wrong)).find("wanted a number"), std::string::npos)
        << wrong;
  EXPECT_NE(log_fault("step=1.5 tf=1 ema_tf=1 lb=1\n").find("step= is no count"), std::string::npos);
  EXPECT_NE(log_fault("step=1 tf=1 ema_tf=1 lb=1\ntf=1 ema_tf=1 lb=1\n").find("in some lines"), std::string::npos);
  EXPECT_NE(log_fault(std::string(100'000, 'x') + "\n").find("longer than"), std::string::npos);
}

// Protects the reader from any bytes.
TEST(CurveLog, FuzzedBytes) {
  Trainer trainer;
  trainer.run(1, 20);
  EXPECT_TRUE(rc::check("bytes", [&] {
    std::string text = trainer.text;
    for (int i = *rc::gen::inRange(1, 8); i > 0; --i) {
      const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
      switch (*rc::gen::inRange(0, 3)) {
        case 0: text[at] = *rc::gen::arbitrary<char>(); break;
        case 1: text.erase(at, *rc::gen::inRange<std::size_t>(1, 30)); break;
        default:
          text.insert(at, *rc::gen::element<std::string>("tf=", "ema_tf=", "lb=", "step=", "1e999", "nan", "\n",
                                                         std::string(1, '\0')));
      }
    }
    try {
      const auto samples = read(text);
      const Answer answer = check_curve(samples, samples);
      RC_ASSERT(!answer.admitted());  // twenty lines decide nothing
    } catch (const std::runtime_error& fault) {
      RC_ASSERT(std::string(fault.what()).starts_with("log, line "));
    }
  }));
}

}  // namespace
}  // namespace fractus::gate
