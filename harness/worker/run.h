// One call inside the child: from its description to tensors, the form, the backward, and what can be said of them
// here.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contracts/call.h"
#include "contracts/form.h"
#include "harness/protocol.h"

namespace fractus::worker {

// A request, with its memory mapped. Input tensors share the mapping: one that a form keeps stays valid.
struct Problem {
  const Form* form = nullptr;
  Settings settings;
  Scalars scalars;
  int threads = 1;
  bool backward = false;      // at least one cotangent is there
  bool record_graph = false;  // grad mode, for a backward or because the call asks for it
  std::vector<std::pair<std::size_t, std::size_t>> continues;  // (input, output of the problem before)
  bool backward_twice = false;
  bool audited = false;
  bool watch_memory = false;  // the process's own size, whose reading costs as much as a small call
  std::shared_ptr<protocol::Mapping> memory;
  std::vector<protocol::Placement> output_places;
  std::vector<std::optional<protocol::Placement>> gradient_places;
  std::vector<std::optional<protocol::Placement>> input_places;
  std::vector<std::optional<protocol::Placement>> cotangent_places;
  Tensors inputs;  // what the form is given
  Tensors leaves;  // what gradients are asked of: the inputs, or what they were made from
  Tensors cotangents;
};

// Throws std::exception where the request makes no sense: an unknown form or setting.
Problem read_problem(const protocol::Json& request, const protocol::Descriptor& memory);

at::Tensor tensor_at(const std::shared_ptr<protocol::Mapping>& memory, const protocol::Placement& placement);

struct Outcome {
  Status status = Status::ok;
  std::string message;
  Tensors outputs;
  Tensors gradients;         // by input, undefined where there is none
  std::vector<bool> usable;  // by output: present, on the CPU, of the right shape and dtype
  std::vector<Breach> breaches;
  std::vector<Remark> remarks;  // of an audited problem
  double seconds = 0;
  double forward_seconds = 0;
  std::int64_t forward_peak_extra_bytes = 0;
  std::int64_t saved_bytes = 0;
  std::int64_t peak_extra_bytes = 0;
  std::int64_t resident_growth_bytes = 0;
};

// Does once what torch, its product library and the dynamic linker do at the first call of an operation: a process that
// is forked from this one finds it done. Forward only: a backward here would make torch refuse one in every fork.
void warm_up();

// Runs the form, and the backward where cotangents are there. `checked`: look for breaches and run the second backward.
Outcome run(const Problem& problem, bool checked);

// All forwards in order, then the backwards, the last problem's first where `last_first`. Problems that continue one
// another have one graph and one backward. What one problem's results hold is read only after the others have run.
std::vector<Outcome> run_together(std::vector<Problem>& problems, bool last_first);

// Breaches of kind modified-input: what a form did to the caller's tensors beside their values. `before` are handles of
// the same tensors, made before the call.
void check_inputs_untouched(const Problem& problem, const Tensors& before, Outcome& outcome);

// Breaches of kind count, device, dtype, shape and alias; fills outcome.usable.
void check_outputs(const Problem& problem, Outcome& outcome);

}  // namespace fractus::worker
