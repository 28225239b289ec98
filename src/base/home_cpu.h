// Where a rank's threads belong when ranks share all CPUs of a host.
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti {

// Schedulers leave ranks that yield to each other where they are: seen for seconds, eight ranks on
// one CPU of two and none on the other (docs/results/notes.md, 2026-11-22). They count threads that
// ran a moment ago as hot, and these all did. So a thread that keeps giving its CPU away looks now
// and then whether it is at home, and goes there if not. Its affinity is what it was before: the
// scheduler may take it elsewhere again.
//
// One a rank; any thread, most often the same. All orders are relaxed: a look more or less.
class HomeCpu {
 public:
  // kNone: any CPU is as good.
  explicit HomeCpu(int32_t cpu) : cpu_(cpu) {}

  static constexpr int32_t kNone = -1;
  // A sleep costs what so many yields do.
  static constexpr uint32_t kSleep = 16;

  // The calling thread has given its CPU away for a while, as long as so many yields.
  void noteYields(uint32_t count) {
    if (cpu_ == kNone) return;
    const uint32_t yields = yields_.load(std::memory_order_relaxed) + count;
    yields_.store(yields, std::memory_order_relaxed);
    if (yields >= between_.load(std::memory_order_relaxed)) look();
  }

 private:
  // Some 0.2 ms of yields; and half a minute's, for a thread that is taken away each time.
  static constexpr uint32_t kLeastBetween = 512;
  static constexpr uint32_t kMostBetween = kLeastBetween << 16;

  void look();

  const int32_t cpu_;
  std::atomic<uint32_t> yields_{0};  // since the last look
  std::atomic<uint32_t> between_{kLeastBetween};
};

}  // namespace tutti
