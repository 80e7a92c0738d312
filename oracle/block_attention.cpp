#include "oracle/block_attention.h"

namespace fractus::oracle::block_core {

template Attended<Companion<DType::float32>> attend(const Heads&, const Matrix<Companion<DType::float32>>&,
                                                    const Matrix<Companion<DType::float32>>&,
                                                    const AttentionWeights<Companion<DType::float32>>&,
                                                    const std::vector<Carry<Companion<DType::float32>>>&, int);
template AttentionGradients<Companion<DType::float32>> attend_adjoint(
    const Heads&, const Matrix<Companion<DType::float32>>&, const AttentionWeights<Companion<DType::float32>>&,
    const std::vector<Carry<Companion<DType::float32>>>&, const Attended<Companion<DType::float32>>&,
    const Matrix<Companion<DType::float32>>&, int);
template Attended<Companion<DType::float64>> attend(const Heads&, const Matrix<Companion<DType::float64>>&,
                                                    const Matrix<Companion<DType::float64>>&,
                                                    const AttentionWeights<Companion<DType::float64>>&,
                                                    const std::vector<Carry<Companion<DType::float64>>>&, int);
template AttentionGradients<Companion<DType::float64>> attend_adjoint(
    const Heads&, const Matrix<Companion<DType::float64>>&, const AttentionWeights<Companion<DType::float64>>&,
    const std::vector<Carry<Companion<DType::float64>>>&, const Attended<Companion<DType::float64>>&,
    const Matrix<Companion<DType::float64>>&, int);

}  // namespace fractus::oracle::block_core
