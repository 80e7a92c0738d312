#include "harness/explain.h"

#include <fmt/format.h>

#include "harness/fixture.h"
#include "properties/shrink.h"

namespace fractus {
namespace {

// A file inside the folder that the command is given from reads better by its relative name.
std::string shown(const std::filesystem::path& file) {
  std::error_code error;
  const auto relative = std::filesystem::relative(file, std::filesystem::current_path(error), error);
  return error || relative.empty() || *relative.begin() == ".." ? file.string() : relative.string();
}

}  // namespace

void explain(const Driver& driver, const Property& property, const Case& c, Attached& candidate,
             const std::filesystem::path& fixtures, PropertyResult& record) {
  Witness witness{.found = c, .smallest = c};
  const auto settings = candidate.subject().settings;
  if (record.finding->kind != "timed-out") {  // each attempt would cost the whole time limit
    witness.smallest.settings = settings;     // so that a block may shrink with the sequence
    const auto finding_of = [&](const Case& smaller) {
      Expectation expectation(driver, smaller, 1);
      return property.check(expectation, candidate.subject()).finding;
    };
    const Shrunk shrunk = shrink(driver, witness.smallest, *record.finding, finding_of, property.patience);
    witness.smallest = shrunk.smallest;
    witness.shrink_steps = shrunk.steps;
    record.finding = shrunk.finding;
    if (!record.algebra.empty()) record.finding->text += "; " + record.algebra;  // which shrinking does not look at
  }
  Fixture fixture{candidate.form().name, settings,
                  witness.smallest,      problem_of(driver, witness.smallest),
                  *record.finding,       candidate.form().recomputes};
  if (record.finding->kind != "timed-out") {
    // The failing process has a history. A replay has none, or one call's worth of it.
    const auto shows = [&] {
      Attached fresh = candidate.fresh();
      return replayed(driver, fixture, fresh).has_value();
    };
    if (!shows()) {
      fixture.after_another = true;
      const bool behind_another = shows();
      record.notes.push_back(
          behind_another
              ? "it shows only behind another call of the same shapes: the form keeps something between calls"
              : "it does not show in a fresh process, nor behind one other call: it depends on more of the calls "
                "before it");
    }
  }
  try {
    witness.fixture = shown(write_fixture(fixtures, fixture));
    witness.replay = fmt::format("./fractus-verify replay '{}'", witness.fixture);
  } catch (const std::runtime_error& error) {
    record.notes.push_back(fmt::format("the witness could not be kept as a file: {}", error.what()));
  }
  record.witness = std::move(witness);
}

}  // namespace fractus
