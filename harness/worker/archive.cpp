// torch.save files, read for the parent, which has no torch.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
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

constexpr std::int64_t most_elements = std::int64_t{1} << 27;  // of one tensor; the recorded ones have thousands

// The bytes as torch's reader of archives wants to see them.
class Bytes : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit Bytes(const std::vector<char>& bytes) : bytes_(bytes) {}
  size_t size() const override { return bytes_.size(); }
  size_t read(uint64_t position, void* to, size_t count, const char*) const override {
    if (position >= bytes_.size()) return 0;
    count = std::min(count, bytes_.size() - static_cast<size_t>(position));
    std::memcpy(to, bytes_.data() + position, count);
    return count;
  }

 private:
  const std::vector<char>& bytes_;
};

// The content of a file, and how much of each storage is really there.
struct Archive {
  c10::IValue value;
  std::map<const void*, std::int64_t> storage_bytes;  // by where it lies
};

// What torch::jit::pickle_load does, but the size of each record is kept: the unpickler believes what the file says of
// a storage's size, and of a tensor's extents, strides and offset, and checks none of it.
Archive load(const std::vector<char>& bytes) {
  Archive archive;
  caffe2::serialize::PyTorchStreamReader file(std::make_shared<Bytes>(bytes));
  const auto [pickled, size] = file.getRecord("data.pkl");
  std::size_t done = 0;
  const auto read = [&, all = static_cast<const char*>(pickled.get()), size = size](char* to, std::size_t count) {
    count = std::min(count, size - done);
    std::memcpy(to, all + done, count);
    done += count;
    return count;
  };
  const auto read_record = [&](const std::string& name) {
    auto [data, record_size] = file.getRecord("data/" + name);
    archive.storage_bytes[data.get()] = static_cast<std::int64_t>(record_size);
    return std::move(data);
  };
  torch::jit::Unpickler unpickler(read, nullptr, nullptr, read_record, std::nullopt);
  unpickler.set_version(file.version());
  archive.value = unpickler.parse_ivalue();
  return archive;
}

// Throws where the tensor is not what can be read: too large, no plain one, or reaching beyond its storage.
void require_sound(const at::Tensor& tensor, const Archive& archive) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_quantized() || !tensor.has_storage())
    throw std::runtime_error("wanted a dense tensor of numbers");
  std::int64_t elements = 1;
  for (const std::int64_t extent : tensor.sizes()) {
    if (extent < 0) throw std::runtime_error(fmt::format("an extent is {}; wanted 0 or more", extent));
    if (extent > 0 && elements > most_elements / extent)
      throw std::runtime_error(
          fmt::format("shape ({}); wanted at most {} elements", fmt::join(tensor.sizes(), ", "), most_elements));
    elements *= std::max<std::int64_t>(extent, 1);
  }
  if (tensor.numel() == 0) return;
  const auto item = static_cast<double>(tensor.element_size());
  double last = static_cast<double>(tensor.storage_offset());  // as doubles, since hostile numbers overflow an integer
  bool backward = tensor.storage_offset() < 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    backward = backward || tensor.stride(d) < 0;
    last += static_cast<double>(tensor.size(d) - 1) * static_cast<double>(tensor.stride(d));
  }
  const auto record = archive.storage_bytes.find(tensor.storage().data());
  const std::int64_t there = record == archive.storage_bytes.end() ? 0 : record->second;
  if (backward || (last + 1) * item > static_cast<double>(there))
    throw std::runtime_error(fmt::format("shape ({}), strides ({}) and offset {} reach beyond its storage of {} bytes",
                                         fmt::join(tensor.sizes(), ", "), fmt::join(tensor.strides(), ", "),
                                         tensor.storage_offset(), there));
}

}  // namespace

protocol::Message read_archive(const protocol::Descriptor& file) {
  const std::vector<char> bytes = read_all(file.get());
  if (bytes.empty()) throw std::runtime_error("the file is empty");
  const Archive archive = load(bytes);
  const c10::IValue& value = archive.value;
  if (!value.isGenericDict()) throw std::runtime_error("wanted a dict of tensors, got " + value.tagKind());

  std::vector<at::Tensor> tensors;
  std::vector<protocol::Placement> placements;
  std::int64_t end = protocol::guard_bytes;
  for (const auto& entry : value.toGenericDict()) {
    if (!entry.key().isString() || !entry.value().isTensor()) continue;
    const at::Tensor tensor = entry.value().toTensor();
    try {
      require_sound(tensor, archive);
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("tensor '{}': {}", entry.key().toStringRef(), error.what()));
    }
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
