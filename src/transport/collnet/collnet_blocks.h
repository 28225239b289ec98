// A rank's all-gathers and reduce-scatters in a group of a collective network: what goes between
// its two rings by way of the network, over memory in which the parts of all members lie next to
// each other, as the network wants them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "net/reduction.h"
#include "wire/link.h"
#include "wire/types.h"

namespace tutti::transport::collnet {

// Whether the message of that number is there, and whether the ring has a slot for it; not only for
// the next one, as wire/link.h asks.
bool hasMessage(const wire::LinkPort& in, uint64_t number);
bool hasRoom(wire::LinkPort& out, uint64_t number);

// Used by one thread at a time.
class CollnetBlocks {
 public:
  using Group = tutti::net::ReductionGroup;
  // Sets that are kept at a time, one on its way and one that comes to be: schedules count on them
  // (schedule/in_network_blocks.cc).
  static constexpr size_t kSets = 2;

  struct Parts {
    Group& group;
    wire::LinkPort& in;   // from the rank, of which its messages are taken
    wire::LinkPort& out;  // to the rank
    size_t memberCount = 1;
    size_t self = 0;
    size_t maxBytes = 0;            // of one reduction
    Group::Memory enrolled{};       // holds the rings and the sets
    std::span<std::byte> memory{};  // of the sets
  };
  explicit CollnetBlocks(const Parts& parts) : parts_(parts) {}

  // REQUIRES: all sets are over.
  void begin(Collective collective, DataType type, ReduceOp op);
  // Moves what can be moved now, of the messages before `seen`; true when something was.
  Result<bool> run(uint64_t seen);
  // The network has a set, or has not taken one that is complete or a message before `seen`.
  bool isBusy(uint64_t seen) const;
  // Sets that the network has taken.
  uint64_t postedCount() const { return posted_; }
  uint64_t carriedBytes() const { return carriedBytes_; }  // of the rank's messages so far

 private:
  struct Request {
    Group::Request request;
    bool isLast = false;  // of its set
  };
  // A message of each member, and what the network makes of them.
  struct Set {
    uint32_t bytes = 0;  // of a message
    uint32_t signature = 0;
    size_t collected = 0;    // of a reduce-scatter: members whose message is here
    size_t postedBytes = 0;  // of each member's
    size_t delivered = 0;    // of an all-gather: members that are through
  };

  bool isGather() const { return collective_ == Collective::kAllGather; }
  Set& at(uint64_t number) { return sets_[number % kSets]; }
  const Set& at(uint64_t number) const { return sets_[number % kSets]; }
  std::byte* memoryOf(uint64_t number) const;
  bool isComplete(const Set& set) const {
    return isGather() || set.collected == parts_.memberCount;
  }
  size_t cutBytes() const;
  void copyCuts(uint64_t number, size_t member, std::byte* message, bool isInto);
  Result<bool> test();
  bool deliver();
  Result<bool> collect(uint64_t seen);
  Result<bool> post();
  Result<bool> postSet(uint64_t number);
  Status check(const wire::MessageHead& message) const;

  const Parts parts_;
  Collective collective_ = Collective::kAllGather;
  DataType type_ = DataType::kInt8;
  ReduceOp op_ = ReduceOp::kSum;
  // Sets by number: those before first_ are over, those before tested_ the network is through with,
  // those before posted_ it has taken, and those before begun_ have messages here.
  std::array<Set, kSets> sets_{};
  uint64_t first_ = 0, tested_ = 0, posted_ = 0, begun_ = 0;
  uint64_t carriedBytes_ = 0;
  std::array<Request, tutti::net::kMaxRequests> requests_{};  // a ring
  size_t firstRequest_ = 0, requestCount_ = 0;
};

}  // namespace tutti::transport::collnet
