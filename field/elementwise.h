// A function of residues, element by element, over tensors of the CPU that hold them in slots.
#pragma once

#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>

#include <array>
#include <cstdint>

namespace fractus::field {

// out[i] = f(in[i]...), broadcast, in the slots' type; all of `in` have it too. `out` has the broadcast shape, and may
// be one of `in`. f takes and gives std::uint64_t.
template <class Slot, class Out, std::size_t n, class F>
void for_each_element(const at::Tensor& out, const std::array<at::Tensor, n>& in, const F& f) {
  auto config = at::TensorIteratorConfig();
  config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false).add_output(out);
  for (const at::Tensor& x : in) config.add_const_input(x);
  auto iterator = config.build();
  const auto at_index = [&]<std::size_t... k>(char** data, const std::int64_t* strides, std::int64_t i,
                                              std::index_sequence<k...>) {
    *reinterpret_cast<Out*>(data[0] + i * strides[0]) = static_cast<Out>(
        f(static_cast<std::uint64_t>(*reinterpret_cast<const Slot*>(data[k + 1] + i * strides[k + 1]))...));
  };
  iterator.for_each([&](char** data, const std::int64_t* strides, std::int64_t count) {
    bool dense = strides[0] == sizeof(Out);
    for (std::size_t k = 1; k <= n; ++k) dense = dense && strides[k] == sizeof(Slot);
    if (dense) {  // known strides, so that the compiler has a loop of vectors
      std::array<std::int64_t, n + 1> known;
      known.fill(sizeof(Slot));
      known[0] = sizeof(Out);
      for (std::int64_t i = 0; i < count; ++i) at_index(data, known.data(), i, std::make_index_sequence<n>());
    } else {
      for (std::int64_t i = 0; i < count; ++i) at_index(data, strides, i, std::make_index_sequence<n>());
    }
  });
}

// 1/x of every element, with one inversion for many. False where one is 0; `residues` then is left undefined.
bool invert(const at::Tensor& residues);

}  // namespace fractus::field
