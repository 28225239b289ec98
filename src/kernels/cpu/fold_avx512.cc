// The folds for x86-64 with AVX-512 F, BW, DQ and VL: cmake/TuttiKernels.cmake sets the options.
#include "kernels/cpu/fold_loops.h"

namespace tutti::kernels::cpu {

const FoldTable& avx512FoldTable() {
  static constexpr FoldTable kTable = makeFoldTable("avx512");
  return kTable;
}

}  // namespace tutti::kernels::cpu
