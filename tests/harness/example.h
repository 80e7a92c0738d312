// What the tests of the worker share: the test worker, and a small call of one of its forms.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "harness/process.h"
#include "properties/driver.h"

namespace fractus {

using namespace std::chrono_literals;

inline std::filesystem::path test_worker() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fractus-test-worker";
}

// One fork server for all tests that do it no harm.
inline Workshop& workshop() {
  static Workshop shared(test_worker());
  return shared;
}

// The same with the forms of the build.
inline Workshop& real_workshop() {
  static Workshop shared(test_worker().parent_path() / "fractus-worker");
  return shared;
}

inline const Driver& driver() { return *find_driver("linear_attention"); }

// Values start + 0.1, start + 0.2, ...
inline Array tensor(std::string name, Shape shape, double start, DType dtype = DType::float32) {
  Array array = zeros(std::move(name), dtype, std::move(shape));
  for (double& value : array.values) value = rounded(start += 0.1, dtype);
  return array;
}

// G 2, T 3, D 4.
inline Call example(const std::string& form, DType dtype = DType::float32) {
  Call call;
  call.kernel = "linear_attention";
  call.form = form;
  call.inputs = {tensor("q", {2, 3, 4}, 1, dtype), tensor("k", {2, 3, 4}, 2, dtype), tensor("v", {2, 3, 4}, 3, dtype),
                 tensor("S0", {2, 4, 4}, 4, dtype), tensor("z0", {2, 4}, 5, dtype)};
  return call;
}

inline Call with_backward(Call call) {
  call.cotangents = {tensor("y", {2, 3, 4}, 1), std::nullopt, tensor("z", {2, 4}, 2)};
  call.gradients = {true, true, false, false, false};
  return call;
}

// Inputs and cotangents alike.
inline void lay_out(Call& call, Layout layout) {
  for (const char* tensor : {"q", "k", "v", "S0", "z0", "dy", "dS", "dz"}) call.layouts[tensor] = layout;
}

// From a fresh process.
inline Answer answer_to(const Call& asked) {
  Process process = workshop().spawn();
  return call(process, asked, 20s);
}

}  // namespace fractus
