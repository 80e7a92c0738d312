// torch.save files, read for the parent, which has no torch.
#include <ATen/ATen.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "harness/worker/run.h"
#include "harness/worker/serve.h"

namespace fractus::worker {
namespace {

std::vector<char> read_all(int fd) {
  std::vector<char> bytes;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0) throw std::runtime_error(std::strerror(errno));
    if (got == 0) return bytes;
    bytes.insert(bytes.end(), buffer, buffer + got);
  }
}

DType dtype_for(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kDouble) return DType::float64;
  if (tensor.is_floating_point()) return DType::float32;
  if (at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) return DType::int64;
  throw std::runtime_error(std::string("a tensor of ") + c10::toString(tensor.scalar_type()));
}

}  // namespace

protocol::Message read_archive(const protocol::Descriptor& file) {
  const std::vector<char> bytes = read_all(file.get());
  if (bytes.empty()) throw std::runtime_error("the file is empty");
  const c10::IValue value = torch::jit::pickle_load(bytes);
  if (!value.isGenericDict()) throw std::runtime_error("wanted a dict of tensors, got " + value.tagKind());

  std::vector<at::Tensor> tensors;
  std::vector<protocol::Placement> placements;
  std::int64_t end = protocol::guard_bytes;
  for (const auto& entry : value.toGenericDict()) {
    if (!entry.key().isString() || !entry.value().isTensor()) continue;
    const at::Tensor tensor = entry.value().toTensor();
    placements.push_back(protocol::place(entry.key().toStringRef(), dtype_for(tensor), tensor.sizes().vec(), end));
    tensors.push_back(tensor);
  }

  protocol::Message answer;
  answer.descriptors.push_back(protocol::shared_memory(end));
  const auto memory = std::make_shared<protocol::Mapping>(answer.descriptors[0].get(), end);
  for (std::size_t i = 0; i < tensors.size(); ++i) tensor_at(memory, placements[i]).copy_(tensors[i].cpu());
  answer.body = {{"bytes", end}, {"tensors", placements}};
  return answer;
}

}  // namespace fractus::worker
