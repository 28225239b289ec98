// Tests only: a host device with streams and events, and what is put on them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

#include "device/device.h"
#include "device/host/host_device.h"
#include "device/host_streams.h"
#include "device/registry.h"

namespace tutti::device {

// A gate that tasks and host functions wait at.
class Gate {
 public:
  void open() {
    word_.store(1, std::memory_order_seq_cst);
    wakeIfSleeping(word_, sleepers_);
  }
  bool isOpen() const { return word_.load() != 0; }
  WaitPoint waitPoint() { return {.word = &word_, .seen = 0, .sleeper = &sleepers_}; }
  static void passHere(void* gate) {
    auto* self = static_cast<Gate*>(gate);
    while (!self->isOpen())
      sleepOn({.word = &self->word_, .seen = 0}, std::chrono::milliseconds(1));
  }

 private:
  std::atomic<uint64_t> word_{0};
  std::atomic<uint32_t> sleepers_{0};
};

// Takes a number from a counter when it is done; done after `polls` polls and, if there is a gate,
// when that is open.
class NumberTask final : public Task {
 public:
  explicit NumberTask(std::atomic<int>& counter, int polls = 1, Gate* gate = nullptr)
      : counter_(counter), polls_(polls), gate_(gate) {}
  Result<Progress> poll() override {
    if (gate_ != nullptr && !gate_->isOpen()) return Progress::kIdle;
    return --polls_ > 0 ? Progress::kAdvanced : Progress::kDone;
  }
  void addWaits(WaitSet& waits) override {
    if (gate_ != nullptr) waits.add(gate_->waitPoint());
  }
  Status idle(int64_t) override { return {}; }
  void complete(Status) noexcept override {
    number.store(counter_.fetch_add(1));
    ++completions;
    thread = std::this_thread::get_id();
  }

  std::atomic<int> number{-1};
  int completions = 0;
  std::thread::id thread;

 private:
  std::atomic<int>& counter_;
  int polls_;
  Gate* const gate_;
};

class HostDeviceTest : public testing::Test {
 protected:
  void SetUp() override { device_ = openDevice(DeviceKind::kHost, {}).value(); }

  HostStreams& streams() { return *device_->hostStreams(); }
  void* makeStream() { return streams().createStream().value(); }
  void* makeEvent() { return streams().createEvent().value(); }
  Stream* resolved(void* stream) { return device_->resolve(stream).value(); }
  void expectInvalid(const Status& status) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
  }

  std::unique_ptr<Device> device_;
};

}  // namespace tutti::device
