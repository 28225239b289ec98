#include "launch/staging.h"

#include <algorithm>

#include "base/units.h"

namespace tutti::launch {
namespace {

constexpr size_t kAlignment = 64;

// Blocks of `count` elements that a rank brings and gets, and those of the rank with the most.
struct Blocks {
  size_t in = 0;
  size_t out = 0;
  size_t most = 0;
};

Blocks blocksOf(const plan::CallShape& shape, Rank rank, size_t ranks) {
  const size_t asRoot = shape.peer == rank ? 1 : 0;
  switch (shape.collective) {
    case Collective::kAllReduce: return {.in = 1, .out = 1, .most = 2};
    case Collective::kBroadcast: return {.in = asRoot, .out = 1, .most = 2};
    case Collective::kReduce: return {.in = 1, .out = asRoot, .most = 2};
    case Collective::kAllGather: return {.in = 1, .out = ranks, .most = ranks + 1};
    case Collective::kReduceScatter: return {.in = ranks, .out = 1, .most = ranks + 1};
    case Collective::kAllToAll: return {.in = ranks, .out = ranks, .most = 2 * ranks};
    case Collective::kGather: return {.in = 1, .out = asRoot * ranks, .most = ranks + 1};
    case Collective::kScatter: return {.in = asRoot * ranks, .out = 1, .most = ranks + 1};
    // Up to one of each with every peer, in the same round.
    case Collective::kSend: return {.in = 1, .out = 0, .most = 2 * ranks};
    case Collective::kRecv: return {.in = 0, .out = 1, .most = 2 * ranks};
  }
  return {};
}

size_t aligned(size_t bytes) { return roundUp(bytes, kAlignment); }

}  // namespace

// The same on all ranks, whatever their part in the call.
uint64_t StagingCutter::pieceElements(const plan::CallShape& shape) const {
  const size_t elementBytes = sizeOf(shape.type);
  const size_t most = blocksOf(shape, layout_.rank, static_cast<size_t>(layout_.rankCount)).most;
  // A scalar comes along.
  const size_t room = layout_.slotBytes - std::min(layout_.slotBytes, kAlignment);
  return std::min<uint64_t>(shape.count, room / most / kAlignment * kAlignment / elementBytes);
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
    const size_t needed =
        aligned(blocks.in * blockBytes) + aligned(blocks.out * blockBytes) + kAlignment;
    if (used_ + needed > layout_.slotBytes) TUTTI_TRY(flush(emit));
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
  const plan::CallShape& shape = call.shape;
  const size_t elementBytes = sizeOf(shape.type);
  const size_t bytes = piece.count * elementBytes;
  const Blocks blocks = blocksOf(shape, layout_.rank, static_cast<size_t>(layout_.rankCount));
  Call& staged = round_.calls.emplace_back(call);
  staged.shape.isOnGpu = layout_.isOnGpu;
  staged.shape.count = piece.count;
  staged.input = nullptr;
  staged.output = nullptr;
  // Blocks that are whole lie side by side on both sides: one copy.
  const bool isWhole = piece.count == shape.count;
  const size_t stride = shape.count * elementBytes;
  const size_t start = piece.first * elementBytes;
  const size_t length = isWhole ? 0 : bytes;
  if (blocks.in != 0) {
    std::byte* to = take(blocks.in * bytes);
    const auto* from = static_cast<const std::byte*>(call.input) + start;
    staged.input = to;
    for (size_t block = 0; block < (isWhole ? 1 : blocks.in); ++block) {
      round_.before.push_back({.to = to + block * bytes,
                               .from = from + block * stride,
                               .bytes = isWhole ? blocks.in * bytes : length});
    }
  }
  if (blocks.out != 0) {
    std::byte* from = take(blocks.out * bytes);
    auto* to = static_cast<std::byte*>(call.output) + start;
    staged.output = from;
    for (size_t block = 0; block < (isWhole ? 1 : blocks.out); ++block) {
      round_.after.push_back({.to = to + block * stride,
                              .from = from + block * bytes,
                              .bytes = isWhole ? blocks.out * bytes : length});
    }
  }
  if (call.preScaleAddress == nullptr) return;
  staged.preScaleAddress = take(elementBytes);
  round_.before.push_back({.to = const_cast<void*>(staged.preScaleAddress),
                           .from = call.preScaleAddress,
                           .bytes = elementBytes});
}

std::byte* StagingCutter::take(size_t bytes) {
  std::byte* place = layout_.slots[round_.slot % kStagingSlots] + used_;
  used_ += aligned(bytes);
  return place;
}

Status StagingCutter::flush(const Emit& emit) {
  if (round_.calls.empty() && round_.before.empty()) return {};
  Status status = emit(round_);
  round_.slot = round_.slot % 2 == 0 ? round_.slot + 1 : round_.slot - 1;
  static_assert(kStagingSlots == 2);
  round_.before.clear();
  round_.calls.clear();
  round_.after.clear();
  used_ = 0;
  return status;
}

}  // namespace tutti::launch
