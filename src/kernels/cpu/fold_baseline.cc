// The folds for any processor of the architecture the library is built for.
#include "kernels/cpu/fold_loops.h"

namespace tutti::kernels::cpu {

const FoldTable& baselineFoldTable() {
  static constexpr FoldTable kTable = makeFoldTable("baseline");
  return kTable;
}

}  // namespace tutti::kernels::cpu
