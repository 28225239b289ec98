// From the calls of a group on GPU buffers to rounds over staging memory of the host: copies in,
// calls on the host's executor, copies out. Pure.
//
// Collectives are cut into pieces that fit a slot, equal on all ranks; several short ones share a
// round. What a rank brings lies where its result does, wherever the collective can go in place.
// Then the point-to-point calls: the k-th send and receive of each pair of ranks go together, a
// fragment of each a round; fragments are equally long on all ranks, so the j-th of one side meets
// the j-th of the other, and any order of sends and receives inside a group completes.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "launch/call.h"

namespace tutti::launch {

// While the host works on one slot, the device fills and empties the other.
inline constexpr size_t kStagingSlots = 2;
// Calls of a round, at most, but for sends and receives.
inline constexpr size_t kStagingCalls = 16;

struct StagingCopy {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};

struct StagingRound {
  size_t slot = 0;                  // its number
  std::vector<StagingCopy> before;  // from the device; or within it, of a rank to itself
  std::vector<Call> calls;          // on the slot's memory
  std::vector<StagingCopy> after;   // to the device
};

class StagingCutter {
 public:
  // Rank count and bytes are equal on all ranks.
  struct Layout {
    Rank rank{0};
    int32_t rankCount = 1;
    std::vector<std::byte*> slots{};
    size_t slotBytes = 0;
    size_t firstSlot = 0;  // its number
    bool isOnGpu = false;  // the slots are in the GPU's memory, which the calls are told
  };
  explicit StagingCutter(Layout layout) : layout_(std::move(layout)) {
    round_.slot = layout_.firstSlot;
  }
  // Whether the call needs no more than one slot; the same on all ranks.
  bool fits(const plan::CallShape& shape) const;

  // Hands out each round, in order; slots take turns, also from one group to the next. The round is
  // valid during the call. kInvalidUsage, before the first, when a slot is too small for a call.
  using Emit = std::function<Status(StagingRound&)>;
  Status cut(std::span<const StreamCall> calls, const Emit& emit);

 private:
  // Elements [first, first + count) of each block of a call.
  struct Piece {
    uint64_t first = 0;
    uint64_t count = 0;
  };

  Status check(std::span<const StreamCall> calls) const;
  uint64_t pieceElements(const plan::CallShape& shape) const;
  Status cutCollective(const Call& call, const Emit& emit);
  Status cutTransfers(std::span<const StreamCall> calls, const Emit& emit);
  bool gatherWave(std::span<const StreamCall> calls, size_t wave);
  void addPiece(const Call& call, const Piece& piece);
  void addCopies(const Call& call, const Piece& piece, Call& staged);
  std::byte* take(size_t bytes);
  Status flush(const Emit& emit);

  const Layout layout_;
  StagingRound round_;
  size_t used_ = 0;
  std::vector<const Call*> wave_;
  std::vector<size_t> sends_, receives_;  // so far, by peer
};

}  // namespace tutti::launch
