// The property law, through samplers that are functions: right ones pass, each fault ends refused by the variant that
// is meant for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "properties/cases.h"
#include "properties/compare.h"
#include "properties/law_bets.h"
#include "properties/random.h"

namespace fractus {
namespace {

const Driver& driver() { return *find_driver("sample_tokens"); }

// A call as a sampler sees it. Probabilities of its rows are computed once for all calls of a case.
struct Work {
  std::size_t N, V, chunk;
  double temperature;
  std::uint64_t seed;
  const std::vector<double>* logits;
};

std::vector<double> softmax_of(const Work& work, std::size_t n, double temperature) {
  std::vector<double> p(work.logits->begin() + std::ptrdiff_t(n * work.V),
                        work.logits->begin() + std::ptrdiff_t((n + 1) * work.V));
  const double most = *std::max_element(p.begin(), p.end());
  for (double& x : p) x = std::exp((x - most) / temperature);
  return p;
}

// Cumulative sums, not normalized.
using Rows = std::vector<std::vector<double>>;
Rows cumulative_of(const Work& work, const std::function<std::vector<double>(const Work&, std::size_t)>& law) {
  Rows rows;
  for (std::size_t n = 0; n < work.N; ++n) {
    rows.push_back(law(work, n));
    std::partial_sum(rows.back().begin(), rows.back().end(), rows.back().begin());
  }
  return rows;
}

double inverse(const std::vector<double>& cumulative, double uniform) {
  const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * cumulative.back());
  return double(std::min(found, cumulative.end() - 1) - cumulative.begin());
}

using RowLaw = std::function<std::vector<double>(const Work&, std::size_t n)>;
// The numbers of row n's noise: a stream for the call and a place in it.
using Noise = std::function<std::vector<double>(const Work&)>;
using Draw = std::function<std::vector<double>(const Work&)>;

std::vector<double> right_law(const Work& work, std::size_t n) { return softmax_of(work, n, work.temperature); }

std::vector<double> stream(std::uint64_t seed, std::size_t count) {
  Random random(seed);
  std::vector<double> uniforms(count);
  for (double& u : uniforms) u = random.uniform();
  return uniforms;
}
std::vector<double> right_noise(const Work& work) { return stream(work.seed, work.N); }

Draw by_inverse(const RowLaw& law, const Noise& noise) {
  return [law, noise, logits = std::vector<double>(), temperature = 0.0, chunk = std::size_t{0},
          rows = Rows()](const Work& work) mutable {
    if (logits != *work.logits || temperature != work.temperature || chunk != work.chunk)
      logits = *work.logits, temperature = work.temperature, chunk = work.chunk, rows = cumulative_of(work, law);
    const std::vector<double> uniforms = noise(work);
    std::vector<double> tokens;
    for (std::size_t n = 0; n < work.N; ++n) tokens.push_back(inverse(rows[n], uniforms[n]));
    return tokens;
  };
}

// A race of all tokens with exponential times. `first`: where in the stream the noise of row n begins, in rows.
Draw by_race(const std::function<std::size_t(const Work&, std::size_t n)>& first) {
  return [first](const Work& work) {
    std::vector<double> tokens;
    const std::vector<double> uniforms = stream(work.seed, work.N * work.V);
    for (std::size_t n = 0; n < work.N; ++n) {
      const std::vector<double> p = right_law(work, n);
      double best = std::numeric_limits<double>::infinity();
      std::size_t token = 0;
      for (std::size_t i = 0; i < work.V; ++i) {
        const double time = -std::log1p(-uniforms[first(work, n) * work.V + i]) / p[i];
        if (time < best) best = time, token = i;
      }
      tokens.push_back(double(token));
    }
    return tokens;
  };
}

Subject subject_of(const Draw& draw) {
  Subject subject;
  subject.form = "test";
  subject.call = [draw, logits = std::vector<double>(),
                  inputs = std::vector<std::optional<Array>>()](const Call& call) mutable {
    const Array &h = *call.inputs[0], &W = *call.inputs[1];
    const std::size_t N = std::size_t(h.shape[0]), d = std::size_t(h.shape[1]), V = std::size_t(W.shape[0]);
    if (inputs != call.inputs) {
      inputs = call.inputs;
      logits.assign(N * V, 0);
      for (std::size_t n = 0; n < N; ++n)
        for (std::size_t i = 0; i < V; ++i)
          for (std::size_t k = 0; k < d; ++k) logits[n * V + i] += h.values[n * d + k] * W.values[i * d + k];
    }
    const auto chunk = std::size_t(std::max(call.scalars.at("ce_chunk"), 0.0));
    Answer answer;
    answer.outputs = {Array{"tokens",
                            DType::int64,
                            {h.shape[0]},
                            draw({N, V, chunk == 0 ? N : chunk, call.scalars.at("temperature"),
                                  std::uint64_t(std::int64_t(call.scalars.at("seed"))), &logits})}};
    return answer;
  };
  subject.call_fresh = [call = subject.call](const std::vector<Call>& calls) {
    std::vector<Answer> answers;
    for (const Call& each : calls) answers.push_back(call(each));
    return answers;
  };
  return subject;
}

Case case_of(const Draws& draws, std::uint64_t seed) {
  Case c = base_case(driver(), "law", DType::float32, draws.dims, draws.fill);
  c.variant = draws.variant;
  c.seed = seed;
  return c;
}

const Property& law() { return *find_property("law"); }

Outcome outcome_of(const Draws& draws, const Draw& draw, std::uint64_t seed) {
  Expectation expectation(driver(), case_of(draws, seed), 1);
  return law().check(expectation, subject_of(draw));
}

// The first finding of the variant's cases, as a run has it.
std::optional<Finding> found_by(const std::string& variant, const Draw& draw) {
  std::uint64_t seed = 100;
  for (const Draws& draws : driver().draws(64, false)) {
    if (draws.variant != variant) continue;
    if (auto outcome = outcome_of(draws, draw, ++seed); outcome.finding) return outcome.finding;
  }
  return std::nullopt;
}

// Protects: right samplers, however they draw: every planned case passes, and its note states the level and what would
// have shown, by class of rows.
TEST(Law, AcceptsRightSamplers) {
  const Noise by_chunk = [](const Work& work) {
    std::vector<double> uniforms;
    for (std::size_t n = 0; n < work.N; ++n) {
      const std::uint64_t of_chunk = (work.seed << 20) + n / work.chunk;
      uniforms.push_back(stream(of_chunk, n % work.chunk + 1).back());
    }
    return uniforms;
  };
  const auto own = [](const Work&, std::size_t n) { return n; };
  std::uint64_t seed = 0;
  for (const Draws& draws : driver().draws(64, false)) {
    for (int k = 0; k < 2; ++k) {
      const Outcome outcome = outcome_of(draws, by_inverse(right_law, right_noise), ++seed);
      ASSERT_FALSE(outcome.finding) << draws.variant << " " << draws.fill << ": " << outcome.finding->text;
      EXPECT_NE(outcome.note.find("level 1e-06"), std::string::npos) << outcome.note;
      EXPECT_GT(outcome.elements, 50);
    }
    if (draws.dims.at("V") > 300) continue;  // the race takes a number for each token
    for (const Draw& draw : {by_inverse(right_law, by_chunk), by_race(own)}) {
      const Outcome outcome = outcome_of(draws, draw, ++seed);
      ASSERT_FALSE(outcome.finding) << draws.variant << " " << draws.fill << ": " << outcome.finding->text;
    }
  }
}

// Protects: what the statistics say of the plan's own cases: in each, some class of rows shows a bias of 10 % or less
// of the mass, and the pooled rows of a vocabulary one of 5 %.
TEST(Law, StatesWhatWouldHaveShown) {
  const Outcome small = outcome_of({"small", "one_law", {{"N", 300}, {"d", 4}, {"V", 13}, {"ce_chunk", 64}}},
                                   by_inverse(right_law, right_noise), 5);
  for (const char* part : {"all rows (rows 0 to 299): 60000 draws, 0.02", "the first rows of chunks (rows 0, 64, 128",
                           "the short last chunk (rows 256 to 299)"})
    EXPECT_NE(small.note.find(part), std::string::npos) << small.note;
}

RowLaw at_temperature(double (*of)(double)) {
  return [of](const Work& work, std::size_t n) { return softmax_of(work, n, of(work.temperature)); };
}

RowLaw without_token(std::size_t (*which)(const Work&)) {
  return [which](const Work& work, std::size_t n) {
    std::vector<double> p = right_law(work, n);
    if (work.V > 1) p[which(work)] = 0;
    return p;
  };
}

struct Fault {
  std::string name, variant, kind;
  Draw draw;
};

std::vector<Fault> faults() {
  const auto noise = [](std::uint64_t (*stream_of)(const Work&, std::size_t n)) {
    return [stream_of](const Work& work) {
      std::vector<double> uniforms;
      for (std::size_t n = 0; n < work.N; ++n) uniforms.push_back(Random(stream_of(work, n)).uniform());
      return uniforms;
    };
  };
  const auto with_noise = [&](std::uint64_t (*stream_of)(const Work&, std::size_t n)) {
    return by_inverse(right_law, noise(stream_of));
  };
  const auto with_law = [](const RowLaw& row_law) { return by_inverse(row_law, right_noise); };
  return {
      // Those of the handed mutants.
      {"temperature ignored", "small", "law", with_law(at_temperature([](double) { return 1.0; }))},
      {"temperature ignored", "large", "law", with_law(at_temperature([](double) { return 1.0; }))},
      {"argmax", "small", "law",
       by_inverse(right_law, [](const Work& work) { return std::vector<double>(work.N, 0.5); })},
      {"same noise in each chunk", "pairs", "dependent",
       with_noise([](const Work& w, std::size_t n) { return (w.seed << 20) + n % w.chunk; })},
      {"same noise in each chunk's race", "pairs", "dependent",
       by_race([](const Work& work, std::size_t n) { return n % work.chunk; })},
      {"seed ignored", "seeds", "not-repeated",
       by_inverse(right_law,
                  [calls = std::make_shared<std::uint64_t>(0)](const Work& work) { return stream(++*calls, work.N); })},
      {"top fifty", "large", "law", with_law([](const Work& work, std::size_t n) {
         std::vector<double> p = right_law(work, n), sorted = p;
         if (p.size() <= 50) return p;
         std::nth_element(sorted.begin(), sorted.begin() + 49, sorted.end(), std::greater<>());
         for (double& x : p)
           if (x < sorted[49]) x = 0;
         return p;
       })},
      {"short last chunk reused", "small", "law", with_law([](const Work& work, std::size_t n) {
         const std::size_t start = n - n % work.chunk;
         const bool is_short = start + work.chunk > work.N;
         return right_law(work, is_short ? work.N - work.chunk + n % work.chunk : n);
       })},
      // More of their kinds.
      {"temperature squared", "small", "law", with_law(at_temperature([](double t) { return t * t; }))},
      {"last token lost", "small", "law", with_law(without_token([](const Work& w) { return w.V - 1; }))},
      {"last token lost", "large", "law", with_law(without_token([](const Work& w) { return w.V - 1; }))},
      {"first token lost", "large", "law", with_law(without_token([](const Work&) { return std::size_t{0}; }))},
      {"2 % of the mass evenly spread", "large", "law", with_law([](const Work& work, std::size_t n) {
         std::vector<double> p = right_law(work, n);
         const double sum = std::accumulate(p.begin(), p.end(), 0.0);
         for (double& x : p) x += 0.02 * sum / double(p.size());
         for (std::size_t i = 0; i < p.size(); ++i)
           if ((*work.logits)[n * work.V + i] < -1e29) p[i] = 0;
         return p;
       })},
      {"the next row's law at the end of a chunk", "small", "law", with_law([](const Work& work, std::size_t n) {
         return right_law(work, n % work.chunk == work.chunk - 1 && n + 1 < work.N ? n + 1 : n);
       })},
      {"opposite noise of neighbours", "pairs", "dependent",
       by_inverse(right_law,
                  [](const Work& work) {
                    std::vector<double> u = stream(work.seed, work.N);
                    for (std::size_t n = 1; n < u.size(); n += 2) u[n] = 1 - 0x1p-53 - u[n - 1];
                    return u;
                  })},
      {"the same noise in the first row and the last", "pairs", "dependent",
       by_inverse(right_law,
                  [](const Work& work) {
                    std::vector<double> u = stream(work.seed, work.N);
                    u.back() = u.front();
                    return u;
                  })},
      {"seed of 16 bits", "seeds", "stale-seed",
       with_noise([](const Work& w, std::size_t n) { return ((w.seed & 0xFFFF) << 20) + n; })},
      {"seed of 31 bits", "seeds", "stale-seed",
       with_noise([](const Work& w, std::size_t n) { return ((w.seed & 0x7FFFFFFF) << 20) + n; })},
      {"seed as a float", "seeds", "stale-seed",
       with_noise([](const Work& w, std::size_t n) { return (std::uint64_t(float(w.seed)) << 20) + n; })},
      {"seed 0 taken for 1", "seeds", "stale-seed",
       with_noise([](const Work& w, std::size_t n) { return (std::max<std::uint64_t>(w.seed, 1) << 20) + n; })},
      {"seed plus row", "seeds", "stale-seed", with_noise([](const Work& w, std::size_t n) { return w.seed + n; })},
      {"seed plus chunk", "seeds", "stale-seed",
       with_noise([](const Work& w, std::size_t n) { return ((w.seed + n / w.chunk) << 20) + n % w.chunk; })},
      {"one stream for all seeds", "seeds", "stale-seed", with_noise([](const Work&, std::size_t n) { return 7 + n; })},
      {"a token beyond the vocabulary", "small", "value",
       [](const Work& work) { return std::vector<double>(work.N, double(work.V)); }},
      {"NaN for a token", "small", "value", [](const Work& work) { return std::vector<double>(work.N, std::nan("")); }},
      {"a masked token now and then", "small", "value", with_law([](const Work& work, std::size_t n) {
         std::vector<double> p = right_law(work, n);
         for (std::size_t i = 0; i < p.size(); ++i)
           if ((*work.logits)[n * work.V + i] < -1e29) p[i] += 1e-3;
         return p;
       })},
  };
}

// Protects: power. Every fault is refused by a case of the variant that is meant for it, by its own kind of finding.
TEST(Law, RefusesEveryFaultByTheVariantMeantForIt) {
  for (const Fault& fault : faults()) {
    const auto finding = found_by(fault.variant, fault.draw);
    ASSERT_TRUE(finding) << fault.name << " by " << fault.variant;
    EXPECT_EQ(finding->kind, fault.kind) << fault.name << ": " << finding->text;
    EXPECT_EQ(finding->tensor, "tokens") << fault.name;
  }
}

// Protects: the level. What a plan may hold is what the level is divided among, and every fill is drawn from.
TEST(Law, DividesItsLevelAmongAllThatAPlanHolds) {
  for (const std::int64_t block : {1, 2, 64, 8192})
    for (const bool live : {false, true}) {
      PlanSettings settings;
      settings.block = block, settings.live = live;
      const std::vector<Case> cases = law().plan(driver(), settings);
      EXPECT_LE(std::int64_t(cases.size()), most_law_cases);
      for (const std::string& fill : driver().fills)
        EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [&](const Case& c) { return c.fill == fill; })) << fill;
      for (const char* variant : {"small", "large", "pairs", "seeds"})
        for (DType dtype : settings.dtypes)
          EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [&](const Case& c) {
            return c.variant == variant && c.dtype == dtype;
          })) << variant;
    }
  EXPECT_NEAR(double(most_law_cases * most_bets + 1) * std::exp(-run_level.log_threshold()), 1e-6, 1e-12);
  Bets bets;
  for (std::int64_t k = 0; k < most_bets; ++k) bets.add({"a", 0, "b", {0.5, 0.5}, 2, 1});
  EXPECT_THROW(bets.add({"a", 0, "b", {0.5, 0.5}, 2, 1}), std::logic_error);
}

// Protects: what properties ask of a driver. Every one that applies makes a plan of this one, for each preset.
TEST(SamplerDriver, HasWhatEveryPropertyAsksFor) {
  for (const Property& property : properties())
    for (const bool live : {false, true}) {
      PlanSettings settings;
      settings.live = live;
      if (!property.applies(driver())) continue;
      EXPECT_FALSE(property.plan(driver(), settings).empty()) << property.name;
    }
}

// Protects: shrinking. Whatever extents a failing case is brought down to, it is a case still.
TEST(Law, TakesEverySmallerCase) {
  for (const char* variant : {"small", "large", "pairs", "seeds"})
    for (const std::int64_t N : {1, 2, 3})
      for (const std::int64_t V : {1, 2})
        for (const std::int64_t chunk : {0, 1, 2}) {
          const Outcome outcome = outcome_of({variant, "ordinary", {{"N", N}, {"d", 1}, {"V", V}, {"ce_chunk", chunk}}},
                                             by_inverse(right_law, right_noise), 3);
          EXPECT_FALSE(outcome.finding) << outcome.finding->text;
        }
  Expectation none(driver(), case_of({"small", "ordinary", {{"N", 0}, {"d", 1}, {"V", 2}, {"ce_chunk", 0}}}, 1), 1);
  EXPECT_THROW(law().check(none, subject_of(by_inverse(right_law, right_noise))), std::invalid_argument);
}

// Protects: the classes of rows: each row is in the first, and the rows of a short last chunk are told from the others.
TEST(Law, TellsRowsApartByTheirChunk) {
  const auto classes = row_classes(10, 4);
  ASSERT_EQ(classes.size(), 4u);
  EXPECT_EQ(classes[0].members.size(), 10u);
  EXPECT_EQ(classes[1].members, (std::vector<std::size_t>{0, 4, 8}));
  EXPECT_EQ(classes[2].members, (std::vector<std::size_t>{3, 7, 9}));
  EXPECT_EQ(classes[3].members, (std::vector<std::size_t>{8, 9}));
  EXPECT_EQ(row_classes(12, 4).size(), 3u);
  EXPECT_EQ(row_classes(12, 0).size(), 1u);
  EXPECT_EQ(row_classes(3, 1).size(), 4u);
}

// Protects: forms that compute with input that the contract says nothing of, and callers who would index by what they
// get: any token of the vocabulary passes there, a number that is none does not.
TEST(Domain, AsksForTokensWhereThereIsNoLaw) {
  const Property& domain = *find_property("domain");
  for (const Violation& violation : driver().violations) {
    Case c = base_case(driver(), "domain", DType::float32, {{"N", 5}, {"d", 3}, {"V", 7}, {"ce_chunk", 2}}, "ordinary");
    c.variant = violation.name;
    c.seed = 4;
    const bool lawless = violation.name.starts_with("temperature");
    const Draw last_token = [lawless](const Work& work) {
      if (work.temperature > 0 && !lawless) return by_inverse(right_law, right_noise)(work);
      return work.temperature == 0.9 ? by_inverse(right_law, right_noise)(work)
                                     : std::vector<double>(work.N, double(work.V - 1));
    };
    Expectation expectation(driver(), c, 1);
    const Outcome right = domain.check(expectation, subject_of(last_token));
    EXPECT_FALSE(right.finding) << violation.name << ": " << right.finding->text;

    const Draw beyond = [](const Work& work) { return std::vector<double>(work.N, double(work.V)); };
    const Outcome wrong = domain.check(expectation, subject_of(beyond));
    ASSERT_TRUE(wrong.finding) << violation.name;
    EXPECT_EQ(wrong.finding->kind, "unchecked-input");
  }
}

// Protects: no false refusal where nothing is known. Every logit is of the order of a mask and has an error far above
// the others' differences: any token may come, and a number that is none may not.
TEST(Domain, ARowWithoutABoundMayDrawAnyToken) {
  Case c = base_case(driver(), "contract", DType::float64, {{"N", 4}, {"d", 8}, {"V", 31}, {"ce_chunk", 1}}, "masked");
  c.layouts["W"] = Layout::broadcast;
  c.seed = 8615444334219129;
  Expectation expectation(driver(), c, 1);
  ASSERT_TRUE(std::isinf(*std::min_element(expectation.law().slack.begin(), expectation.law().slack.end())));
  const auto drew = [&](double token) {
    Answer answer;
    answer.outputs = {Array{"tokens", DType::int64, {4}, std::vector<double>(4, token)}};
    return compare(expectation, answer).finding;
  };
  for (double token = 0; token < 31; ++token) EXPECT_FALSE(drew(token)) << token;
  EXPECT_TRUE(drew(31));
  EXPECT_TRUE(drew(-1));
}

// Protects: no false refusal by the fills. Laws add up to 1 and are known to within a slack that costs little; tokens
// of a mask have none.
TEST(SamplerFill, HasALawThatIsKnown) {
  for (const DType dtype : {DType::float32, DType::float64})
    for (const std::string& fill : driver().fills)
      for (std::uint64_t seed = 0; seed < 8; ++seed) {
        Case c = base_case(driver(), "law", dtype,
                           {{"N", 6}, {"d", std::int64_t(1 + seed % 4)}, {"V", 130}, {"ce_chunk", 4}}, fill);
        c.seed = seed;
        const Problem problem = driver().fill(c);
        EXPECT_EQ(problem.inputs, driver().fill(c).inputs);
        const double s = problem.scalars.at("seed");
        EXPECT_TRUE(s >= 0 && s < 0x1p32 && s == std::floor(s));
        for (const auto& input : problem.inputs)
          for (const double x : input->values) ASSERT_EQ(x, rounded(x, dtype));
        const oracle::Law law = driver().law(problem, dtype);
        for (std::size_t n = 0; n < 6; ++n) {
          EXPECT_NEAR(std::accumulate(law.probability.begin() + std::ptrdiff_t(130 * n),
                                      law.probability.begin() + std::ptrdiff_t(130 * (n + 1)), 0.0),
                      1, 1e-12);
          EXPECT_LT(law.slack[n], dtype == DType::float32 ? 1e-3 : 1e-11) << fill;
        }
        c.fill = "no_such_fill";
        EXPECT_THROW(driver().fill(c), std::invalid_argument);
      }
}

}  // namespace
}  // namespace fractus
