#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/attest.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/gate.h"
#include "cli/report.h"
#include "cli/streams.h"
#include "cli/usage.h"
#include "reports/words.h"

namespace {

using fractus::cli::Options;

constexpr const char* about =
    "Decides whether a rewritten kernel may replace the one that a training run uses now, and proves it.";
constexpr const char* examples = R"(Examples:
  ./fractus-verify --candidate chunked                        the verdict on a kernel, at the training run's shapes
  ./fractus-verify --candidate chunked:block=16 --preset smoke --dtype float32
  ./fractus-verify --candidate cumsum --report out --json out.json
  ./fractus-verify list                                       kernels, forms and properties
  ./fractus-verify replay fixtures/found/FILE.json            a failure again, with its worst element
  ./fractus-verify fuzz --candidate chunked --budget 10m --seed 7
  ./fractus-verify golden ../shared/golden                    against recorded tensors
  ./fractus-verify --candidate mine.py:attention              a Python function, of the kernel's signature
  ./fractus-verify --candidate mine.py:attention --reference chunked   against a form in use; both are judged
  ./fractus-verify --candidate mine.pt2 --forward-only --dtype float32   an exported package, which has no gradients
  ./fractus-verify identity mine.py:attention                 its algebra, over a finite field
  ./fractus-verify battery ../shared/mutants                  what the plan sees of known-wrong functions
  ./fractus-verify gate --policy policy.toml --envelope envelope.json --artifact kernels.py   may it be loaded?
  ./fractus-verify bench attention                            time and memory at the training run's shapes
  ./fractus-verify bench cross_entropy                        the same for the loss, beside the dense form
  ./fractus-verify bench power                                the plan beside gradcheck, assert_close and relative RMS
  ./fractus-verify key new mykey.pem                          an Ed25519 key, and mykey.pub.pem beside it
  ./fractus-verify --candidate mine.py:attention --sign mykey.pem   a signed verdict: envelope.json beside the report
  ./fractus-verify attest verify envelope.json --key mykey.pub.pem

Exit status: 0 EQUIVALENT, 1 DIFFERENT, 2 UNDECIDED, 3 MISTRUSTED, 4 FAILED, 64 bad usage, 70 a failure of our own.)";

// An empty value is a shell variable that was never set, not the wish for the default.
const CLI::Validator given(
    [](const std::string& text) { return text.empty() ? std::string("wanted a value, got an empty one") : ""; }, "");

void require_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->get_expected_max() > 0) option->check(given);
  for (CLI::App* command : app.get_subcommands({})) require_values(*command);
}

// An option before a command would set, without a word, what the same option behind it sets, or nothing at all.
void require_options_behind_command(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands())
    for (const CLI::Option* option : app.get_options())
      if (option->count() > 0)
        throw fractus::cli::UsageError(
            fmt::format("{} stands before the command '{}'; its options belong behind it: ./fractus-verify {} {} ...",
                        option->get_name(), command->get_name(), command->get_name(), option->get_name()));
}

void add_candidate(CLI::App& app, Options& o) {
  app.add_option("--candidate", o.candidate, "the form to judge: NAME, NAME:parameter=value, or path/file.py:function");
  app.add_option("--kernel", o.kernel, "its kernel; needed only where two kernels have a form of that name");
  app.add_option(
      "--recompute-of", o.recompute_of,
      "the form that the candidate runs again in its backward: the candidate is to be equal to it to the bit, "
      "and to keep less");
}

void add_preset(CLI::App& app, Options& o) {
  app.add_option("--preset", o.preset, "live: the training run's shape too; smoke: small shapes and fewer draws [live]")
      ->check(CLI::IsMember({"live", "smoke"}));
}

void add_run(CLI::App& app, Options& o, bool only = true) {
  app.add_option("--seed", o.seed, "everything random follows from it [1]")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 53));
  app.add_option("--budget", o.budget, "time at most, such as 30s, 10m or 1h");
  app.add_option("--dtype", o.dtype, "float32 or float64 alone; the verdict says so");
  if (only) {
    app.add_option("--only", o.only, "properties, separated by commas; such a run is partial and cannot be EQUIVALENT");
    app.add_option("--skip", o.skip, "properties to leave out, separated by commas; such a run is partial too");
  }
  app.add_option("--waive", o.waive, "contract clauses to let pass, separated by commas; recorded in the verdict");
}

int run(int argc, char** argv) {
  CLI::App app{about};
  app.name("fractus-verify");
  app.footer(examples);
  app.set_help_all_flag("--help-all", "help of every command");
  Options o;
  add_candidate(app, o);
  app.add_option("--reference", o.reference,
                 "a second form, such as the one in production, named as the candidate is and with parameters of its "
                 "own: judged on the same cases, and a verdict for the candidate takes both");
  add_run(app, o);
  add_preset(app, o);
  app.add_flag("--forward-only", o.forward_only,
               "for a kernel that is called without gradients: none is judged, and the verdict says so");
  app.add_option("--report", o.report,
                 "folder for report.md, report.html, junit.xml and report.json [build/report/KERNEL-CANDIDATE]");
  app.add_option("--json", o.json, "the result as JSON to this file, or to standard output for -");
  fractus::cli::add_sign(app, o.sign, /*subjects=*/true);

  CLI::App* list = app.add_subcommand("list", "kernels, forms and properties of this build");
  list->add_option("--json", o.json, "as JSON to this file, or to standard output for -");

  CLI::App* replay = app.add_subcommand(
      "replay", "run a kept failure again: expected, radius, tolerance and got at its worst element");
  replay->add_option("FILE", o.file, "a file of fixtures/found")->required();
  replay->add_option("--candidate", o.candidate, "another form than the one it was found with");
  replay->add_option("--json", o.json, "as JSON to this file, or to standard output for -");

  CLI::App* fuzz = app.add_subcommand("fuzz", "random cases until the time is up or one fails");
  add_candidate(*fuzz, o);
  add_run(*fuzz, o);
  fuzz->add_option("--cases", o.cases, "cases at most")->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 53));
  fuzz->add_option("--json", o.json, "as JSON to this file, or to standard output for -");

  CLI::App* golden = app.add_subcommand("golden", "oracle, references and candidates against recorded tensors");
  golden->add_option("DIR", o.folder, "a folder with an index.json")->required();
  golden->add_option("--json", o.json, "as JSON to this file, or to standard output for -");

  CLI::App* battery = app.add_subcommand(
      "battery", "every mutant_* and correct_* function of a Python file through its kernel's plan: the kill matrix");
  battery->add_option("PATH", o.file, "a file named after its kernel, or a folder of them")->required();
  battery->add_option("--kernel", o.kernel, "the kernel, where the file is not named after it");
  add_run(*battery, o, /*only=*/false);
  add_preset(*battery, o);
  battery->add_option("--json", o.json, "as JSON to this file, or to standard output for -");

  CLI::App* identity = app.add_subcommand(
      "identity", "a form's own program over a finite field, where nothing rounds, against the definition");
  identity->add_option("FORM", o.candidate, "as for --candidate: NAME, NAME:parameter=value, or path/file.py:function")
      ->required();
  identity->add_option("--kernel", o.kernel,
                       "linear_attention, or a kernel that identity alone judges: matmul, experts, block_attention");
  identity->add_option("--seed", o.seed, "everything random follows from it [1]")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 53));
  identity->add_option("--dtype", o.dtype, "float32 (over GF(2^31-1)) or float64 (over GF(2^61-1)) alone");
  add_preset(*identity, o);
  identity->add_option("--json", o.json, "as JSON to this file, or to standard output for -");

  CLI::App* bench = app.add_subcommand("bench", "measurements: oracle, attention, cross_entropy, power");
  bench
      ->add_option("WHAT", o.what,
                   "oracle, attention, cross_entropy, or power: what other tools see of known-wrong functions")
      ->required();
  bench->add_option("PATH", o.file, "for power: a file as for battery [bench/functions/linear_attention.py]");
  bench->add_option("--kernel", o.kernel, "for power: the kernel, where the file is not named after it");
  add_run(*bench, o, /*only=*/false);
  add_preset(*bench, o);
  bench->add_option("--json", o.json, "as JSON to this file, or to standard output for -");
  fractus::cli::GateOptions g;
  CLI::App* gate =
      app.add_subcommand("gate", "may these files be loaded? A signed verdict and a policy decide: 0 or 1");
  fractus::cli::add_gate(*gate, g);
  fractus::cli::CheckpointOptions c;
  CLI::App* checkpoint =
      app.add_subcommand("checkpoint", "names, shapes, dtypes and config of a .pt file, without its data");
  fractus::cli::add_checkpoint(*checkpoint, c);
  fractus::cli::AttestCommands attest;
  fractus::cli::add_attest(app, attest);
  fractus::cli::ReportOptions report_options;
  CLI::App* report = fractus::cli::declare_report(app, report_options);
  app.require_subcommand(0, 1);
  require_values(app);

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    throw fractus::cli::UsageError(e.what());
  }

  require_options_behind_command(app);
  if (*list) return fractus::cli::list(o);
  if (*replay) return fractus::cli::replay(o);
  if (*fuzz) return fractus::cli::fuzz(o);
  if (*golden) return fractus::cli::golden(o);
  if (*battery) return fractus::cli::battery(o);
  if (*identity) return fractus::cli::identity(o);
  if (*bench) return fractus::cli::bench(o);
  if (*gate) return fractus::cli::gate(g);
  if (*checkpoint) return fractus::cli::checkpoint(c);
  if (const auto status = fractus::cli::run_attest(attest)) return *status;
  if (*report) return fractus::cli::report(*report, report_options);
  return fractus::cli::verify(o);
}

}  // namespace

int main(int argc, char** argv) {
  fractus::cli::prepare_process();
  using fractus::cli::say, fractus::visible_lines;
  try {
    return run(argc, argv);
  } catch (const fractus::cli::UsageError& e) {
    // It may quote what a file or a form says.
    say(fmt::format("fractus-verify: {}\nTry: ./fractus-verify --help\n", visible_lines(e.what())));
    return fractus::cli::bad_usage;
  } catch (const fractus::cli::ClosedPipe&) {
    fractus::cli::end_by_closed_pipe();
  } catch (const std::exception& e) {
    say(fmt::format("fractus-verify: {}\n", visible_lines(e.what())));
  } catch (...) {
    say("fractus-verify: something that is no std::exception was thrown\n");
  }
  return fractus::cli::our_failure;
}
