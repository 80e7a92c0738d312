// The device under test, and draws of its tensors: in any strides, with the residues at the ends of their range often.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <boost/multiprecision/cpp_int.hpp>
#include <random>
#include <string>
#include <vector>

#include "field/device.h"

extern "C" fractus::field::OpenDevice fractus_field;

namespace fractus::test {

using Integer = boost::multiprecision::cpp_int;

inline const field::Device& device() {
  static const field::Device opened = [] {
    field::Device result;
    fractus_field(result);
    return result;
  }();
  return opened;
}

// Where a residue is kept: the field, and the type of the tensor.
struct Kind {
  int bits;
  at::ScalarType type;
};
inline const std::vector<Kind> kinds = {{31, at::kFloat}, {31, at::kDouble}, {61, at::kDouble}};

inline Integer modulus(int bits) { return (Integer(1) << bits) - 1; }
inline Integer modulo(const Integer& x, int bits) {
  const Integer rest = x % modulus(bits);
  return rest < 0 ? Integer(rest + modulus(bits)) : rest;
}
// Of x != 0: x^(p-2), by Boost.
inline Integer inverse(const Integer& x, int bits) { return powm(x, modulus(bits) - 2, modulus(bits)); }

// Of the whole range at every size of rapidcheck's.
inline std::int64_t from_to(std::int64_t low, std::int64_t below) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, below));
}

inline std::vector<std::int64_t> drawn_shape(std::int64_t most_dims = 3, std::int64_t most = 5) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(from_to(0, most_dims + 1)));
  for (std::int64_t& extent : shape) extent = from_to(0, most + 1);
  return shape;
}

// Whole numbers of [low, below), the first and the last ones often, as int64 on the CPU. The seed alone is
// rapidcheck's: it would shrink each element.
inline at::Tensor drawn_whole(at::IntArrayRef shape, std::int64_t low, std::int64_t below) {
  std::mt19937_64 random(static_cast<std::uint64_t>(from_to(0, std::int64_t{1} << 40)));
  std::uniform_int_distribution<std::int64_t> any(low, below - 1), end(0, 2), chance(0, 3);
  at::Tensor result = at::empty(shape, at::kLong);
  std::int64_t* const to = result.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    const std::int64_t which = chance(random);
    to[i] = which == 0   ? std::min(low + end(random), below - 1)
            : which == 1 ? std::max(below - 1 - end(random), low)
                         : any(random);
  }
  return result;
}

inline at::Tensor drawn_residues(at::IntArrayRef shape, int bits) {
  return drawn_whole(shape, 0, (std::int64_t{1} << bits) - 1);
}

// A tensor of the device of this shape, whose memory lies as drawn: dense, transposed, expanded over a dimension, every
// second element of a larger one, or behind an offset.
inline at::Tensor drawn(std::vector<std::int64_t> shape, const Kind& kind) {
  const auto made = [&](std::vector<std::int64_t> dense) {
    return device().tensor_of(drawn_residues(dense, kind.bits), kind.type);
  };
  if (shape.empty()) return from_to(0, 2) == 0 ? made({}) : made({3}).select(0, 1);
  const auto dim = static_cast<std::size_t>(from_to(0, static_cast<std::int64_t>(shape.size())));
  std::vector<std::int64_t> other = shape;
  switch (from_to(0, 5)) {
    case 0: std::swap(other.front(), other[dim]); return made(other).transpose(0, static_cast<std::int64_t>(dim));
    case 1: other[dim] = 1; return made(other).expand(shape);
    case 2: other[dim] = 2 * shape[dim] + 1; return made(other).slice(static_cast<std::int64_t>(dim), 1, other[dim], 2);
    case 3: other[dim] += 2; return made(other).narrow(static_cast<std::int64_t>(dim), 1, shape[dim]);
    default: return made(shape);
  }
}

// A shape that broadcasts to the given one: some dimensions of extent 1, some leading ones left out.
inline std::vector<std::int64_t> narrowed(std::vector<std::int64_t> shape) {
  for (std::int64_t& extent : shape)
    if (from_to(0, 3) == 0) extent = 1;
  shape.erase(shape.begin(), shape.begin() + from_to(0, static_cast<std::int64_t>(shape.size()) + 1));
  return shape;
}

inline at::Tensor residues(const at::Tensor& x) { return device().residues_of(x); }

// Elements in row-major order.
inline std::vector<Integer> integers(const at::Tensor& of) {
  const at::Tensor dense = of.contiguous();
  const std::int64_t* const from = dense.const_data_ptr<std::int64_t>();
  return std::vector<Integer>(from, from + dense.numel());
}

inline at::Tensor tensor_of(const std::vector<Integer>& values, at::IntArrayRef shape) {
  at::Tensor result = at::empty(shape, at::kLong);
  for (std::size_t i = 0; i < values.size(); ++i)
    result.mutable_data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(values[i]);
  return result;
}

// Fails where `got` does not hold these residues in this shape.
inline void expect_same(const at::Tensor& got, const at::Tensor& wanted) {
  RC_ASSERT(got.device().is_privateuseone());
  RC_ASSERT(got.sizes().vec() == wanted.sizes().vec());
  RC_ASSERT(integers(residues(got)) == integers(wanted));
}

// The property in each field and each type of tensor.
template <class F>
void in_each_kind(const std::string& what, F property) {
  for (const Kind& kind : kinds) {
    device().use(kind.bits);
    const std::string name = what + " over GF(2^" + std::to_string(kind.bits) + "-1) in " + c10::toString(kind.type);
    EXPECT_TRUE(rc::check(name, [&] { property(kind); }));
  }
}

// What the operation threw, or a text that says that it did not.
template <class F>
std::string error_of(F run) {
  try {
    run();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing was thrown";
}

}  // namespace fractus::test
