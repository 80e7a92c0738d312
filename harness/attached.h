// A form with a living process behind it, replaced when it dies: what a property knows as its Subject.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "harness/process.h"
#include "properties/property.h"

namespace fractus {

class Attached {
 public:
  Attached(const Workshop& workshop, FormInfo form, std::map<std::string, std::int64_t> settings);

  Subject subject();
  Attached fresh() const { return {workshop_, form_, settings_}; }  // the same form, a process that has served nothing
  const FormInfo& form() const { return form_; }
  std::string output_tail();
  int deaths() const { return deaths_; }  // processes lost to crashes and time-outs so far

 private:
  // What `ask` gets of a living process; `count` failures where none can be had.
  std::vector<Answer> answers(std::size_t count, const std::function<std::vector<Answer>(Process&)>& ask);
  std::chrono::milliseconds limit(const Call& call) const;

  const Workshop& workshop_;
  FormInfo form_;
  std::map<std::string, std::int64_t> settings_;
  std::optional<Process> process_;
  std::optional<Process> over_field_;  // of calls over a finite field, and no others
  std::unique_ptr<Attached> plain_;    // FormInfo::recomputes
  int deaths_ = 0;
};

// Long enough for the slowest right form at this size (the quadratic reference, ten times over), and bounded.
std::chrono::milliseconds time_limit(const Call& call);

}  // namespace fractus
