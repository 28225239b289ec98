// The kernels' names in their images.
#pragma once

#include <cstdint>

namespace tutti::kernels::cuda {

inline constexpr const char* kFoldTransfers = "tuttiFoldTransfers";

// `fold`: in a type's image, else in that of what only moves bytes.
// Of two ranks by blocks that send and receive, of more in parts apart.
const char* slotKernel(bool fold, int32_t rankCount);
// Moves.
const char* sharingKernel(int32_t rankCount);
const char* lineKernel(bool fold, int32_t rankCount);
// Of more than two ranks.
const char* stageKernel(bool fold, int32_t rankCount);
// Null where none was measured: of more than four ranks.
const char* wideKernel(bool fold, int32_t rankCount);

}  // namespace tutti::kernels::cuda
