// The other forms of a kernel as the measure of a plan: known-good ones show how near to its bound a right form comes,
// known-wrong ones what the plan can see.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/attached.h"
#include "harness/plan.h"
#include "harness/tighter_line.h"
#include "reports/result.h"

namespace fractus {

// What the known-good forms showed on one case.
struct Shown {
  std::map<std::string, double> ratio;       // worst error over bound, by "dtype tensor"
  std::map<std::string, double> line;        // ... by "tensor size class"
  std::vector<std::string> complaints;       // a known-good form that breaks its contract
  std::map<std::string, std::string> edges;  // ... at one that the contract names: what, by form
};

class Measure {
 public:
  Measure(const Workshop& workshop, const Driver& driver, const Plan& plan);

  // One case of the plan, evaluated for the candidate as a rule: put to those known-wrong forms that live and are
  // expected to show here, and to the known-good ones where they are asked for.
  Shown run(const Property& property, Expectation& expectation, bool known_good);

  // Puts the cases that the living known-wrong forms have been spared to them, and where the plan has one dtype alone,
  // all cases in the other one: a fault that shows there only is no gap of this plan, and is named as such. So is one
  // of the gradients alone where the plan wants none. False where `out_of_time` cut it short.
  bool finish(const std::function<bool()>& out_of_time);

  std::vector<Kill> kills() const;  // without those
  std::vector<std::string> backward_alone()
      const;  // known-wrong forms whose gradients alone are wrong, found in finish()

 private:
  struct Wrong {
    Attached form;
    Kill kill;
    std::string shown_by;  // empty: by any property
    bool backward_alone = false;
  };
  void try_on(const Property& property, Expectation& expectation, Wrong& wrong, const std::string& note);
  bool put(Case c, const std::vector<Wrong*>& forms, const std::string& note, const std::function<bool()>& out_of_time);
  void set_apart(const Case& c, Wrong& wrong);
  std::vector<Wrong*> living(const std::function<bool(const Wrong&)>& which = [](const Wrong&) { return true; });

  const Driver& driver_;
  const Plan& plan_;
  std::deque<Attached> good_;
  std::deque<Wrong> wrong_;
};

}  // namespace fractus
