// One call of a form and what came back: the whole conversation between the harness and a candidate.
// A call holds inputs only; what the result should be is never near the process that computes it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contracts/array.h"
#include "contracts/contract.h"
#include "contracts/remark.h"

namespace fractus {

// How a tensor lies in memory. Values are the same in each; those of an expanded tensor have to be equal along what is
// expanded, and the caller sees to it. A tensor with too few dimensions for a layout is contiguous.
enum class Layout {
  contiguous,
  offset,           // contiguous, one element behind the border that whole vectors are aligned to
  transposed,       // the two outermost dimensions change places in memory: x.transpose(0, 1).contiguous() and back
  column_major,     // the two innermost ones do
  sliced,           // every second element of the innermost dimension of a wider, offset buffer
  packed,           // the middle third of rows three times as wide, as q, k and v come from one projection
  padded,           // the first part of longer rows, from the buffer's start, as where a width is padded to a multiple
  shared,           // the very memory of the input before it that has its shape, whose values it takes
  expanded,         // outermost stride 0: one group's values for all groups
  expanded_middle,  // the second of three dimensions has stride 0: one token's values for all tokens
  expanded_inner,   // innermost stride 0
  broadcast,        // every stride 0: one number, which is what y.sum() sends back as the cotangent of y
};

inline constexpr Layout all_layouts[] = {Layout::contiguous,      Layout::offset,         Layout::transposed,
                                         Layout::column_major,    Layout::sliced,         Layout::packed,
                                         Layout::padded,          Layout::shared,         Layout::expanded,
                                         Layout::expanded_middle, Layout::expanded_inner, Layout::broadcast};

std::string_view name(Layout layout);
Layout layout_from(std::string_view text);  // throws std::invalid_argument

// The dimensions of stride 0 that a layout gives a tensor of this rank.
std::vector<bool> expanded_dims(Layout layout, std::size_t rank);

// The input before `i` whose memory a shared one takes: the first of its shape.
std::optional<std::size_t> shared_with(const std::vector<std::optional<Array>>& inputs, std::size_t i);

// By tensor: an input's own name, "dy" for the cotangent of the output y. One that is not named is contiguous.
using Layouts = std::map<std::string, Layout>;
Layout layout_of(const Layouts& layouts, const std::string& tensor);

// An input that is rows of another one, as the embedding of tokens is of the matrix that also makes the logits: it is
// looked up in the call, and its gradient joins the other's.
struct Tied {
  std::size_t input = 0, from = 0;
  std::vector<std::int64_t> rows;  // of `from`, one for each row of `input`
};

struct Call {
  std::string kernel;
  std::string form;
  std::map<std::string, std::int64_t> settings;  // over the form's defaults
  std::vector<std::optional<Array>> inputs;      // in the contract's order
  Scalars scalars;
  Layouts layouts;
  // Backward runs where at least one cotangent is present; an absent one means that nothing flows into that output.
  std::vector<std::optional<Array>> cotangents;  // in the order of the outputs
  std::vector<bool> gradients;                   // by input: does it require a gradient
  int threads = 1;
  bool backward_twice = false;  // a second backward through the same graph must give the same bits
  bool record_graph = false;    // without cotangents: grad mode on all the same
  bool computed_inputs =
      false;  // inputs are results themselves, as in a model, and the gradients those of what they came from
  bool watch_memory = false;    // Answer::resident_growth_bytes and heap_bytes are wanted
  bool audited = false;         // Answer::remarks is wanted
  bool tracked_inputs = false;  // `gradients` holds with grad mode off too, as under torch.no_grad()
  // In a chain of calls, pairs (input, output): that input is this output of the call before, graph and all, and is
  // absent from `inputs`.
  std::vector<std::pair<std::size_t, std::size_t>> continues;
  std::optional<Tied> tied;
};

// A fact about the call that no number shows. `kind` is a stable word: shape, dtype, device, count, alias,
// modified-input, guard, unwritten, attached, second-backward, global-state.
struct Breach {
  std::string kind;
  std::string text;
};

enum class Status {
  ok,
  raised,   // the form threw; `message` is what it said
  crashed,  // the process ended by a signal or by exit; `message` names it
  timed_out,
  out_of_memory,
};

struct Answer {
  Status status = Status::ok;
  std::string message;
  std::vector<Array> outputs;                   // those of the right shape and dtype, else an empty Array
  std::vector<std::optional<Array>> gradients;  // by input; absent where none was asked for or none arrived
  std::vector<Breach> breaches;
  double seconds = 0;  // forward and backward, without the transfer
  double forward_seconds = 0;
  std::int64_t peak_extra_bytes =
      0;  // most bytes held by torch's allocator in the forward, inputs and outputs not counted
  std::int64_t peak_with_backward_bytes =
      0;                         // the same over forward and backward, inputs, outputs and gradients not counted
  std::int64_t saved_bytes = 0;  // of tensors, held between forward and backward beside inputs and outputs
  std::int64_t peak_resident_bytes = 0;    // of the process so far
  std::int64_t resident_growth_bytes = 0;  // by which the forward raised the most that the process ever held; likewise
  std::int64_t kept_bytes = 0;             // of tensors, still held when all results were gone
  std::int64_t heap_bytes = 0;             // of the process's heap, before the call; 0 unless memory is watched
  std::vector<Remark> remarks;             // of an audited call
  std::int64_t add_depth = 0;              // what the form declares of this call (Declarations::add_depth); 0: nothing
};

// What a form says of its memory. The function that says it is the form's own code: it may fail like any call.
struct Declared {
  std::optional<std::int64_t> elements;  // beside inputs and outputs; absent where nothing is declared
  bool timed_out = false;                // asking again would cost as much again
  std::string trouble;                   // why what is declared cannot be had; empty where it can
};

}  // namespace fractus
