// What fractus-field.so hands over: the torch device `field`, whose floats are elements of a finite field. The worker
// opens the library only for a call over a field (contracts/field_call.h), Python by torch.ops.load_library.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "contracts/field_call.h"

namespace fractus::field {

// What happened between `start` and `finish`.
struct Record {
  std::optional<FieldStatus> stop;  // not_algebraic or pole: the first, also where the form caught the exception
  std::vector<Remark> remarks;      // those alike once, with their count; where `stop` is not_algebraic, its own last
  std::vector<Step> trace;
};

struct Device {
  // The field of the process: 31 or 61 bits. Tensors of another field are refused from then on.
  std::function<void(int bits)> use;
  // Of int64 on the CPU, each in [0, p), a tensor of the device. At 61 bits it is float64 whatever is asked for.
  std::function<at::Tensor(const at::Tensor& residues, at::ScalarType)> tensor_of;
  // The inverse: int64 on the CPU, in the tensor's shape. Throws c10::Error where it is no float tensor of the device.
  std::function<at::Tensor(const at::Tensor&)> residues_of;
  // Asked at each remark for the place in the source, on whatever thread the operation runs; empty text: unknown, and
  // the current node of autograd stands in, if there is one.
  std::function<void(std::function<std::string()>)> set_place;
  std::function<void(bool traced)> start;  // forgets what was recorded
  std::function<Record()> finish;
};

// What the library exports as `fractus_field`.
using OpenDevice = void(Device& device);

}  // namespace fractus::field
