// A rank's side of its links to a group of a collective network.
#pragma once

#include <chrono>
#include <memory>

#include "net/held_group.h"
#include "transport/collnet/collnet_mover.h"
#include "transport/reducer.h"

namespace tutti::transport::collnet {

class CollnetReducer final : public Reducer {
 public:
  CollnetReducer(std::unique_ptr<tutti::net::HeldGroup> group, std::shared_ptr<CollnetMover> mover)
      : group_(std::move(group)), mover_(std::move(mover)) {}
  ~CollnetReducer();
  CollnetReducer(const CollnetReducer&) = delete;
  CollnetReducer& operator=(const CollnetReducer&) = delete;

  void begin(Collective collective, DataType type, ReduceOp op) override;
  bool isBusy() const override { return mover_->isBusy(); }
  uint64_t postedCount() const override { return mover_->postedCount(); }
  Stand stand() const override { return mover_->stand(); }
  // The network's thread moves messages, and wakes who waits for them.
  bool run() override { return false; }
  bool sends() const override { return true; }
  void attend() override {}
  void settle() override { mover_->settle(); }
  void leave(const Parting& /*parting*/) override { mover_->leave(); }
  Parting parting() override { return mover_->parting(); }
  Carried carried() const override { return mover_->carried(); }
  // What a message takes in there is the network's own affair.
  void profile(observe::Profiler& /*profiler*/) override {}
  void beginTransfer(const observe::EventTag&, const observe::TransferNote&) override {}
  void endTransfer(uint64_t /*endMessage*/) override {}

 private:
  const std::unique_ptr<tutti::net::HeldGroup> group_;
  std::shared_ptr<CollnetMover> mover_;  // shared with the network's thread
};

Result<ReducerLinks> openLinks(ReducerOptions options);

}  // namespace tutti::transport::collnet
