#include "harness/protocol.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>

namespace fractus::protocol {
namespace {

constexpr std::uint32_t longest_message = 16u << 20;

[[noreturn]] void fail(const char* what) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

// Reads exactly `size` bytes. `descriptors`, where given, takes what comes beside the first of them.
Delivery read_exactly(int socket, char* data, std::size_t size, Clock::time_point deadline,
                      std::vector<Descriptor>* descriptors) {
  while (size > 0) {
    if (wait_readable(std::array{socket}, deadline) < 0) return Delivery::late;
    iovec vec{data, size};
    alignas(cmsghdr) char control[CMSG_SPACE(most_descriptors * sizeof(int))];
    msghdr header{};
    header.msg_iov = &vec;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return Delivery::ended;
    for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
        Descriptor received(fd);  // closed here unless somebody wants it
        if (descriptors != nullptr) descriptors->push_back(std::move(received));
      }
    }
    data += got;
    size -= static_cast<std::size_t>(got);
  }
  return Delivery::message;
}

std::int64_t rounded_up(std::int64_t bytes) { return (bytes + guard_bytes - 1) / guard_bytes * guard_bytes; }

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Mapping::Mapping(int fd, std::int64_t bytes) : bytes_(bytes) {
  void* data = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (data == MAP_FAILED && errno == ENOMEM) throw std::bad_alloc();
  if (data == MAP_FAILED) fail("cannot map shared memory");
  data_ = static_cast<std::byte*>(data);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
}

Descriptor shared_memory(std::int64_t bytes) {
  Descriptor memory(memfd_create("fractus", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ftruncate(memory.get(), bytes) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail("cannot make shared memory");
  return memory;
}

std::pair<Descriptor, Descriptor> channel() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("cannot make a socket pair");
  std::pair<Descriptor, Descriptor> result(ends[0], ends[1]);
  const timeval patience{5, 0};  // a reader that has stopped to read counts as gone
  for (int fd : ends) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  return result;
}

bool send(int socket, const Json& body, std::span<const int> descriptors) {
  // What a candidate throws need not be UTF-8.
  const std::string text = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto length = static_cast<std::uint32_t>(text.size());
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  bytes += text;

  alignas(cmsghdr) char control[CMSG_SPACE(most_descriptors * sizeof(int))] = {};
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    iovec vec{bytes.data() + sent, bytes.size() - sent};
    msghdr header{};
    header.msg_iov = &vec;
    header.msg_iovlen = 1;
    if (sent == 0 && !descriptors.empty()) {
      header.msg_control = control;
      header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
      cmsghdr* part = CMSG_FIRSTHDR(&header);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
      std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
    }
    const ssize_t count = sendmsg(socket, &header, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    sent += static_cast<std::size_t>(count);
  }
  return true;
}

Received receive(int socket, Clock::time_point deadline) {
  Received received;
  std::uint32_t length = 0;
  received.delivery =
      read_exactly(socket, reinterpret_cast<char*>(&length), sizeof length, deadline, &received.message.descriptors);
  if (received.delivery != Delivery::message) return received;
  if (length > longest_message) throw std::runtime_error(fmt::format("a message of {} bytes", length));
  std::string text(length, '\0');
  received.delivery = read_exactly(socket, text.data(), text.size(), deadline, nullptr);
  if (received.delivery != Delivery::message) return received;
  received.message.body = Json::parse(text, nullptr, false);
  if (!received.message.body.is_object()) throw std::runtime_error("a message that is no JSON object");
  return received;
}

int wait_readable(std::span<const int> descriptors, Clock::time_point deadline) {
  std::vector<pollfd> polled;
  for (int fd : descriptors) polled.push_back({fd, POLLIN, 0});
  while (true) {
    timespec left{};
    if (deadline != never) {
      const auto nanoseconds = std::max<std::int64_t>(
          0, std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count());
      left = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    }
    const int ready = ppoll(polled.data(), polled.size(), deadline == never ? nullptr : &left, nullptr);
    for (std::size_t i = 0; ready > 0 && i < polled.size(); ++i)
      if (polled[i].revents != 0) return static_cast<int>(i);
    if (ready == 0) return -1;
    if (errno != EINTR) fail("cannot wait for the worker");
  }
}

Json json_of(const Scalars& scalars) {
  Json json = Json::object();
  for (const auto& [name, value] : scalars) json[name] = std::bit_cast<std::uint64_t>(value);
  return json;
}

Scalars scalars_from(const Json& json) {
  Scalars scalars;
  for (const auto& [name, bits] : json.items()) scalars[name] = std::bit_cast<double>(bits.get<std::uint64_t>());
  return scalars;
}

void to_json(Json& json, const Placement& placement) {
  json = Json{{"name", placement.name},
              {"dtype", name(placement.dtype)},
              {"shape", placement.shape},
              {"strides", placement.strides},
              {"base", placement.base},
              {"storage_offset", placement.storage_offset},
              {"storage_bytes", placement.storage_bytes}};
}

void from_json(const Json& json, Placement& placement) {
  json.at("name").get_to(placement.name);
  placement.dtype = dtype_from(json.at("dtype").get_ref<const std::string&>());
  json.at("shape").get_to(placement.shape);
  json.at("strides").get_to(placement.strides);
  json.at("base").get_to(placement.base);
  json.at("storage_offset").get_to(placement.storage_offset);
  json.at("storage_bytes").get_to(placement.storage_bytes);
}

Json json_of(const std::vector<Remark>& remarks) {
  Json list = Json::array();
  for (const Remark& remark : remarks)
    list.push_back({{"kind", remark.kind},
                    {"operation", remark.operation},
                    {"place", remark.place},
                    {"detail", remark.detail},
                    {"count", remark.count}});
  return list;
}

std::vector<Remark> remarks_from(const Json& json) {
  std::vector<Remark> remarks;
  for (const Json& each : json)
    remarks.push_back({.kind = each.at("kind").get<std::string>(),
                       .operation = each.at("operation").get<std::string>(),
                       .place = each.at("place").get<std::string>(),
                       .detail = each.at("detail").get<std::string>(),
                       .count = each.at("count").get<std::int64_t>()});
  return remarks;
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<std::int64_t>(1, shape[d]);
  return strides;
}

Placement place(std::string name, DType dtype, Shape shape, std::int64_t& end) {
  Placement placement{std::move(name), dtype, std::move(shape)};
  placement.strides = contiguous_strides(placement.shape);
  placement.base = rounded_up(end);
  placement.storage_bytes = element_count(placement.shape) * static_cast<std::int64_t>(item_size(dtype));
  end = placement.base + placement.storage_bytes + guard_bytes;
  return placement;
}

}  // namespace fractus::protocol
