// Where a schedule's chunks lie in the user's buffers, and how they are cut into messages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "schedule/schedule.h"

namespace tutti::schedule {

// All in elements unless named bytes.
struct Layout {
  size_t blockElements = 0;  // elements of one block
  size_t chunkElements = 0;  // distance between two chunks of a block; the last may be shorter or
                             // empty
  int32_t chunksPerBlock = 1;
  int32_t firstInputBlock = 0;  // the block at the start of the input buffer
  int32_t firstOutputBlock = 0;
  size_t pieceElements = 0;  // what one message carries at most; fits a slot
  size_t pieceCount = 0;     // pieces of the longest chunk
};

struct LayoutOptions {
  Collective collective = Collective::kAllReduce;
  Rank rank{0};
  int32_t rankCount = 1;
  int32_t chunkCount = 1;  // of the schedule
  size_t blockElements = 0;
  size_t elementBytes = 1;
  size_t pieceBytes = 0;  // wanted message size; at least one element
};

// Chunks start on cache lines of the block, pieces are whole elements.
Layout makeLayout(const LayoutOptions& options);

// The same in bytes, whatever the elements: what a block's chunks hold.
struct Chunks {
  uint64_t bytes = 0;  // of each but the last that holds something
  int32_t filled = 1;  // that do; a block's last ones may be empty
};
Chunks cutBlock(uint64_t blockBytes, int32_t chunksPerBlock);

}  // namespace tutti::schedule
