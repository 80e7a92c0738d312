// A form is one way to compute a kernel: a reference, a candidate or a known-wrong variant. It is one file that
// registers itself; the worker, and nothing else, runs it. This header sees torch, so only those files include it.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <source_location>
#include <string>
#include <vector>

#include "contracts/contract.h"

namespace fractus {

using Tensors = std::vector<at::Tensor>;  // in the contract's order; an undefined tensor is an absent one

// A form's own parameters, for instance {"block": 64}. They change how it computes, never what.
using Settings = std::map<std::string, std::int64_t>;

enum class Role { reference, candidate, wrong };

// What a form claims of itself, and the harness enforces.
struct Declarations {
  bool bit_equal_reruns = true;       // the same call twice gives the same bits
  bool bit_equal_threads = false;     // ... and with another number of threads
  bool bit_equal_neighbours = false;  // ... and when other groups share the batch
  // Extra elements that a forward without gradients holds at its peak beside inputs and outputs, as a function of the
  // extents and settings; empty where the form declares nothing.
  std::function<std::int64_t(const Dims&, const Settings&)> extra_elements;
  // A form of the same kernel that this one runs again in its backward instead of keeping what that needs: results are
  // those of that form to the bit, and less is kept. Empty: none.
  std::string recomputes;
  // The most additions that any term of the kernel's longest sum goes through (cross_entropy: the sum over the
  // vocabulary): the bound is tightened to it. Empty: any order, as many as there are terms.
  std::function<std::int64_t(const Dims&, const Settings&)> add_depth;
};

struct Form {
  std::string kernel;
  std::string name;
  Role role = Role::candidate;
  std::string summary;  // one line; for a wrong form what is wrong and where it shows
  Settings settings;    // parameters and their defaults; every value from 1 on is valid
  Declarations declares;
  std::function<Tensors(const Tensors& inputs, const Scalars& scalars, const Settings& settings)> run;
  // Of a wrong form: the property that is expected to catch it, and its variant where one alone can ("repeat layers").
  // Those cases are tried first. A hint, which saves time.
  std::string shown_by;
  // Of a form in another language: called when the results of a call are gone. It frees what only that language's
  // garbage still holds, and gives a sentence for each thing in the language's global state that the form changed.
  std::function<std::vector<std::string>()> settle;
};

const std::vector<Form>& forms();
const Form* find_form(std::string_view kernel, std::string_view name);  // nullptr where there is none

// `static const Registration registered{{...}};` at the end of a form's file. A name that is taken would leave it to
// the link order which of the two is judged, so such a form is refused: it is not kept, and a complaint is.
struct Registration {
  explicit Registration(Form form, std::source_location where = std::source_location::current());
};

// Adds a form that came from outside of this build, under whatever name the user gave it.
const Form& add_form(Form form);

// One sentence for each registration that was refused, with the file it stands in. No form may be judged while there
// are any.
const std::vector<std::string>& refused_registrations();

// Throws std::invalid_argument that names the tensor, what was wanted and what was got, where the inputs break the
// contract: a wrong number of tensors, a required one missing, an extent, dtype or device that does not fit.
void check_inputs(const Contract& contract, const Tensors& inputs);

// The extents of a call, and its whole scalars.
Dims dims_of(const Contract& contract, const Tensors& inputs, const Scalars& scalars);

}  // namespace fractus
