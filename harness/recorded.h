// One recorded call of a golden file: inputs as they are, cotangents g*, gradients d*, results of the double run *_f64;
// parameters under "param.", and where a file holds several calls in a row, what is a call's own under its "chunkN.".
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "contracts/call.h"
#include "properties/driver.h"

namespace fractus {

class Recorded {
 public:
  // `entry` is the file's in index.json; `prefix` that of the call, "chunk0.", or none.
  Recorded(std::filesystem::path file, std::shared_ptr<const std::vector<Array>> arrays, nlohmann::json entry,
           std::string prefix);

  // Throw std::runtime_error that names the file and the tensor or scalar, where one is missing or does not fit. `open`
  // are the scalars that the record says nothing of.
  Case case_of(const Driver& driver, DType dtype, const Dims& open) const;
  Problem problem_of(const Driver& driver, const Case& c) const;
  Answer answer_of(const Driver& driver, const Case& c) const;

 private:
  const Array* find(const std::string& name) const;  // nullptr where there is none
  const Array* find(const std::string& before, const TensorSpec& spec, const std::string& behind) const;
  const Array* cotangent(const TensorSpec& output) const;
  double scalar(const Contract& contract, const ScalarSpec& spec) const;
  [[noreturn]] void fail(const std::string& what) const;
  Array fitted(const Array* found, const std::string& sought, const std::string& name, DType dtype,
               const Shape& wanted) const;

  std::filesystem::path file_;
  std::shared_ptr<const std::vector<Array>> arrays_;
  nlohmann::json entry_;
  std::string prefix_;
};

// The calls that a file holds, one after the other.
std::vector<Recorded> recorded_calls(const std::filesystem::path& file, std::vector<Array> arrays,
                                     const nlohmann::json& entry);

}  // namespace fractus
