// The result of a run: one object, of which every report is a view.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "properties/case.h"
#include "properties/coverage.h"
#include "properties/property.h"

namespace fractus {

// Exit statuses are these values.
enum class Verdict { equivalent = 0, different = 1, undecided = 2, mistrusted = 3, failed = 4 };

std::string_view name(Verdict verdict);  // "EQUIVALENT" ...

struct Witness {
  Case found;     // as the plan had it
  Case smallest;  // after shrinking
  int shrink_steps = 0;
  std::string fixture;  // file that holds it; empty where it could not be written
  std::string replay;   // the command line
};

struct PropertyResult {
  std::string name;
  std::string proves;
  std::string verdict = "NOT RUN";  // PASSED, DIFFERENT, FAILED, UNDECIDED, WAIVED, NOT ALGEBRAIC, NOT RUN
  std::int64_t planned = 0, cases = 0;
  std::int64_t elements = 0, undecidable = 0, choices_in_doubt = 0, bit_equal = 0;
  std::int64_t choices_flipped = 0;  // of those in doubt, where the form did not choose as the definition does
  double flip_moves = 0;             // the most by which an output moves where a choice in doubt goes the other way
  double escape = 0;  // the largest chance of any of its cases to let a wrong polynomial pass; 0: none is claimed
  std::map<std::string, double> worst_ratio;       // by "dtype tensor": error over tolerance
  std::map<std::string, double> known_good_ratio;  // the same of the known-good forms
  std::map<std::string, Histogram> histogram;      // by "dtype tensor", the finding's case included
  std::vector<Held> held;                          // memory by size
  std::string algebra;                             // how it differs over a finite field; empty: no difference is known
  std::optional<Remark> not_algebraic;             // what kept it from being judged there
  std::vector<std::string> claims;                 // what follows where it has passed, and only there
  std::optional<Finding> finding;
  std::optional<Witness> witness;
  std::string reason;                          // why it is UNDECIDED
  std::map<std::string, std::int64_t> waived;  // findings let pass, by waiver
  std::vector<std::string> notes;
  double seconds = 0;

  double worst() const;  // over all dtypes and tensors
};

// The form of --reference: judged by the oracle on the candidate's cases, as the candidate is.
struct Reference {
  std::string name, summary;
  std::map<std::string, std::int64_t> settings;
  std::string verdict;                     // PASSED, DIFFERENT, FAILED, UNDECIDED
  std::string trouble;                     // why it cannot be run at all; empty: it can
  std::vector<std::string> failures;       // why no verdict can rest on it; one sentence each
  std::vector<PropertyResult> properties;  // in the order of the candidate's
  std::string output;                      // tail of what its process printed
};

// What became of one known-wrong variant.
struct Kill {
  std::string form;
  std::string summary;
  bool killed = false;
  std::string property, kind, tensor;  // what caught it first
  std::string where;                   // the case
};

// How near a candidate and the known-good forms come to their bounds on the same cases, of one tensor over sequences of
// one length class.
struct Line {
  double candidate = 0, known_good = 0;
  std::int64_t cases = 0;
  std::string where;  // the candidate's worst

  bool operator==(const Line&) const = default;
};
using Lines = std::map<std::string, std::map<std::string, Line>>;  // by property, by "tensor size class"

struct Result {
  Verdict verdict = Verdict::undecided;
  std::vector<std::string> reasons;  // one sentence each
  std::string kernel, candidate, summary;
  std::string recomputes;  // the form that the candidate runs again in its backward; empty: none
  std::map<std::string, std::int64_t> settings;
  int contract_version = 1;
  std::string plan_hash;                     // empty where shards were put together that are not the whole plan
  std::string plan_of;                       // hash of the complete plan that this is, or is a part of
  std::vector<std::string> plan_properties;  // the complete plan's, in order, "power" included
  std::vector<std::string> shards;           // hashes of the plans that were put together; empty: it is one run
  std::uint64_t seed = 0;
  std::string preset;
  std::vector<std::string> dtypes, only, waived;
  bool partial = false;       // some properties were left out by the user
  bool forward_only = false;  // for a kernel that is called where no gradient is wanted
  std::vector<PropertyResult> properties;
  std::optional<Reference> reference;
  std::vector<Kill> kills;
  bool power_measured = false;
  std::vector<std::string> backward_alone;  // known-wrong forms, not in `kills`: no measure of a forward-only plan
  std::vector<std::string> known_good;
  // What known-good forms break at edges where the contract says that they do, by form: no findings of the candidate.
  std::map<std::string, std::string> shared_edges;
  // What the verdict rests on beside the properties: each empty as a rule.
  std::string trouble;                  // why the candidate cannot be run at all
  std::string unfit;                    // why the plan cannot judge it
  std::vector<std::string> complaints;  // a known-good form that breaks its own contract
  std::string cut;                      // what ended the run before the plan was through
  Lines lines;
  std::vector<Remark> audit;  // what the candidate did that its algebra does not hold, in floats and over the field
  Coverage coverage;
  std::map<std::string, std::string> machine;
  std::string candidate_output;  // tail of what its process printed
  std::string started;           // UTC, ISO 8601
  double seconds = 0;
};

// Properties of the complete plan that are not in this one.
std::vector<std::string> left_out(const Result& result);

std::string settings_text(const std::map<std::string, std::int64_t>& settings);  // " block=64"

// How far two forms are apart at most, in bounds of the element, by "dtype tensor": each is off the definition's one
// value by its own ratio, and the two add up (triangle inequality). Holds for elements that were decided for both, in
// calls without a choice in doubt, whose value the form's own branch decides. Empty where one of them failed or was
// waived a case, or where the two did not run the same ones.
std::map<std::string, double> apart(const PropertyResult& a, const PropertyResult& b);

// The largest of these over all properties; empty where there is none, or where one property's are empty for that
// reason.
std::optional<double> apart(const Result& result);

// How often each waiver of the run let something pass; 0 where it was never needed.
std::map<std::string, std::int64_t> waiver_uses(const Result& result);
std::string waivers_text(const Result& result);  // "waived: a; waived, and never needed: b"

// Each line behind four spaces: set apart in a terminal, and in Markdown text that no fence inside it can end.
std::string indented(std::string_view text);

// docs/result.schema.json says what is in it. A member may be added; one whose meaning changes makes another format.
inline constexpr const char* result_format = "fractus-verify result 1";
nlohmann::json to_json(const Finding& finding);
nlohmann::json to_json(const Result& result);

// One page for a reviewer, of at most most_markdown bytes so that it fits a merge-request comment: the verdict in the
// first line, then what was proven and how to replay. Long tables are folded, and cut where they do not fit.
inline constexpr std::size_t most_markdown = 60'000;  // GitHub takes 65,536 characters, GitLab a million
// `origin` is a sentence about where the result was read from; the page says it.
std::string to_markdown(const Result& result, const std::string& origin = "");

// The same, with figures, in one file that needs no network and runs no script.
std::string to_html(const Result& result, const std::string& origin = "");

// For a pipeline: a suite for every property, one for the known-wrong forms, and one for the verdict.
std::string to_junit(const Result& result, const std::string& origin = "");

// For a terminal or a log; colour only where asked.
std::string to_text(const Result& result, bool colour);

}  // namespace fractus
