#include "device/host/host_event.h"

#include <exception>

#include "base/futex.h"

namespace tutti::device::host {
namespace {

// Frees itself when complete: nobody else holds it.
class OwnTask : public Task {
 public:
  void addWaits(WaitSet&) override {}
  Status idle(int64_t) override { return {}; }
  void complete(Status) noexcept override {
    delete this;
  }  // what failed was logged where it failed
};

class ReachTask final : public OwnTask {
 public:
  ReachTask(std::shared_ptr<Moment> moment, Clock& clock)
      : moment_(std::move(moment)), clock_(clock) {}
  Result<Progress> poll() override {
    moment_->reach(clock_);
    return Progress::kDone;
  }

 private:
  const std::shared_ptr<Moment> moment_;  // see Moment
  Clock& clock_;
};

class WaitTask final : public OwnTask {
 public:
  explicit WaitTask(std::shared_ptr<Moment> moment) : moment_(std::move(moment)) {}
  Result<Progress> poll() override {
    return moment_->isReached() ? Progress::kDone : Progress::kIdle;
  }
  void addWaits(WaitSet& waits) override { waits.add(moment_->waitPoint()); }

 private:
  const std::shared_ptr<Moment> moment_;  // see Moment
};

class CallTask final : public OwnTask {
 public:
  CallTask(void (*function)(void*), void* argument) : function_(function), argument_(argument) {}
  Result<Progress> poll() override {
    TUTTI_TRY(callForeign(function_, argument_));
    return Progress::kDone;
  }

 private:
  void (*const function_)(void*);
  void* const argument_;
};

}  // namespace

void Moment::reach(Clock& clock) {
  at_ = clock.now();
  reached_.store(1, std::memory_order_seq_cst);
  wakeIfSleeping(reached_, sleepers_);
}

void HostEvent::setLatest(std::shared_ptr<Moment> moment) {
  std::lock_guard lock(mutex_);
  latest_ = std::move(moment);
}

std::shared_ptr<Moment> HostEvent::latest() const {
  std::lock_guard lock(mutex_);
  return latest_;
}

std::unique_ptr<Task> makeReachTask(std::shared_ptr<Moment> moment, Clock& clock) {
  return std::make_unique<ReachTask>(std::move(moment), clock);
}

std::unique_ptr<Task> makeWaitTask(std::shared_ptr<Moment> moment) {
  return std::make_unique<WaitTask>(std::move(moment));
}

std::unique_ptr<Task> makeCallTask(void (*function)(void*), void* argument) {
  return std::make_unique<CallTask>(function, argument);
}

Status callForeign(void (*function)(void*), void* argument) {
  try {
    function(argument);
  } catch (const std::exception& error) {
    return internalError("a host function threw: {}", error.what());
  } catch (...) {
    return internalError("a host function threw");
  }
  return {};
}

}  // namespace tutti::device::host
