#include "device/host/waiter.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "base/futex.h"
#include "device/host/driver.h"
#include "device/ping_pong_for_test.h"

namespace tutti::device::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Longer than a PingPongTask's patience, so that no lost wake-up is healed by the end of a sleep.
constexpr Nanoseconds kNoHealing = seconds(20);
static_assert(kNoHealing.count() > kSilenceNanoseconds);

constexpr wire::LinkGeometry kTiny{.slotCount = 2, .slotBytes = 64};

class LinkMemory {
 public:
  explicit LinkMemory(const wire::LinkGeometry& geometry = kTiny)
      : lines_(divideUp(wire::linkBytes(geometry), sizeof(Line))),
        view_(wire::viewLink(lines_.data(), geometry)) {}
  const wire::LinkView& view() const { return view_; }

 private:
  struct alignas(kCacheLineBytes) Line {
    std::array<std::byte, kCacheLineBytes> bytes{};
  };
  std::vector<Line> lines_;
  wire::LinkView view_;
};

struct Stress {
  const char* name;
  WaitPolicy policy;
  uint64_t rounds;
  bool sleepsOnMany;
};

class WakeUps : public testing::TestWithParam<Stress> {};

TEST_P(WakeUps, AreNeverLost) {
  LinkMemory forth;
  LinkMemory back;
  Waiting waiting(steadyClock(), kNoHealing);
  waiting.setPolicy(GetParam().policy);
  waiting.canSleepOnMany = GetParam().sleepsOnMany;
  // Bursts of 3 through 2 slots: receivers wait for messages, and senders for free slots.
  PingPongTask left({.out = forth.view(),
                     .in = back.view(),
                     .first = true,
                     .rounds = GetParam().rounds,
                     .burst = 3});
  PingPongTask right({.out = back.view(),
                      .in = forth.view(),
                      .first = false,
                      .rounds = GetParam().rounds,
                      .burst = 3});
  std::thread partner([&] {
    Task* task = &right;
    drive(linkGroup({&task, 1}), waiting);
  });
  Task* task = &left;
  drive(linkGroup({&task, 1}), waiting);
  partner.join();
  EXPECT_TRUE(left.status().ok()) << left.status().message();
  EXPECT_TRUE(right.status().ok()) << right.status().message();
  EXPECT_EQ(left.completions(), 1);
  EXPECT_EQ(right.completions(), 1);
  for (const LinkMemory* link : {&forth, &back}) {
    EXPECT_EQ(link->view().control->senderSleeps.load(), 0u);
    EXPECT_EQ(link->view().control->receiverSleeps.load(), 0u);
  }
}

// 34,000 rounds of two bursts of 3 are 204,000 messages.
INSTANTIATE_TEST_SUITE_P(
    Policies, WakeUps,
    testing::Values(Stress{"SpinThenSleep", {.spins = 200, .yields = 0}, 34'000, true},
                    Stress{"YieldThenSleep", {.spins = 0, .yields = 200}, 34'000, true},
                    Stress{"SleepAtOnce", {.spins = 0, .yields = 0}, 34'000, true},
                    Stress{"Mixed", {.spins = 20, .yields = 2}, 34'000, true}),
    [](const auto& stress) { return stress.param.name; });

// Two pairs a thread: the sleeps are on two words.
TEST(Waiter, LosesNoWakeUpOnManyWords) {
  for (const bool sleepsOnMany : {true, false}) {
    std::array<LinkMemory, 4> links;
    Waiting waiting(steadyClock(), kNoHealing);
    waiting.canSleepOnMany = sleepsOnMany;
    const uint64_t rounds = sleepsOnMany ? 10'000 : 200;
    const auto pair = [&](size_t which, bool first) {
      const wire::LinkView& forth = links[2 * which].view();
      const wire::LinkView& back = links[2 * which + 1].view();
      return PingPong{.out = first ? forth : back,
                      .in = first ? back : forth,
                      .first = first,
                      .rounds = rounds,
                      .burst = 3};
    };
    PingPongTask leftA(pair(0, true));
    PingPongTask leftB(pair(1, false));
    PingPongTask rightA(pair(0, false));
    PingPongTask rightB(pair(1, true));
    std::thread partner([&] {
      const std::array<Task*, 2> tasks{&rightA, &rightB};
      drive(linkGroup(tasks), waiting);
    });
    const std::array<Task*, 2> tasks{&leftA, &leftB};
    drive(linkGroup(tasks), waiting);
    partner.join();
    for (const PingPongTask* task : {&leftA, &leftB, &rightA, &rightB}) {
      EXPECT_TRUE(task->status().ok()) << task->status().message();
      EXPECT_EQ(task->completions(), 1);
    }
  }
}

TEST(Waiter, DoesNotSleepWhenAPointChangedBefore) {
  std::atomic<uint64_t> same{1};
  std::atomic<uint64_t> changed{2};
  std::atomic<uint32_t> sleepers{0};
  WaitSet waits;
  waits.add({.word = &same, .seen = 1, .sleeper = &sleepers});
  waits.add({.word = &changed, .seen = 1, .sleeper = &sleepers});
  Waiting waiting(steadyClock());
  const Instant before = steadyClock().now();
  sleepOnWaits(waits, seconds(30), waiting);
  EXPECT_LT(steadyClock().now() - before, seconds(15));
  EXPECT_EQ(sleepers.load(), 0u);
}

TEST(Waiter, SleepsBrieflyWithoutPointsOrWithTooMany) {
  Waiting waiting(steadyClock());
  WaitSet waits;
  const Instant before = steadyClock().now();
  sleepOnWaits(waits, seconds(30), waiting);
  std::atomic<uint64_t> word{1};
  for (size_t i = 0; i <= WaitSet::kCapacity; ++i)
    waits.add({.word = &word, .seen = 1, .sleeper = nullptr});
  EXPECT_TRUE(waits.overflowed);
  sleepOnWaits(waits, seconds(30), waiting);
  EXPECT_LT(steadyClock().now() - before, seconds(15));
}

TEST(Waiter, WaitsForAChangeThroughAllPhases) {
  Waiting waiting(steadyClock());
  waiting.setPolicy({.spins = 3, .yields = 3});
  std::atomic<uint64_t> word{0};
  std::atomic<uint32_t> sleepers{0};
  std::thread waiter(
      [&] { waitForChange({.word = &word, .seen = 0, .sleeper = &sleepers}, waiting); });
  while (sleepers.load() == 0) std::this_thread::yield();
  word.store(1, std::memory_order_seq_cst);
  wakeIfSleeping(word, sleepers);
  waiter.join();
  EXPECT_EQ(sleepers.load(), 0u);
}

TEST(Waiter, ChecksInEveryPhaseAndSleepsAtTheEnd) {
  const WaitPolicy policy{.spins = 4096, .yields = 1024};
  Waiter waiter(policy);
  int checks = 0;
  for (uint32_t i = 0; i < policy.spins; ++i)
    checks += waiter.next() == Waiter::Next::kCheckThenPoll;
  EXPECT_GE(checks, 2);
  checks = 0;
  for (uint32_t i = 0; i < policy.yields; ++i)
    checks += waiter.next() == Waiter::Next::kCheckThenPoll;
  EXPECT_GE(checks, 2);
  EXPECT_EQ(waiter.next(), Waiter::Next::kCheckThenSleep);
  EXPECT_EQ(waiter.next(), Waiter::Next::kCheckThenSleep);
  waiter.reset();
  EXPECT_EQ(waiter.next(), Waiter::Next::kPoll);
}

TEST(Patience, EndsWhenWaitsStayLongAndComesBackWithShortOnes) {
  constexpr WaitPolicy kOwn{.spins = 8192, .yields = 1024};
  Patience patience;
  patience.learn(false);
  patience.learn(true);
  patience.learn(false);
  EXPECT_EQ(patience.limit(kOwn).spins, kOwn.spins) << "one late partner is no sign";
  for (int i = 0; i < 20; ++i) patience.learn(false);
  EXPECT_LE(patience.limit(kOwn).spins, 64u);
  EXPECT_LE(patience.limit(kOwn).yields, 8u);
  EXPECT_GE(patience.limit(kOwn).yields, 1u);
  EXPECT_EQ(patience.limit({.spins = 0, .yields = 4}).yields, 4u);
  for (int i = 0; i < 7; ++i) patience.learn(true);
  EXPECT_EQ(patience.limit(kOwn).spins, kOwn.spins);
  EXPECT_EQ(patience.limit(kOwn).yields, kOwn.yields);
}

TEST(Waiter, TellsWhetherAWaitWasShort) {
  Waiter spinning({.spins = 2, .yields = 2});
  EXPECT_FALSE(spinning.hasWaited());
  spinning.next();
  spinning.next();
  EXPECT_TRUE(spinning.hasWaited() && spinning.wasShort());
  spinning.next();
  EXPECT_FALSE(spinning.wasShort());
  Waiter yielding({.spins = 0, .yields = 2});
  yielding.next();
  yielding.next();
  EXPECT_TRUE(yielding.wasShort());
  yielding.next();
  EXPECT_FALSE(yielding.wasShort());
}

TEST(WaitPolicy, GivesTheCpuAwaySoonerTheMoreRanksShareIt) {
  const WaitPolicy own = makeWaitPolicy(2, 2);
  const WaitPolicy shared = makeWaitPolicy(4, 2);
  const WaitPolicy crowded = makeWaitPolicy(64, 2);
  EXPECT_GT(own.spins, shared.spins);
  EXPECT_GE(shared.spins, crowded.spins);
  EXPECT_GT(own.yields, shared.yields);
  EXPECT_GT(shared.yields, crowded.yields);
  EXPECT_EQ(makeWaitPolicy(0, 0).spins, own.spins);
}

TEST(WaitPolicy, IsReadWhole) {
  Waiting waiting(steadyClock());
  waiting.setPolicy({.spins = 0xfffffffe, .yields = 0xfffffffd});
  EXPECT_EQ(waiting.policy().spins, 0xfffffffe);
  EXPECT_EQ(waiting.policy().yields, 0xfffffffd);
}

}  // namespace
}  // namespace tutti::device::host
