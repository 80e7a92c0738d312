#define EIGEN_DONT_PARALLELIZE  // the caller splits the work, so that a result does not depend on the threads
#define EIGEN_MPL2_ONLY

#include "oracle/multiply.h"

#include <Eigen/Core>

namespace fractus::oracle {
namespace {

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class T>
auto map(const Block<T>& x) {
  return Eigen::Map<const RowMajor<T>, Eigen::Unaligned, Eigen::OuterStride<>>(
      x.data, static_cast<Eigen::Index>(x.rows), static_cast<Eigen::Index>(x.columns),
      Eigen::OuterStride<>(static_cast<Eigen::Index>(x.stride)));
}

template <class T, class A, class B>
void add(const A& a, const B& b, T* c, std::size_t stride) {
  Eigen::Map<RowMajor<T>, Eigen::Unaligned, Eigen::OuterStride<>> result(
      c, a.rows(), b.cols(), Eigen::OuterStride<>(static_cast<Eigen::Index>(stride)));
  result.noalias() += a * b;
}

}  // namespace

template <class T>
void multiply_add(const Block<T>& a, const Block<T>& b, T* c, std::size_t stride) {
  if (a.transposed && b.transposed) return add<T>(map(a).transpose(), map(b).transpose(), c, stride);
  if (a.transposed) return add<T>(map(a).transpose(), map(b), c, stride);
  if (b.transposed) return add<T>(map(a), map(b).transpose(), c, stride);
  add<T>(map(a), map(b), c, stride);
}

template void multiply_add(const Block<float>&, const Block<float>&, float*, std::size_t);
template void multiply_add(const Block<double>&, const Block<double>&, double*, std::size_t);
template void multiply_add(const Block<long double>&, const Block<long double>&, long double*, std::size_t);

}  // namespace fractus::oracle
