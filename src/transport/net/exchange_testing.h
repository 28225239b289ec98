// For tests: one side of an exchange of messages over two links.
#pragma once

#include "device/ping_pong_for_test.h"
#include "device/registry.h"
#include "transport/transport.h"

namespace tutti::transport::net {

// A task of one rank whose links need its help, as operations give it.
class Driven final : public device::Task {
 public:
  Driven(const device::PingPong& what, Motor& out, Motor& in) : task_(what), out_(out), in_(in) {}
  Result<Progress> poll() override {
    const bool moved = in_.run() || out_.run();
    Result<Progress> progress = task_.poll();
    if (progress.ok() && *progress == Progress::kIdle && moved) return Progress::kAdvanced;
    if (progress.ok() && *progress == Progress::kAdvanced) out_.run();
    return progress;
  }
  void addWaits(device::WaitSet& waits) override {
    out_.attend();
    in_.attend();
    task_.addWaits(waits);
  }
  Status idle(int64_t nanoseconds) override { return task_.idle(nanoseconds); }
  void complete(Status status) noexcept override {
    out_.settle();
    in_.settle();
    task_.complete(std::move(status));
  }
  const Status& status() const { return task_.status(); }

 private:
  device::PingPongTask task_;
  Motor& out_;
  Motor& in_;
};

struct Exchange {
  bool first = false;
  uint64_t rounds = 0;
  uint64_t burst = 0;
};

inline Status exchange(LinkEnd& out, LinkEnd& in, const Exchange& what) {
  const auto host = device::openDevice(device::DeviceKind::kHost, {}).value();
  Driven task({.out = out.view(),
               .in = in.view(),
               .first = what.first,
               .rounds = what.rounds,
               .burst = what.burst},
              *out.motor(), *in.motor());
  device::Task* one = &task;
  TUTTI_TRY(host->enqueue(nullptr, {&one, 1}));
  return task.status().clone();
}

}  // namespace tutti::transport::net
