// Between a rank's two rings and a group of a collective network.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/mapping.h"
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

  void begin(DataType type, ReduceOp op) override;
  bool isBusy() const override;
  uint64_t postedCount() const override { return posted_; }
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
  Result<bool> takeResults();
  Result<bool> postNext();
  bool hasRoomForResult();
  void finishMessage();
  void end(const Status& status);

  std::unique_ptr<Group> group_;
  const size_t maxBytes_;
  UniqueMapping memory_;
  Group::Memory enrolled_{};
  // The other ends of the rank's: messages come out of one ring, their results go into the other,
  // under the same number. What lies between out_.next and posted_ is with the network.
  wire::LinkPort in_;
  wire::LinkPort out_;
  uint64_t posted_ = 0;                                 // the message that is posted next
  size_t postedBytes_ = 0;                              // of it, so far
  std::array<Part, tutti::net::kMaxRequests> parts_{};  // a ring
  size_t firstPart_ = 0;
  size_t partCount_ = 0;
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
