// What a collective promises, chunk by chunk: which chunks each rank's buffers hold, and what each
// output chunk must be in the end. The prover's yardstick, written without any algorithm in mind.
#pragma once

#include <cstdint>

#include "schedule/schedule.h"

namespace tutti::schedule {

// Chunks [first, end) of the whole vector.
struct ChunkRange {
  int32_t first = 0;
  int32_t end = 0;
  bool contains(int32_t chunk) const { return chunk >= first && chunk < end; }
  int32_t size() const { return end - first; }
};

// None of a network's. REQUIRES: a schedule with chunkCount a positive multiple of blockCount.
ChunkRange inputChunks(const Schedule& schedule, Rank rank);
ChunkRange outputChunks(const Schedule& schedule, Rank rank);

// One rank's input chunk.
struct Contribution {
  Rank rank{0};
  int32_t chunk = 0;
};

// What a rank's output chunk is a copy of. REQUIRES: not a reduction; there, output chunk c is the
// fold of all ranks' input chunks c, with the post-operation.
Contribution originOf(const Schedule& schedule, Rank rank, int32_t outputChunk);

// A chunk's place in its block: chunks of one place are of one length.
int32_t positionInBlock(const Schedule& schedule, int32_t chunk);

}  // namespace tutti::schedule
