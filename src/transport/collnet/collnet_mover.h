// Between a rank's two rings and a group of a collective network: what the network's thread does
// for them. The rank's own thread never enters the network's library, which may not return; it sees
// here that the other one stands still.
//
// That thread serves the rings from the beginning of a call to its end and for some microseconds
// more, in which the next call finds it awake.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/mapping.h"
#include "transport/collnet/collnet_blocks.h"
#include "transport/reducer.h"

namespace tutti::transport::collnet {

class CollnetMover {
 public:
  struct Parts {
    std::shared_ptr<tutti::net::ReductionGroup> group;  // shared with the job that opens this
    size_t maxBytes = 0;
    size_t setBytes = 0;
    size_t memberCount = 0;
    size_t self = 0;
    wire::LinkGeometry geometry{};
  };
  // Makes both rings and enrols them with the group. This and the end are the network's thread's.
  static Result<std::shared_ptr<CollnetMover>> open(const Parts& parts);
  ~CollnetMover();
  CollnetMover(const CollnetMover&) = delete;
  CollnetMover& operator=(const CollnetMover&) = delete;

  // Moves messages until the call is over, or the rank leaves. The network's thread.
  void serve();

  // ---- the rank's side; one thread at a time ----
  const wire::LinkView& sendRing() const { return in_.view; }
  const wire::LinkView& receiveRing() const { return out_.view; }
  // What the next messages are for. REQUIRES: no message is under way. True: nobody serves them,
  // serve() is to be called.
  bool begin(Collective collective, DataType type, ReduceOp op);
  void settle() { isOver_.store(true, std::memory_order_relaxed); }
  void leave() { hasLeft_.store(true, std::memory_order_relaxed); }
  // As of the last round.
  bool isBusy() const { return isBusy_.load(std::memory_order_relaxed); }
  uint64_t postedCount() const { return postedCount_.load(std::memory_order_relaxed); }
  // REQUIRES: a ring's fault word was set.
  const Parting& parting() const { return parting_; }

  // Any thread.
  Motor::Carried carried() const;
  Reducer::Stand stand() const;

 private:
  using Group = tutti::net::ReductionGroup;
  struct Request {
    Group::Request request;
    bool isLast = false;  // of its message
  };

  explicit CollnetMover(const Parts& parts);
  bool round();
  bool isOver() const;
  void takeWish();
  void lookForMessages();
  bool isAllReduce() const { return collective_ == Collective::kAllReduce; }
  bool hasWork() const;
  Result<bool> runAllReduce();
  Result<bool> runBlocks();
  Result<bool> takeResults();
  Result<bool> postNext();
  uint64_t resultNumber() const { return out_.next + (posted_ - in_.next); }
  void finishMessage();
  void count();
  void end(const Status& status);

  UniqueMapping memory_;  // longer than the group, which may write there until it goes
  const Parts parts_;
  Group::Memory enrolled_{};
  // The other ends of the rank's: messages come out of one ring, their results go into the other,
  // in the same order. What lies between in_.next and posted_ is with the network.
  wire::LinkPort in_;
  wire::LinkPort out_;
  uint64_t seen_ = 0;                                         // messages that have come so far
  uint64_t posted_ = 0;                                       // the message that is posted next
  size_t postedBytes_ = 0;                                    // of it, so far
  std::array<Request, tutti::net::kMaxRequests> requests_{};  // a ring
  size_t firstRequest_ = 0;
  size_t requestCount_ = 0;
  uint64_t reduced_ = 0;                 // messages that were posted
  uint64_t reducedBytes_ = 0;            // of those that are over
  std::optional<CollnetBlocks> blocks_;  // once there is memory; for the others
  Collective collective_ = Collective::kAllReduce;
  DataType type_ = DataType::kInt8;
  ReduceOp op_ = ReduceOp::kSum;
  bool hasEnded_ = false;
  Parting parting_;  // written before the fault words, read after them

  // What begin() was last told, with its number: written by the rank's thread before the messages
  // that it is for, in the same order read after them (lookForMessages), so that a message is never
  // taken for one of the call before. In one total order with isServed_: of a begin() and a serve()
  // that ends one sees the other. Wraps after 2^40 calls, when nobody is left who saw the first.
  std::atomic<uint64_t> wish_{0};
  uint64_t taken_ = 0;  // the wish that holds
  std::atomic<bool> isServed_{false};
  // Hints, which order nothing: who sees them late does a little too much.
  std::atomic<bool> isOver_{true};
  std::atomic<bool> hasLeft_{false};
  // Written by the network's thread, read by anyone: figures, which publish nothing.
  std::atomic<bool> isBusy_{false};
  std::atomic<uint64_t> postedCount_{0};
  std::atomic<uint64_t> rounds_{0};
  std::atomic<uint64_t> messages_{0};
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace tutti::transport::collnet
