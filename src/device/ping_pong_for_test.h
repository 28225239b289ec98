// For tests: a task that exchanges bursts of messages with its partner over two links, and checks
// every byte.
#pragma once

#include <atomic>
#include <cstring>

#include "device/task.h"
#include "wire/link.h"

namespace tutti::device {

struct PingPong {
  wire::LinkView out;
  wire::LinkView in;
  bool first = false;  // sends before it receives
  uint64_t rounds = 0;
  uint64_t burst = 1;  // messages one way before the other way; more than the slots, and senders
                       // wait too
};

// A test that sleeps longer than this at a stretch finds every lost wake-up: the task then fails.
inline constexpr int64_t kSilenceNanoseconds = 15'000'000'000;

class PingPongTask final : public Task {
 public:
  explicit PingPongTask(const PingPong& what)
      : what_(what), out_{.view = what.out}, in_{.view = what.in}, sending_(what.first) {}

  Result<Progress> poll() override {
    const bool moved = sending_ ? send() : receive();
    if (corrupt_) return Status(Code::kInternalError, "a message arrived changed");
    if (!moved) return Progress::kIdle;
    if (++inBurst_ == what_.burst) {
      inBurst_ = 0;
      sending_ = !sending_;
      if (sending_ == what_.first) ++round_;
    }
    return round_ == what_.rounds ? Progress::kDone : Progress::kAdvanced;
  }

  void addWaits(WaitSet& waits) override {
    if (sending_) {
      waits.add({.word = &what_.out.control->head,
                 .seen = out_.known,
                 .sleeper = &what_.out.control->senderSleeps});
    } else {
      waits.add({.word = &what_.in.message(in_.next).mark,
                 .seen = seen_,
                 .sleeper = &what_.in.control->receiverSleeps});
    }
  }

  Status idle(int64_t idleNanoseconds) override {
    if (idleNanoseconds > kSilenceNanoseconds)
      return Status(Code::kRemoteError, "the partner went silent");
    return {};
  }

  void complete(Status status) noexcept override {
    status_ = std::move(status);
    completions_.fetch_add(1);
  }

  int completions() const { return completions_.load(); }
  const Status& status() const { return status_; }

 private:
  bool send() {
    const uint32_t bytes = what_.out.geometry.slotBytes;
    if (!wire::hasFreeSlot(out_, bytes)) return false;
    std::memset(wire::payloadToFill(out_, bytes), static_cast<int>(out_.next & 0xff), bytes);
    wire::publish(out_, bytes, static_cast<uint32_t>(out_.next));
    return true;
  }

  bool receive() {
    seen_ = what_.in.message(in_.next).mark.load(std::memory_order_acquire);
    if (!wire::hasMessage(in_)) return false;
    const std::byte expected{static_cast<unsigned char>(in_.next & 0xff)};
    const std::byte* payload = wire::receivedPayload(in_, what_.in.geometry.slotBytes);
    for (size_t i = 0; i < what_.in.geometry.slotBytes; ++i) corrupt_ |= payload[i] != expected;
    corrupt_ |= what_.in.message(in_.next).signature != static_cast<uint32_t>(in_.next);
    wire::release(in_);
    return true;
  }

  const PingPong what_;
  wire::LinkPort out_;
  wire::LinkPort in_;
  bool sending_;
  bool corrupt_ = false;
  uint64_t seen_ = 0;
  uint64_t inBurst_ = 0;
  uint64_t round_ = 0;
  Status status_;
  std::atomic<int> completions_{0};
};

}  // namespace tutti::device
