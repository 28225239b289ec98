#include "launch/virtual_launcher.h"

namespace tutti::launch {

Status VirtualLauncher::launch(std::span<const StreamCall> calls, bool /*isUsersGroup*/) {
  if (hasFailed()) return failure();
  return world_->enter(self_, calls);
}

Status VirtualLauncher::failure() const {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_.clone();
  }
  return world_->failure();
}

void VirtualLauncher::fail(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return;
  failure_ = status.clone();
  hasFailed_.store(true, std::memory_order_release);
}

void VirtualLauncher::retire(observe::Life) {
  {
    const std::lock_guard lock(mutex_);
    if (hasLeft_) return;
    hasLeft_ = true;
  }
  world_->leave();
}

}  // namespace tutti::launch
