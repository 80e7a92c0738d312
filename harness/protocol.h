// What the harness and its worker say to each other: length-prefixed JSON over a Unix socket, with file descriptors
// beside it, and where a tensor lies in shared memory. Both sides compile this; it knows nothing of torch.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contracts/array.h"
#include "contracts/contract.h"
#include "contracts/remark.h"
#include "harness/clock.h"

namespace fractus::protocol {

using Json = nlohmann::json;
inline constexpr Clock::time_point never = Clock::time_point::max();

// Every byte that nobody has written yet. Four or eight of them are a NaN.
inline constexpr unsigned char poison = 0xFF;
inline constexpr std::int64_t guard_bytes = 64;  // before and after every tensor; also what tensors are aligned to

inline constexpr std::size_t most_descriptors = 32;  // beside one message

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Owns a shared, writable mapping of a whole file.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int fd, std::int64_t bytes);  // throws std::bad_alloc or std::runtime_error
  Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

// Anonymous memory to be shared, sealed against resizing: nobody can pull it away under the other side's hands.
Descriptor shared_memory(std::int64_t bytes);

struct Message {
  Json body;
  std::vector<Descriptor> descriptors;
};

enum class Delivery { message, ended, late };

struct Received {
  Delivery delivery = Delivery::ended;
  Message message;
};

std::pair<Descriptor, Descriptor> channel();  // throws std::runtime_error

// False where the other side is gone or has stopped to read.
bool send(int socket, const Json& body, std::span<const int> descriptors = {});

// Throws std::runtime_error where what arrives is no message.
Received receive(int socket, Clock::time_point deadline = never);

// Waits until one of the descriptors can be read: the position of the first that can, or -1 after the deadline.
int wait_readable(std::span<const int> descriptors, Clock::time_point deadline);

// A tensor in shared memory: storage_bytes from `base` on belong to it, the element at index i of dimension d is
// storage_offset + i·strides[d] elements further.
struct Placement {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  Shape strides;
  std::int64_t base = 0;
  std::int64_t storage_offset = 0;
  std::int64_t storage_bytes = 0;
};

// Scalars by their bits: JSON has no NaN, which a call may be tried with.
Json json_of(const Scalars& scalars);
Scalars scalars_from(const Json& json);

void to_json(Json& json, const Placement& placement);
void from_json(const Json& json, Placement& placement);

Json json_of(const std::vector<Remark>& remarks);
// Throws where it is no list of remarks.
std::vector<Remark> remarks_from(const Json& json);

Shape contiguous_strides(const Shape& shape);

// A contiguous tensor placed at the first fitting offset from `end` on; `end` moves behind its guard band.
Placement place(std::string name, DType dtype, Shape shape, std::int64_t& end);

}  // namespace fractus::protocol
