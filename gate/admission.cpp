#include "gate/admission.h"

#include <fmt/format.h>

#include <optional>

#include "attest/envelope.h"
#include "attest/files.h"
#include "attest/statement.h"
#include "gate/members.h"
#include "gate/verdict.h"

namespace fractus::gate {
namespace {

constexpr const char* check = "signature";

std::string ids(const std::vector<attest::PublicKey>& keys) {
  std::vector<std::string> names;
  for (const attest::PublicKey& key : keys) names.push_back(attest::keyid(key));
  return shown(names);
}

// The statement, where one of the policy's keys signed it.
std::optional<attest::Signed> opened(const Policy& policy, const std::filesystem::path& file, Answer& answer) {
  const std::string again = "make the envelope again with --sign and a key of the policy, and copy it whole";
  std::string text;
  try {
    text = read_whole(file);
    const attest::Envelope envelope = attest::envelope_from(text, fmt::format("'{}'", file.string()));
    if (!attest::verified_by(envelope, policy.keys)) {
      if (const auto revoked = attest::verified_by(envelope, policy.revoked))
        answer.refusals.push_back({check, fmt::format("the key that signed it, {}, is revoked by the policy", *revoked),
                                   "verify the candidate again, and sign with a key that is not revoked"});
      else
        answer.refusals.push_back({check,
                                   fmt::format("none of the policy's keys ({}) signed it as it is", ids(policy.keys)),
                                   "it was changed after it was signed, or another key signed it: " + again});
      return std::nullopt;
    }
  } catch (const std::exception& fault) {
    answer.refusals.push_back({check, fault.what(), again});
    return std::nullopt;
  }
  try {
    return attest::open_envelope(text, policy.keys, fmt::format("'{}'", file.string()));
  } catch (const std::exception& fault) {
    answer.refusals.push_back(
        {"statement", fault.what(), "give the envelope that --sign of this version of fractus-verify wrote"});
    return std::nullopt;
  }
}

}  // namespace

Admission admit(const Circumstances& circumstances, const std::filesystem::path& envelope,
                const std::vector<std::filesystem::path>& artifacts) {
  const auto& [policy, machine, clock] = circumstances;
  Admission admission;
  Answer& answer = admission.answer;
  if (const std::string why = implausible(clock); !why.empty())
    answer.refusals.push_back({"clock", "this machine's clock cannot be believed: " + why,
                               "set the clock, for instance by NTP; no expiry can be judged without it"});
  const auto signed_by = opened(policy, envelope, answer);
  admission.artifacts = read_artifacts(artifacts, answer);
  if (!signed_by) {
    admission.not_looked_at = {"artifact", "verdict", "kernel", "scope", "extent", "power", "plan", "time", "machine"};
    return admission;
  }
  admission.keyid = signed_by->keyid;
  admission.predicate = signed_by->statement.predicate;
  answer.checked.push_back({check, fmt::format("by the key {}", admission.keyid)});
  answer.add(artifacts_admitted(policy, signed_by->statement, admission.artifacts));
  answer.add(verdict_admitted(policy, admission.predicate));
  answer.add(age_admitted(policy, admission.predicate, clock));
  answer.add(machine_admitted(policy, admission.predicate, machine));
  return admission;
}

}  // namespace fractus::gate
