// What the library exports: to the worker by field/device.h, to Python as torch.ops.fractus_field.
#include "field/device.h"

#include <nlohmann/json.hpp>

#include "field/record.h"
#include "field/run.h"

namespace fractus::field {
namespace {

at::Tensor tensor_of(const at::Tensor& residues, at::ScalarType type) {
  TORCH_CHECK(residues.is_cpu() && residues.scalar_type() == at::kLong,
              "field: wanted residues of int64 on the CPU, got ", residues.scalar_type(), " on '", residues.device(),
              "'");
  TORCH_CHECK(at::isFloatingType(type), "field: wanted a float type for a tensor of residues, got ", type);
  const auto p = static_cast<std::int64_t>(modulus());
  TORCH_CHECK(
      residues.numel() == 0 || (residues.min().item<std::int64_t>() >= 0 && residues.max().item<std::int64_t>() < p),
      "field: wanted residues from 0 to ", p - 1, " of GF(2^", bits(), "-1), got one outside");
  const at::ScalarType held = field_type(type);
  return wrapped(residues.detach().to(slot_type(held), false, /*copy=*/true), held);
}

at::Tensor residues_of(const at::Tensor& x) {
  TORCH_CHECK(is_field(x), "field: wanted floats of the device 'field', got ",
              x.defined() ? name_of(x.scalar_type()) : "nothing", x.defined() ? " of '" + x.device().str() + "'" : "");
  return slots(x).to(at::kLong, false, /*copy=*/true).contiguous();
}

std::string remarks_as_json() {
  nlohmann::json list = nlohmann::json::array();
  for (const Remark& each : record_so_far().remarks)
    list.push_back({{"kind", each.kind},
                    {"operation", each.operation},
                    {"place", each.place},
                    {"detail", each.detail},
                    {"count", each.count}});
  return list.dump();
}

}  // namespace
}  // namespace fractus::field

extern "C" __attribute__((visibility("default"))) void fractus_field(fractus::field::Device& device) {
  using namespace fractus::field;
  device = {use, tensor_of, residues_of, set_place, start_record, finish_record};
}

// As set_place, for a caller without C++: `write` puts a text of at most size-1 characters and a 0 into the buffer.
extern "C" __attribute__((visibility("default"))) void fractus_field_place(void (*write)(char* buffer,
                                                                                         std::size_t size)) {
  fractus::field::set_place([write] {
    char text[256] = "";
    write(text, sizeof text);
    return std::string(text);
  });
}

TORCH_LIBRARY(fractus_field, library) {
  using namespace fractus::field;
  library.def("use(int bits) -> ()", [](std::int64_t bits) { use(static_cast<int>(bits)); });
  library.def("bits() -> int", [] { return static_cast<std::int64_t>(bits()); });
  library.def("tensor(Tensor residues, ScalarType dtype) -> Tensor", tensor_of);
  library.def("residues(Tensor x) -> Tensor", residues_of);
  library.def("remarks() -> str", remarks_as_json);
  library.def("forget() -> ()", [] { start_record(/*traced=*/false); });
}
