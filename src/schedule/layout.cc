#include "schedule/layout.h"

#include <algorithm>

#include "base/units.h"

namespace tutti::schedule {
namespace {

// Two ranks never write one cache line of a shared result, and vector loads start aligned when the
// buffer does.
constexpr size_t kChunkAlignmentBytes = 64;

}  // namespace

Layout makeLayout(const LayoutOptions& options) {
  Layout layout;
  const int32_t blocks = blockCount(options.collective, options.rankCount);
  layout.blockElements = options.blockElements;
  layout.chunksPerBlock = options.chunkCount / blocks;
  layout.firstInputBlock = firstInputBlock(options.collective, options.rank);
  layout.firstOutputBlock = firstOutputBlock(options.collective, options.rank);
  const size_t alignment = std::max<size_t>(1, kChunkAlignmentBytes / options.elementBytes);
  const size_t even = divideUp(options.blockElements, static_cast<size_t>(layout.chunksPerBlock));
  layout.chunkElements = layout.chunksPerBlock == 1 ? even : roundUp(even, alignment);
  const size_t wanted = std::max<size_t>(1, options.pieceBytes / options.elementBytes);
  layout.pieceElements = std::max<size_t>(1, std::min(wanted, layout.chunkElements));
  layout.pieceCount = divideUp(layout.chunkElements, layout.pieceElements);
  return layout;
}

Chunks cutBlock(uint64_t blockBytes, int32_t chunksPerBlock) {
  if (chunksPerBlock == 1) return {.bytes = blockBytes, .filled = 1};
  const uint64_t even = divideUp(blockBytes, static_cast<uint64_t>(chunksPerBlock));
  const uint64_t apart = roundUp(std::max<uint64_t>(even, 1), uint64_t{kChunkAlignmentBytes});
  return {.bytes = std::min(apart, blockBytes),
          .filled = std::max(static_cast<int32_t>(divideUp(blockBytes, apart)), 1)};
}

}  // namespace tutti::schedule
