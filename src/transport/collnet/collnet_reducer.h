// Between a rank's two rings and a group of a collective network.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/mapping.h"
#include "transport/collnet/collnet_blocks.h"
#include "transport/reducer.h"

namespace tutti::transport::collnet {

class CollnetReducer final : public Reducer {
 public:
  // Makes both rings and enrols them with the group.
  static Result<std::shared_ptr<CollnetReducer>> open(ReducerOptions options);
  ~CollnetReducer();
  CollnetReducer(const CollnetReducer&) = delete;
  CollnetReducer& operator=(const CollnetReducer&) = delete;

  const wire::LinkView& sendRing() const { return in_.view; }
  const wire::LinkView& receiveRing() const { return out_.view; }

  void begin(Collective collective, DataType type, ReduceOp op) override;
  bool isBusy() const override;
  uint64_t postedCount() const override { return reduced_ + blocks_->postedCount(); }
  bool run() override;
  bool sends() const override { return true; }
  void attend() override {}
  void settle() override {}
  void leave(const Parting& parting) override;
  Parting parting() override { return parting_; }
  Carried carried() const override;
  // What a message takes in there is the network's own affair.
  void profile(observe::Profiler& /*profiler*/) override {}
  void beginTransfer(const observe::EventTag&, const observe::TransferNote&) override {}
  void endTransfer(uint64_t /*endMessage*/) override {}

 private:
  using Group = tutti::net::ReductionGroup;
  struct Part {
    Group::Request request;
    bool isLast = false;  // of its message
  };

  explicit CollnetReducer(ReducerOptions options);
  bool isAllReduce() const { return collective_ == Collective::kAllReduce; }
  Result<bool> runAllReduce();
  Result<bool> runBlocks();
  Result<bool> takeResults();
  Result<bool> postNext();
  uint64_t resultNumber() const { return out_.next + (posted_ - in_.next); }
  void finishMessage();
  void count();
  void end(const Status& status);

  std::unique_ptr<Group> group_;
  const size_t maxBytes_;
  const size_t setBytes_, memberCount_, self_;
  UniqueMapping memory_;
  Group::Memory enrolled_{};
  // The other ends of the rank's: messages come out of one ring, their results go into the other,
  // in the same order. What lies between in_.next and posted_ is with the network.
  wire::LinkPort in_;
  wire::LinkPort out_;
  uint64_t posted_ = 0;                                 // the message that is posted next
  size_t postedBytes_ = 0;                              // of it, so far
  std::array<Part, tutti::net::kMaxRequests> parts_{};  // a ring
  size_t firstPart_ = 0;
  size_t partCount_ = 0;
  uint64_t reduced_ = 0;                 // messages that were posted
  uint64_t reducedBytes_ = 0;            // of those that are over
  std::optional<CollnetBlocks> blocks_;  // once there is memory; for the others
  Collective collective_ = Collective::kAllReduce;
  DataType type_ = DataType::kInt8;
  ReduceOp op_ = ReduceOp::kSum;
  bool hasEnded_ = false;
  Parting parting_;
  // Written by the thread that runs it, read by anyone: figures for people, which publish nothing.
  std::atomic<uint64_t> messages_{0};
  std::atomic<uint64_t> bytes_{0};
};

Result<ReducerLinks> openLinks(ReducerOptions options);

}  // namespace tutti::transport::collnet
