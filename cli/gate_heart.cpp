#include "cli/gate_heart.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/gate.h"
#include "cli/streams.h"
#include "cli/usage.h"
#include "gate/checkpoint.h"
#include "gate/curve.h"
#include "gate/manifest.h"
#include "reports/words.h"

namespace fractus::cli {
namespace {

gate::CurveQuestion curve_question(const HeartOptions& o) {
  gate::CurveQuestion question{.log = o.curve};
  if (!o.curve_new.empty()) question.log_after = o.curve_new;
  if (o.swap_at >= 0) question.swap = o.swap_at;
  return question;
}

}  // namespace

void add_heart(CLI::App& app, HeartOptions& o) {
  app.add_option("--checkpoint", o.checkpoint, "of the run as it is: a .pt file, or its schema as .json");
  app.add_option("--checkpoint-new", o.checkpoint_new,
                 "of the new code: names, shapes, dtypes and config must be the same");
  app.add_flag("--nan", o.nan, "read the new checkpoint's data too: no NaN, no infinity");
  app.add_option("--config-may-change", o.config_may_change,
                 "settings of the config that may differ, separated by commas")
      ->delimiter(',');
  app.add_option("--manifest", o.manifest, "RESUME_MANIFEST.json: does every gpu resume at its exact token?");
  const CLI::Range steps(std::int64_t{1}, std::int64_t{1} << 40);
  app.add_option("--batch", o.batch, "for --manifest: sequences of a step")->check(steps);
  app.add_option("--seq", o.sequence, "for --manifest: tokens of a sequence")->check(steps);
  app.add_option("--ladder", o.ladder, "the escalation's state: its steps in order, each admitted by --policy");
  app.add_option("--curve", o.curve, "the trainer's log: does the run go on within its own noise?");
  app.add_option("--curve-new", o.curve_new, "the new code's log, where it has one of its own");
  app.add_option("--swap-at", o.swap_at,
                 "in one log: the new code's first step, or its first line where there is no step=")
      ->check(CLI::NonNegativeNumber);
}

void require_pairs(const HeartOptions& o, bool policy) {
  if (o.checkpoint.empty() != o.checkpoint_new.empty())
    throw UsageError("checkpoints are compared with both: --checkpoint FILE and --checkpoint-new FILE");
  if (o.checkpoint.empty() && (o.nan || !o.config_may_change.empty()))
    throw UsageError("--nan and --config-may-change belong to --checkpoint and --checkpoint-new");
  if (!o.manifest.empty() && (o.batch == 0 || o.sequence == 0))
    throw UsageError("a manifest is checked with both: --batch B and --seq T, of the run that is to resume");
  if (o.manifest.empty() && (o.batch != 0 || o.sequence != 0))
    throw UsageError("--batch and --seq belong to --manifest");
  if (!o.ladder.empty() && !policy) throw UsageError("--ladder admits envelopes by a policy; name it with --policy");
  if (o.curve.empty() && (!o.curve_new.empty() || o.swap_at >= 0))
    throw UsageError("--curve-new and --swap-at belong to --curve");
  if (!o.curve.empty() && o.curve_new.empty() == (o.swap_at < 0))
    throw UsageError("a curve is checked with one of the two: --swap-at N in one log, or --curve-new FILE");
}

std::vector<GatePart> heart_parts(const HeartOptions& o) {
  return {{"checkpoint", "--checkpoint --checkpoint-new", !o.checkpoint.empty(),
           [&] {
             return gate::check_checkpoint({o.checkpoint, o.checkpoint_new, o.nan, o.config_may_change});
           }},
          {"manifest", "--manifest --batch --seq", !o.manifest.empty(),
           [&] {
             return gate::check_manifest({o.manifest, o.batch, o.sequence});
           }},
          {"curve", "--curve --swap-at", !o.curve.empty(), [&] { return gate::check_curve(curve_question(o)); }}};
}

void add_checkpoint(CLI::App& app, CheckpointOptions& o) {
  app.add_option("FILE", o.file, "a .pt file, or a schema as .json")->required();
  app.add_option("--json", o.json, "its schema to this file, or to standard output for -");
}

int checkpoint(const CheckpointOptions& o) {
  gate::Form form;
  try {
    form = gate::form_of(o.file);
  } catch (const gate::Unreadable& fault) {
    const gate::Refusal refusal = gate::refusal_of(fault, o.file, "checkpoint");
    say(fmt::format("fractus-verify: {}\n  -> {}\n", visible(refusal.fact), visible(refusal.remedy)));
    return 1;
  }
  if (o.json != "-") {
    std::string text = fmt::format("{} tensors\n", form.tensors.size());
    for (const auto& [name, tensor] : form.tensors)
      text += fmt::format("  {} {} ({})\n", visible(name), tensor.dtype, fmt::join(tensor.shape, ", "));
    if (form.tied)
      for (const auto& group : *form.tied)
        text += fmt::format("  tied: {}\n", visible(fmt::format("{}", fmt::join(group, " = "))));
    if (form.config) text += fmt::format("config {}\n", visible(form.config->dump()));
    print_whole(text);
  }
  if (!o.json.empty()) write_json(o.json, gate::schema_of(form).dump(1) + "\n");
  return 0;
}

}  // namespace fractus::cli
