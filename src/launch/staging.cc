#include "launch/staging.h"

#include <algorithm>

#include "base/units.h"

namespace tutti::launch {
namespace {

constexpr size_t kAlignment = 64;

// Pieces of long calls: long enough for the network, short enough that copies in and out go on
// beside it and that what it reads is still in the caches. So a quarter of a call, within these.
constexpr size_t kLeastPiece = size_t{256} << 10;
constexpr size_t kMostPiece = size_t{1} << 20;  // of a slot
constexpr size_t kPieces = 4;

// Where the blocks of `count` elements of a call lie in a slot. In place: what the rank brings is
// where the executor's output, if there is any, has it.
struct Blocks {
  size_t all = 0;  // in the slot
  size_t in = 0;   // brought, from `inAt` on
  size_t inAt = 0;
  size_t out = 0;  // taken away, from `outAt` on
  size_t outAt = 0;
  bool hasOutput = false;  // the executor's output begins at outAt
  size_t most = 0;         // in the slot of the rank with the most
  // The user's own input block, to its output: the root's share of a call that brings it nothing.
  bool copiesOwn = false;
  size_t ownAt = 0;
};

Blocks blocksOf(const plan::CallShape& shape, Rank rank, size_t ranks) {
  const bool isRoot = shape.peer == rank;
  const auto self = static_cast<size_t>(index(rank));
  switch (shape.collective) {
    case Collective::kAllReduce: return {.all = 1, .in = 1, .out = 1, .hasOutput = true, .most = 1};
    case Collective::kBroadcast:
      if (isRoot) return {.all = 1, .in = 1, .hasOutput = true, .most = 1, .copiesOwn = true};
      return {.all = 1, .out = 1, .hasOutput = true, .most = 1};
    case Collective::kReduce:
      if (isRoot) return {.all = 1, .in = 1, .out = 1, .hasOutput = true, .most = 1};
      return {.all = 1, .in = 1, .most = 1};
    case Collective::kAllGather:
      return {.all = ranks, .in = 1, .inAt = self, .out = ranks, .hasOutput = true, .most = ranks};
    case Collective::kReduceScatter:
      return {.all = ranks, .in = ranks, .out = 1, .outAt = self, .hasOutput = true, .most = ranks};
    case Collective::kAllToAll:
      return {.all = 2 * ranks,
              .in = ranks,
              .out = ranks,
              .outAt = ranks,
              .hasOutput = true,
              .most = 2 * ranks};
    case Collective::kGather:
      if (!isRoot) return {.all = 1, .in = 1, .most = ranks};
      return {.all = ranks, .in = 1, .inAt = self, .out = ranks, .hasOutput = true, .most = ranks};
    case Collective::kScatter:
      if (!isRoot) return {.all = 1, .out = 1, .hasOutput = true, .most = ranks};
      return {.all = ranks,
              .in = ranks,
              .outAt = self,
              .hasOutput = true,
              .most = ranks,
              .copiesOwn = true,
              .ownAt = self};
    // Up to one of each with every peer, in the same round.
    case Collective::kSend: return {.all = 1, .in = 1, .most = 2 * ranks};
    case Collective::kRecv: return {.all = 1, .out = 1, .hasOutput = true, .most = 2 * ranks};
  }
  return {};
}

size_t aligned(size_t bytes) { return roundUp(bytes, kAlignment); }

}  // namespace

bool StagingCutter::fits(const plan::CallShape& shape) const {
  const Blocks blocks = blocksOf(shape, layout_.rank, static_cast<size_t>(layout_.rankCount));
  // A scalar comes along.
  return blocks.most * shape.count * sizeOf(shape.type) + 2 * kAlignment <= layout_.slotBytes;
}

// The same on all ranks, whatever their part in the call.
uint64_t StagingCutter::pieceElements(const plan::CallShape& shape) const {
  const size_t elementBytes = sizeOf(shape.type);
  const size_t most = blocksOf(shape, layout_.rank, static_cast<size_t>(layout_.rankCount)).most;
  const size_t room = layout_.slotBytes - std::min(layout_.slotBytes, 2 * kAlignment);
  const size_t wanted = std::clamp(shape.count * elementBytes / kPieces, kLeastPiece,
                                   std::max(kMostPiece / most, 2 * kLeastPiece));
  const size_t bytes = std::min(room / most, wanted);
  return std::min<uint64_t>(shape.count, bytes / kAlignment * kAlignment / elementBytes);
}

Status StagingCutter::check(std::span<const StreamCall> calls) const {
  for (const StreamCall& item : calls) {
    const plan::CallShape& shape = item.call->shape;
    if (shape.count == 0 || pieceElements(shape) != 0) continue;
    return invalidUsage(
        "rank {}: {} among {} ranks does not fit into {} bytes of staging memory: set "
        "TUTTI_STAGING_BYTES higher, alike on all ranks",
        index(layout_.rank), name(shape.collective), layout_.rankCount, layout_.slotBytes);
  }
  return {};
}

Status StagingCutter::cut(std::span<const StreamCall> calls, const Emit& emit) {
  TUTTI_TRY(check(calls));
  for (const StreamCall& item : calls) {
    if (!isPointToPoint(*item.call)) TUTTI_TRY(cutCollective(*item.call, emit));
  }
  TUTTI_TRY(flush(emit));
  return cutTransfers(calls, emit);
}

Status StagingCutter::cutCollective(const Call& call, const Emit& emit) {
  const plan::CallShape& shape = call.shape;
  if (shape.count == 0) return {};
  const Blocks blocks = blocksOf(shape, layout_.rank, static_cast<size_t>(layout_.rankCount));
  const uint64_t most = pieceElements(shape);
  for (uint64_t first = 0; first < shape.count; first += most) {
    const Piece piece{.first = first, .count = std::min(most, shape.count - first)};
    const size_t blockBytes = piece.count * sizeOf(shape.type);
    const size_t needed = aligned(blocks.all * blockBytes) + kAlignment;
    if (used_ + needed > layout_.slotBytes || round_.calls.size() == kStagingCalls)
      TUTTI_TRY(flush(emit));
    addPiece(call, piece);
  }
  return {};
}

Status StagingCutter::cutTransfers(std::span<const StreamCall> calls, const Emit& emit) {
  for (size_t wave = 0; gatherWave(calls, wave); ++wave) {
    bool isMore = true;
    for (uint64_t fragment = 0; isMore; ++fragment) {
      isMore = false;
      for (const Call* call : wave_) {
        const uint64_t most = pieceElements(call->shape);
        const uint64_t first = fragment * most;
        if (first >= call->shape.count) continue;
        isMore = true;
        addPiece(*call, {.first = first, .count = std::min(most, call->shape.count - first)});
      }
      TUTTI_TRY(flush(emit));
    }
  }
  return {};
}

// The wave-th send and receive of each pair of ranks; those of a rank with itself become a copy.
// False when there is none.
bool StagingCutter::gatherWave(std::span<const StreamCall> calls, size_t wave) {
  wave_.clear();
  sends_.assign(static_cast<size_t>(layout_.rankCount), 0);
  receives_.assign(static_cast<size_t>(layout_.rankCount), 0);
  const Call* selfSend = nullptr;
  const Call* selfReceive = nullptr;
  for (const StreamCall& item : calls) {
    const Call& call = *item.call;
    if (!isPointToPoint(call)) continue;
    const bool isSend = call.shape.collective == Collective::kSend;
    const auto peer = static_cast<size_t>(index(call.shape.peer));
    if ((isSend ? sends_ : receives_)[peer]++ != wave) continue;
    if (call.shape.peer != layout_.rank) {
      wave_.push_back(&call);
    } else {
      (isSend ? selfSend : selfReceive) = &call;
    }
  }
  if (selfSend == nullptr || selfReceive == nullptr) return !wave_.empty();
  if (selfSend->input != selfReceive->output && selfSend->shape.count != 0) {
    round_.before.push_back({.to = selfReceive->output,
                             .from = selfSend->input,
                             .bytes = selfSend->shape.count * sizeOf(selfSend->shape.type)});
  }
  return true;
}

void StagingCutter::addPiece(const Call& call, const Piece& piece) {
  Call& staged = round_.calls.emplace_back(call);
  staged.shape.isOnGpu = layout_.isOnGpu;
  staged.shape.count = piece.count;
  addCopies(call, piece, staged);
  if (call.preScaleAddress == nullptr) return;
  const size_t elementBytes = sizeOf(call.shape.type);
  staged.preScaleAddress = take(elementBytes);
  round_.before.push_back({.to = const_cast<void*>(staged.preScaleAddress),
                           .from = call.preScaleAddress,
                           .bytes = elementBytes});
}

void StagingCutter::addCopies(const Call& call, const Piece& piece, Call& staged) {
  const plan::CallShape& shape = call.shape;
  const Blocks blocks = blocksOf(shape, layout_.rank, static_cast<size_t>(layout_.rankCount));
  const size_t elementBytes = sizeOf(shape.type);
  const size_t bytes = piece.count * elementBytes;   // of a block in the slot
  const size_t stride = shape.count * elementBytes;  // between blocks of the user's
  const size_t start = piece.first * elementBytes;
  const auto* input = blocks.in == 0 ? nullptr : static_cast<const std::byte*>(call.input) + start;
  auto* output = blocks.hasOutput ? static_cast<std::byte*>(call.output) + start : nullptr;
  std::byte* place = take(blocks.all * bytes);
  staged.input = blocks.in == 0 ? nullptr : place + blocks.inAt * bytes;
  staged.output = blocks.hasOutput ? place + blocks.outAt * bytes : nullptr;
  // Blocks that are whole lie side by side on both sides: one copy.
  const bool isWhole = piece.count == shape.count;
  const auto addEach = [&](std::vector<StagingCopy>& copies, size_t count, const auto& copyOf) {
    if (count == 0) return;
    for (size_t block = 0; block < (isWhole ? 1 : count); ++block) {
      copies.push_back(copyOf(block));
      if (isWhole) copies.back().bytes = count * bytes;
    }
  };
  addEach(round_.before, blocks.in, [&](size_t block) -> StagingCopy {
    return {.to = place + (blocks.inAt + block) * bytes,
            .from = input + block * stride,
            .bytes = bytes};
  });
  addEach(round_.after, blocks.out, [&](size_t block) -> StagingCopy {
    return {.to = output + block * stride,
            .from = place + (blocks.outAt + block) * bytes,
            .bytes = bytes};
  });
  const std::byte* own = input + blocks.ownAt * stride;
  if (blocks.copiesOwn && own != output)
    round_.before.push_back({.to = output, .from = own, .bytes = bytes});
}

std::byte* StagingCutter::take(size_t bytes) {
  std::byte* place = layout_.slots[round_.slot - layout_.firstSlot] + used_;
  used_ += aligned(bytes);
  return place;
}

Status StagingCutter::flush(const Emit& emit) {
  if (round_.calls.empty() && round_.before.empty()) return {};
  Status status = emit(round_);
  round_.slot = layout_.firstSlot + (round_.slot - layout_.firstSlot + 1) % layout_.slots.size();
  round_.before.clear();
  round_.calls.clear();
  round_.after.clear();
  used_ = 0;
  return status;
}

}  // namespace tutti::launch
