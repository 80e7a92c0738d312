// The command that a pod obeys. A check that is asked for is a part of one answer; each part's options and what runs it
// stand in a file of their own.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "cli/gate_heart.h"
#include "gate/refusal.h"

namespace fractus::cli {

struct GateOptions {
  std::string policy, policy_sha256, envelope, machine = "auto", torch, json;
  std::vector<std::string> artifacts;
  HeartOptions heart;
};

// One check as the command line asks for it.
struct GatePart {
  std::string name;    // "envelope"
  std::string asking;  // the options that ask for it, for whoever did not
  bool asked = false;
  std::function<gate::Answer()> run;  // called once, where it was asked for
  bool by_policy = false;             // not to be run where the policy is not the one that was named
};

void add_gate(CLI::App& app, GateOptions& options);

// 0 admitted, 1 refused; throws as the other commands do.
int gate(const GateOptions& options);

}  // namespace fractus::cli
