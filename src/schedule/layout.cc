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

}  // namespace tutti::schedule
