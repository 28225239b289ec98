// VirtualLauncher: a virtual rank's runner. A call is over when it has been compared and timed.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "launch/runner.h"
#include "launch/virtual_world.h"

namespace tutti::launch {

// Thread-safe.
class VirtualLauncher final : public StreamRunner {
 public:
  // The world is shared with the communicator's other ranks in this process.
  VirtualLauncher(std::shared_ptr<VirtualWorld> world, Rank self)
      : world_(std::move(world)), self_(self) {}

  Status launch(std::span<const StreamCall> calls, bool isUsersGroup) override;
  Result<double> estimateUs(const plan::CallShape& shape) {
    return world_->estimateUs(shape, self_);
  }
  double spentUs() const { return world_->spentUs(self_); }
  std::string describe() const { return world_->describe(self_); }
  const VirtualWorld& world() const { return *world_; }

  bool isIdle() override { return true; }
  bool isSettled() override { return true; }
  bool waitIdle(Nanoseconds, Clock&) override { return true; }
  bool hasFailed() const override {
    return hasFailed_.load(std::memory_order_acquire) || world_->hasFailed();
  }
  Status failure() const override;
  void fail(const Status& status) override;
  void retire(observe::Life how) override;

 private:
  const std::shared_ptr<VirtualWorld> world_;
  const Rank self_;

  mutable std::mutex mutex_;  // guards the two below
  Status failure_;            // of this rank; the world's is all ranks'
  bool hasLeft_ = false;
  std::atomic<bool> hasFailed_{false};  // mirrors failure_, release after it is set
};

}  // namespace tutti::launch
