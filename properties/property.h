// A property is one thing that a right kernel does: a list of cases, and a check of one form on one case.
//
// A property never sees a process or a file. It is given a Subject that answers calls, and the expectations of the
// case, which are computed once however many subjects are checked.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "contracts/call.h"
#include "contracts/field_call.h"
#include "properties/case.h"
#include "properties/driver.h"
#include "properties/histogram.h"

namespace fractus {

// The form under test, as a property sees it.
struct Subject {
  std::string form;
  std::map<std::string, std::int64_t> settings;
  bool bit_equal_reruns = true;
  bool bit_equal_threads = false;
  bool bit_equal_neighbours = false;
  std::function<Answer(const Call&)> call;  // in the process that has served all earlier calls
  std::function<std::vector<Answer>(const std::vector<Call>&)> call_fresh;  // all in one process that is theirs alone
  std::function<Answer(const Call&)> call_elsewhere;  // where its code has been loaded anew, as in another training run
  // All forwards, then all backwards, the last call's first or in order; results are read when all have run.
  std::function<std::vector<Answer>(const std::vector<Call>&, bool last_first)> call_together;
  // The same call of the form that this one runs again in its backward (Declarations::recomputes); empty: none.
  std::function<Answer(const Call&)> call_plain;
  // Over a finite field, in a process that runs no other calls.
  std::function<FieldAnswer(const FieldCall&)> call_over_field;
  // What the form says it holds beside inputs and outputs.
  std::function<Declared(const Dims&)> declared_elements;
};

// One way in which a form broke a property. `kind` and `tensor` are what shrinking keeps.
struct Finding {
  std::string kind;     // value, bits, not-finite, shape, alias, crashed, ...
  std::string tensor;   // empty where the finding is of the whole call
  std::string text;     // one sentence for a person
  bool broken = false;  // a crash, a hang or a broken contract (FAILED), rather than other numbers (DIFFERENT)
  std::string waiver;   // the --waive name that lets exactly this pass; empty where nothing does
  // Of the worst element, where there is one.
  Shape index;
  double expected = 0, radius = 0, tolerance = 0, got = 0;
};

// What a form held at one size.
struct Held {
  std::string series;  // sizes of one series differ in one extent alone: "forward, G 2 D 16"
  std::string symbol;  // that extent, and its value
  std::int64_t extent = 0;
  std::int64_t bytes = 0;
  std::optional<std::int64_t> allowed;  // what the form declares, or the contract bounds, where either does

  bool operator==(const Held&) const = default;
};

// What one check of one case saw.
struct Outcome {
  std::optional<Finding> finding;
  std::map<std::string, double> worst_ratio;   // by tensor: error over tolerance, elements with a bound only
  std::map<std::string, Histogram> histogram;  // by tensor: the same of every such element
  std::int64_t elements = 0;
  std::int64_t undecidable = 0;
  std::int64_t choices_in_doubt = 0;
  std::int64_t choices_flipped = 0;  // oracle::Expected::choices_flipped
  double flip_moves = 0;             // oracle::Expected::flip_moves, the largest
  std::int64_t bit_equal = 0;        // elements demanded, and found, equal to the last bit
  std::optional<double> escape;      // Problem::escape, of what was found bit-equal
  std::vector<Held> held;            // memory, at the sizes of the case
  // Of a call over a finite field. `algebra`: how what the form computes differs there from the definition, in a
  // sentence; a finding beside it is that of the same fault over floats, and `witness` the case that shows it.
  std::string algebra;
  std::optional<Case> witness;
  std::optional<Remark> not_algebraic;  // what kept the form from being judged there
  std::vector<Remark> remarks;
  std::string claim;  // what follows where every case of the property passes
  std::string note;   // a measured fact worth a line in the report
};

// The case's fill; what its layouts make share memory has one value.
Problem problem_of(const Driver& driver, const Case& c);

// Values and expectations of one case, computed at most once, shared by all subjects and their threads.
class Expectation {
 public:
  Expectation(const Driver& driver, const Case& c, int threads);
  // For values that are not the case's own fill: a replayed fixture, a part of a batch.
  Expectation(const Driver& driver, const Case& c, Problem problem, int threads);

  const Driver& driver() const { return driver_; }
  const Case& of() const { return case_; }
  const Problem& problem() const { return problem_; }
  int threads() const { return threads_; }
  // From now on an input is rows of another, whose gradient takes its own in. Before any evaluation.
  void tie(Tied tied);

  // The definition's answer, of the tolerance that the answer's form declares. Where a choice is in doubt it is
  // evaluated again for the answer's own outputs.
  std::shared_ptr<const oracle::Expected> expected(const Answer& answer);
  // The same where every choice in doubt may go either way.
  std::shared_ptr<const oracle::Expected> either(std::int64_t add_depth = 0);
  // Works that out while the caller waits for a form, once, where it is what `expected` begins with and there is a
  // thread for it. Ends before the result does.
  [[nodiscard]] std::future<void> begin();
  const Exactness& exactness();
  const oracle::Law& law();

 private:
  std::shared_ptr<const oracle::Expected> evaluated(const Judged& judged) const;

  const Driver& driver_;
  Case case_;
  int threads_;
  Problem problem_;
  std::optional<Tied> tied_;
  std::mutex either_mutex_;
  std::atomic<bool> begun_ = false;
  std::once_flag exactness_once_, law_once_;
  std::map<std::int64_t, std::shared_ptr<const oracle::Expected>> either_;  // by declared depth of addition
  std::optional<Exactness> exactness_;
  std::optional<oracle::Law> law_;
};

struct PlanSettings {
  std::uint64_t seed = 0;
  std::vector<DType> dtypes{DType::float32, DType::float64};
  std::int64_t block = 64;    // the form's block, whose borders the shapes surround
  bool live = true;           // the training run's shape as well
  int draws = 40;             // random cases a property and dtype
  bool forward_only = false;  // no gradient is wanted, and no case has one
};

struct Property {
  std::string name;
  std::string proves;  // one line
  std::function<bool(const Driver&)> applies;
  std::function<std::vector<Case>(const Driver&, const PlanSettings&)> plan;  // the cases that no plan may lack
  std::function<rc::Gen<Case>(const Driver&, const PlanSettings&)> random;  // more of them; empty where none are drawn
  std::function<Outcome(Expectation&, const Subject&)> check;
  bool compared_with_known_good = false;  // the second, tighter line holds here
  bool of_recompute = false;              // it is about forms that declare what they run again, and no others
  bool measures_power = true;             // known-wrong forms go through it as well
  int patience = 800;                     // checks that shrinking may make; most take a millisecond or a few
};

const std::vector<Property>& properties();
const Property* find_property(std::string_view name);

// `count` draws of the generator, all of them fixed by the seed.
std::vector<Case> drawn(const rc::Gen<Case>& generator, std::uint64_t seed, int count);

}  // namespace fractus
