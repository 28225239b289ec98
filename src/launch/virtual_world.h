// VirtualWorld: what the virtual ranks of one communicator share in a process. Their calls move
// nothing; they are compared with each other, as real ranks' are, and timed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "launch/call.h"
#include "launch/virtual_trace.h"
#include "plan/plan.h"
#include "sim/call_timer.h"

namespace tutti::launch {

// Thread-safe.
class VirtualWorld {
 public:
  struct Options {
    std::string name;                             // for messages
    std::shared_ptr<const sim::Cluster> cluster;  // shared by all worlds of the process
    std::vector<Rank> places;                     // by rank: which rank of the cluster it is
    std::vector<bool> isHere;                     // by rank: it is of this process
    sim::Timing timing{};
    VirtualTrace* trace = nullptr;  // where calls are written down; outlives the world
  };
  explicit VirtualWorld(Options options);

  int32_t rankCount() const { return static_cast<int32_t>(options_.places.size()); }
  // Whether it is of this process.
  bool isHere(Rank rank) const { return options_.isHere[static_cast<size_t>(index(rank))]; }

  // Microseconds of a call by itself. The first one searches the graphs of the world's ranks.
  Result<double> estimateUs(const plan::CallShape& shape, Rank self);

  // The calls of one group of a rank. kInvalidUsage when another rank of this process has called
  // something else in their place, or a rank is too far ahead of another; the world has then failed
  // for all its ranks.
  Status enter(Rank self, std::span<const StreamCall> calls);
  // The rank calls nothing any more. With the last one of this process what others never called is
  // logged.
  void leave();

  bool hasFailed() const { return hasFailed_.load(std::memory_order_acquire); }
  Status failure() const;

  // What a rank's groups would have taken, one after the other, in microseconds.
  double spentUs(Rank self) const;
  // For people: where the ranks are, and what each kind of call was and would have taken.
  std::string describe(Rank self) const;

 private:
  // A collective that some ranks have called and others not yet.
  struct Meeting {
    plan::CallShape shape;
    Rank first{0};
    int32_t called = 0;
  };
  struct Totals {
    uint64_t calls = 0;
    uint64_t bytes = 0;
    double us = 0;
  };
  struct Member {
    uint64_t collectives = 0;  // called so far
    double us = 0;
    std::array<Totals, kCollectiveCount> totals{};
  };

  Result<sim::CallTimer*> timer();
  Result<double> costOf(const plan::CallShape& shape, Rank self);
  Status compare(Rank self, const plan::CallShape& shape);
  Status meet(Rank self, const plan::CallShape& shape);
  Status pair(Rank self, const plan::CallShape& shape);
  void warnOfLeftovers() const;
  Member& member(Rank rank) { return members_[static_cast<size_t>(index(rank))]; }

  // Constant after construction.
  const Options options_;
  int32_t hereCount_ = 0;
  std::string traceName_;

  mutable std::mutex mutex_;  // guards the rest
  std::unique_ptr<sim::CallTimer> timer_;
  std::vector<Member> members_;
  std::deque<Meeting> meetings_;  // the oldest first
  uint64_t firstMeeting_ = 0;     // number of meetings_.front()
  // Sends without their receives, or the reverse, from a rank to another. The oldest first.
  std::map<std::pair<Rank, Rank>, std::deque<plan::CallShape>> halves_;
  int32_t gone_ = 0;
  Status failure_;

  std::atomic<bool> hasFailed_{false};  // mirrors failure_, release after it is set
};

}  // namespace tutti::launch
