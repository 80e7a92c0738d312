// What the device's matrix products cost against torch's float32 ones: times of each by turns in one run, and the ratio
// of the shortest.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "field/device.h"

extern "C" fractus::field::OpenDevice fractus_field;

namespace {

double seconds(const auto& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Other work on the machine makes a run longer, never shorter.
double least(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

}  // namespace

int main() {
  fractus::field::Device device;
  fractus_field(device);
  struct Shapes {
    std::vector<std::int64_t> a, b;
  };
  const Shapes cases[] = {{{512, 512}, {512, 512}},       {{1024, 1024}, {1024, 1024}}, {{80, 128, 64}, {80, 64, 128}},
                          {{80, 64, 128}, {80, 128, 64}}, {{2, 128, 64}, {2, 64, 128}}, {{2, 1, 64}, {2, 64, 64}},
                          {{64, 64}, {64, 64}},           {{4096, 64}, {64, 64}},       {{256, 4096}, {4096, 256}}};
  fmt::print("{} threads\n", at::get_num_threads());
  for (const int bits : {31, 61}) {
    device.use(bits);
    for (const Shapes& shapes : cases) {
      const at::Tensor fa = at::rand(shapes.a), fb = at::rand(shapes.b);
      const auto drawn = [&](const std::vector<std::int64_t>& shape) {
        return device.tensor_of(at::randint(0, (std::int64_t{1} << bits) - 1, shape, at::kLong), at::kFloat);
      };
      const at::Tensor a = drawn(shapes.a), b = drawn(shapes.b);
      std::vector<double> field, floats;
      for (int i = 0; i < 15; ++i) {
        floats.push_back(seconds([&] { at::matmul(fa, fb); }));
        field.push_back(seconds([&] { at::matmul(a, b); }));
      }
      fmt::print("GF(2^{}-1)  {} x {}: {:.2f} ms, float32 {:.2f} ms, ratio {:.1f}\n", bits, fmt::streamed(fa.sizes()),
                 fmt::streamed(fb.sizes()), 1e3 * least(field), 1e3 * least(floats), least(field) / least(floats));
    }
  }
}
