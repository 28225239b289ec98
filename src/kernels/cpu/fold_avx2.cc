// The folds for x86-64 with AVX2 and F16C: cmake/TuttiKernels.cmake sets the compiler options.
#include "kernels/cpu/fold_loops.h"

namespace tutti::kernels::cpu {

const FoldTable& avx2FoldTable() {
  static constexpr FoldTable kTable = makeFoldTable("avx2");
  return kTable;
}

}  // namespace tutti::kernels::cpu
