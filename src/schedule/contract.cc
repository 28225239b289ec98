#include "schedule/contract.h"

namespace tutti::schedule {
namespace {

int32_t chunksPerBlock(const Schedule& schedule) {
  return schedule.chunkCount / schedule.blockCount;
}

// A buffer holds the rank's own block alone, or all of them.
ChunkRange buffer(const Schedule& schedule, bool ownBlockOnly, Rank rank) {
  if (!ownBlockOnly) return {0, schedule.chunkCount};
  const int32_t perBlock = chunksPerBlock(schedule);
  return {index(rank) * perBlock, (index(rank) + 1) * perBlock};
}

Peers peersOf(const Schedule& schedule) {
  return {.root = schedule.root, .sender = schedule.sender};
}

}  // namespace

ChunkRange inputChunks(const Schedule& schedule, Rank rank) {
  const Collective collective = schedule.collective;
  if (index(rank) >= schedule.rankCount || !hasInput(collective, peersOf(schedule), rank))
    return {};
  const bool ownBlockOnly =
      collective == Collective::kAllGather || collective == Collective::kGather;
  return buffer(schedule, ownBlockOnly, rank);
}

ChunkRange outputChunks(const Schedule& schedule, Rank rank) {
  const Collective collective = schedule.collective;
  if (index(rank) >= schedule.rankCount || !hasOutput(collective, peersOf(schedule), rank))
    return {};
  const bool ownBlockOnly =
      collective == Collective::kReduceScatter || collective == Collective::kScatter;
  return buffer(schedule, ownBlockOnly, rank);
}

Contribution originOf(const Schedule& schedule, Rank rank, int32_t outputChunk) {
  const int32_t block = outputChunk / chunksPerBlock(schedule);
  switch (schedule.collective) {
    case Collective::kAllGather:
    case Collective::kGather: return {.rank = Rank{block}, .chunk = outputChunk};
    case Collective::kAllToAll:
      return {
          .rank = Rank{block},
          .chunk = index(rank) * chunksPerBlock(schedule) + positionInBlock(schedule, outputChunk)};
    case Collective::kSend:
    case Collective::kRecv: return {.rank = schedule.sender, .chunk = outputChunk};
    case Collective::kBroadcast:
    case Collective::kScatter:
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kReduce: break;
  }
  return {.rank = schedule.root, .chunk = outputChunk};
}

int32_t positionInBlock(const Schedule& schedule, int32_t chunk) {
  return chunk % chunksPerBlock(schedule);
}

}  // namespace tutti::schedule
