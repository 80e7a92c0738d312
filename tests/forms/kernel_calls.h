// Calls of a kernel by its contract, and whether a form is right on one: its numbers and gradients against the kernel's
// reference in float64, what it leaves behind, and what becomes of it with other calls between.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "contracts/form.h"

namespace fractus::kernel_calls {

using at::Tensor;
using Named = std::map<std::string, Tensor>;

struct Case {
  std::string name;
  Dims dims;  // extents and whole scalars
  Scalars scalars;
  at::ScalarType dtype = at::kDouble;
  std::function<void(Named&)> adjust;  // of random normal inputs, in double
  std::vector<std::string> absent;     // optional inputs
  double cotangent = 1;                // what the random cotangents are multiplied by
  bool gradients = true;
  bool computed = false;  // inputs are results themselves
  bool no_grad_mode = false;
  bool crowded = false;  // other calls of its shape come before, between forward and backward, and after
  int threads = 1;
};

struct Kernel {
  const Contract* contract;
  std::string reference;
  std::vector<Case> cases;
  // What two right forms agree in: angles as points on the circle, a selection whatever its order.
  std::function<Tensors(const Tensors& outputs)> settled;

  const Case& named(const std::string& name) const;  // throws std::out_of_range
  const Form& form(const std::string& name) const;   // throws std::out_of_range
};

Tensors made(const Kernel& kernel, const Case& c, std::uint64_t seed);

// A forward with its graph; a call with the case's scalars.
struct Under {
  Tensors outputs, leaves;
  // By input, undefined where none arrives. `times` multiplies the case's cotangents.
  Tensors gradients(const Kernel& kernel, const Case& c, double times = 1) const;
};
Under forward(const Kernel& kernel, const Form& form, const Case& c, const Tensors& inputs);

// "" where the form is right on the case.
std::string broken(const Kernel& kernel, const Form& form, const Case& c);

// A form, a case on which it is wrong, and one on which it is right, or none.
struct Row {
  std::string form, wrong_on, right_on;
};

// Of the common faults (fixtures/faults.h): STEM as there, and cases of these names.
std::vector<Row> common_rows(const std::string& stem);

// One sentence for each row that does not hold, and for each wrong form of the kernel that no row is about.
// `right_in_numbers`: wrong in bits or memory, and right on every case.
std::vector<std::string> complaints(const Kernel& kernel, std::vector<Row> rows,
                                    const std::vector<std::string>& right_in_numbers);

}  // namespace fractus::kernel_calls
