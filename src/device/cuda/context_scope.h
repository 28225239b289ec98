// Makes a context current for a scope, and gives the thread its own back. Free when it is current
// already.
#pragma once

#include "device/cuda/driver.h"

namespace tutti::device::cuda {

class ContextScope {
 public:
  ContextScope(const Driver& driver, Context wanted) : driver_(driver) {
    Context current = nullptr;
    if (driver_.contextGet(&current) == kSuccess && current == wanted) return;
    isPushed_ = driver_.contextPush(wanted) == kSuccess;
  }
  ~ContextScope() {
    Context popped = nullptr;
    if (isPushed_) driver_.contextPop(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const Driver& driver_;
  bool isPushed_ = false;
};

}  // namespace tutti::device::cuda
