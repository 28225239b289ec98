// What a thread is given for a scope, and gives back: a context that is current, which is free when
// it is so already, and leave to call while graphs are captured.
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

// For calls that are on no stream of the user's: where this thread or another captures a graph,
// they would be refused otherwise, and the capture broken.
class OwnCallsScope {
 public:
  OwnCallsScope(const Driver& driver, Context wanted) : context_(driver, wanted), driver_(driver) {
    driver_.exchangeCaptureMode(&mode_);
  }
  ~OwnCallsScope() { driver_.exchangeCaptureMode(&mode_); }
  OwnCallsScope(const OwnCallsScope&) = delete;
  OwnCallsScope& operator=(const OwnCallsScope&) = delete;

 private:
  const ContextScope context_;
  const Driver& driver_;
  int mode_ = kCaptureModeRelaxed;  // then the thread's own
};

}  // namespace tutti::device::cuda
