// Ranks of one process that run a schedule over links without transports, in any interleaving. Only
// tests include this.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <vector>

#include "base/rng.h"
#include "base/units.h"
#include "kernels/execution.h"
#include "schedule/catalog.h"

namespace tutti::kernels {

using schedule::Algorithm;

// All links of a communicator in one process, without transports.
class Links {
 public:
  explicit Links(wire::LinkGeometry geometry, bool hasGpuSlots = false)
      : geometry_(geometry), hasGpuSlots_(hasGpuSlots) {}
  wire::LinkPort* port(Rank from, Rank to, bool isSender) {
    auto& link = links_[{index(from), index(to)}];
    if (link == nullptr) {
      link = std::make_unique<Link>();
      const size_t bytes = roundUp(wire::linkBytes(geometry_), kCacheLineBytes);
      link->memory.reset(static_cast<std::byte*>(std::aligned_alloc(kCacheLineBytes, bytes)));
      std::uninitialized_fill_n(link->memory.get(), bytes, std::byte{0});
      link->sender.view = link->receiver.view = wire::viewLink(link->memory.get(), geometry_);
      if (hasGpuSlots_) {
        link->gpu.resize(size_t{geometry_.slotCount} * geometry_.slotBytes);
        link->sender.view.gpuSlots = link->receiver.view.gpuSlots = link->gpu.data();
      }
      // What may be read or written there is by the kernel.
      link->receiver.senderProcess = link->sender.receiverProcess = ::getpid();
      link->sender.mayWrite = true;
    }
    return isSender ? &link->sender : &link->receiver;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Link {
    std::unique_ptr<std::byte, Free> memory;
    std::vector<std::byte> gpu;
    wire::LinkPort sender;
    wire::LinkPort receiver;
  };
  wire::LinkGeometry geometry_;
  const bool hasGpuSlots_;
  std::map<std::pair<int32_t, int32_t>, std::unique_ptr<Link>> links_;
};

struct RankState {
  schedule::Program program;
  std::vector<wire::LinkPort*> incoming;
  std::vector<wire::LinkPort*> outgoing;
  std::vector<int64_t> input;
  std::vector<int64_t> output;
  BoundProgram bound;
  StepScratch scratch;
  Execution execution;
  bool isDone = false;
};

struct Case {
  const Algorithm* algorithm;
  int32_t rankCount;
  int32_t root;
  size_t count;
  uint32_t slotCount;
  bool mayRefer = false;
  uint32_t shortCount = 0;
  bool hasGpuSlots = false;
  int32_t hostCount = 1;
  int32_t lagSlots = 0;  // schedule::ScheduleOptions
};

inline constexpr size_t kSlotBytes = 64;

inline int64_t inputAt(int32_t rank, size_t i) {
  return static_cast<int64_t>(i * 1000 + static_cast<size_t>(rank) + 1);
}

struct Wishes {
  bool refers = false;
  bool agrees = false;
  bool streams = false;
  bool isJoint = false;
  bool inPlace = false;  // of a collective whose buffers are equally long: both are the output
  GpuFolder* gpu = nullptr;
  Outbox* outbox = nullptr;
  Crew* crew = nullptr;
};

class Cluster {
 public:
  explicit Cluster(const Case& c, uint32_t slotBytes = kSlotBytes)
      : case_(c),
        slotBytes_(slotBytes),
        links_({.slotCount = c.slotCount, .slotBytes = slotBytes, .shortCount = c.shortCount},
               c.hasGpuSlots) {
    ranks_.resize(static_cast<size_t>(c.rankCount));
    for (int32_t rank = 0; rank < c.rankCount; ++rank) build(rank);
  }

  void start(const Wishes& wishes = {}) {
    for (int32_t rank = 0; rank < case_.rankCount; ++rank) startRank(rank, 1, nullptr, wishes);
  }
  // Each rank with its own form of messages.
  void startMixed(SeededRng& rng, bool isJoint = false) {
    for (int32_t rank = 0; rank < case_.rankCount; ++rank)
      startRank(rank, 1, nullptr, {.refers = rng.below(2) == 0, .isJoint = isJoint});
  }
  void startRank(int32_t rank, uint32_t signature, const SharedBuffers* shared = nullptr,
                 const Wishes& wishes = {}) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    state.isDone = false;
    // What an earlier run left there would be right, too.
    std::ranges::fill(state.output, kUntouched);
    if (wishes.inPlace) state.output = state.input;
    const auto& input = wishes.inPlace ? state.output : state.input;
    state.execution.start({.program = &state.bound,
                           .input = reinterpret_cast<const std::byte*>(input.data()),
                           .output = reinterpret_cast<std::byte*>(state.output.data()),
                           .signature = signature,
                           .scratch = &state.scratch,
                           .shared = shared,
                           .refers = wishes.refers,
                           .agrees = wishes.agrees,
                           .streams = wishes.streams,
                           .isJoint = wishes.isJoint,
                           .gpu = wishes.gpu,
                           .outbox = wishes.outbox,
                           .crew = wishes.crew});
  }

  // Polls ranks in random order until all are done. False: nobody could move any more.
  bool run(SeededRng& rng) {
    size_t idlePolls = 0;
    auto left = std::ranges::count(ranks_, false, &RankState::isDone);
    while (left > 0) {
      RankState& state = ranks_[rng.below(ranks_.size())];
      if (state.isDone) continue;
      const Progress progress = state.execution.poll().value();
      if (progress == Progress::kDone) {
        state.isDone = true;
        --left;
      }
      idlePolls = progress == Progress::kIdle ? idlePolls + 1 : 0;
      if (idlePolls > 200 * ranks_.size()) return false;
    }
    return true;
  }

  RankState& rank(int32_t rank) { return ranks_[static_cast<size_t>(rank)]; }

  void check() const {
    for (int32_t rank = 0; rank < case_.rankCount; ++rank) {
      const auto& output = ranks_[static_cast<size_t>(rank)].output;
      for (size_t i = 0; i < output.size(); ++i)
        ASSERT_EQ(output[i], wanted(rank, i)) << "rank " << rank << " place " << i;
    }
  }

 private:
  schedule::Layout layoutOf(int32_t rank) const {
    return schedule::makeLayout({.collective = case_.algorithm->collective,
                                 .rank = Rank{rank},
                                 .rankCount = case_.rankCount,
                                 .chunkCount = case_.algorithm->chunkCount(case_.rankCount),
                                 .blockElements = case_.count,
                                 .elementBytes = sizeof(int64_t),
                                 .pieceBytes = slotBytes_});
  }

  size_t inputBlocks() const {
    const Collective c = case_.algorithm->collective;
    const bool whole =
        c == Collective::kReduceScatter || c == Collective::kAllToAll || c == Collective::kScatter;
    return whole ? static_cast<size_t>(case_.rankCount) : 1;
  }
  size_t outputBlocks() const {
    const Collective c = case_.algorithm->collective;
    const bool whole =
        c == Collective::kAllGather || c == Collective::kAllToAll || c == Collective::kGather;
    return whole ? static_cast<size_t>(case_.rankCount) : 1;
  }

  void build(int32_t rank) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    state.program = case_.algorithm->build({.rankCount = case_.rankCount,
                                            .root = Rank{case_.root},
                                            .sender = Rank{0},
                                            .hostCount = case_.hostCount,
                                            .lagSlots = case_.lagSlots},
                                           Rank{rank});
    const UsedLinks used = usedLinks(state.program, layoutOf(rank));
    for (size_t i = 0; i < used.incoming.size(); ++i) {
      const Rank peer = state.program.receivesFrom[i];
      state.incoming.push_back(used.incoming[i] ? links_.port(peer, Rank{rank}, false) : nullptr);
    }
    for (size_t i = 0; i < used.outgoing.size(); ++i) {
      const Rank peer = state.program.sendsTo[i];
      state.outgoing.push_back(used.outgoing[i] ? links_.port(Rank{rank}, peer, true) : nullptr);
    }
    state.bound = BoundProgram(
        {.program = state.program,
         .incoming = state.incoming,
         .outgoing = state.outgoing,
         .layout = layoutOf(rank),
         .fold = {.type = DataType::kInt64, .op = ReduceOp::kSum, .rankCount = case_.rankCount},
         .mayRefer = case_.mayRefer});
    state.input.resize(case_.count * inputBlocks());
    for (size_t i = 0; i < state.input.size(); ++i) state.input[i] = inputAt(rank, i);
    state.output.assign(case_.count * outputBlocks(), kUntouched);
  }

  int64_t sum(size_t i) const {
    int64_t total = 0;
    for (int32_t rank = 0; rank < case_.rankCount; ++rank) total += inputAt(rank, i);
    return total;
  }

  int64_t wanted(int32_t rank, size_t i) const {
    const size_t block = i / std::max<size_t>(case_.count, 1);
    const size_t within = i % std::max<size_t>(case_.count, 1);
    const bool isRoot = rank == case_.root;
    const size_t own = static_cast<size_t>(rank) * case_.count;
    switch (case_.algorithm->collective) {
      case Collective::kAllReduce: return sum(i);
      case Collective::kReduce: return isRoot ? sum(i) : kUntouched;
      case Collective::kReduceScatter: return sum(own + i);
      case Collective::kBroadcast: return inputAt(case_.root, i);
      case Collective::kAllGather: return inputAt(static_cast<int32_t>(block), within);
      case Collective::kGather:
        return isRoot ? inputAt(static_cast<int32_t>(block), within) : kUntouched;
      case Collective::kScatter: return inputAt(case_.root, own + i);
      case Collective::kAllToAll: return inputAt(static_cast<int32_t>(block), own + within);
      case Collective::kSend:
      case Collective::kRecv: return isRoot ? inputAt(0, i) : kUntouched;
    }
    return 0;
  }

  static constexpr int64_t kUntouched = -7;
  Case case_;
  uint32_t slotBytes_;
  Links links_;
  std::vector<RankState> ranks_;
};

}  // namespace tutti::kernels
