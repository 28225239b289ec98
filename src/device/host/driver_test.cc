#include "device/host/driver.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <deque>
#include <set>
#include <thread>
#include <vector>

#include "base/affinity.h"

namespace tutti::device::host {
namespace {

// Says what it was told to say, then counts.
class ScriptedTask : public Task {
 public:
  explicit ScriptedTask(std::deque<Progress> script) : script_(std::move(script)) {}

  Result<Progress> poll() override {
    ++polls;
    if (failsAtPoll == polls) return Status(Code::kInternalError, "poll failed");
    const Progress now = script_.front();
    if (script_.size() > 1) script_.pop_front();
    return now;
  }
  void addWaits(WaitSet&) override {}
  Status idle(int64_t idleNanoseconds) override {
    idles.push_back(idleNanoseconds);
    if (failsWhenIdle) return Status(Code::kRemoteError, "too idle");
    return {};
  }
  void complete(Status status) noexcept override {
    ++completions;
    outcome = std::move(status);
    next = this;  // whoever still reads it loops for ever
  }

  int polls = 0;
  int failsAtPoll = -1;
  bool failsWhenIdle = false;
  std::vector<int64_t> idles;
  int completions = 0;
  Status outcome;

 private:
  std::deque<Progress> script_;
};

class DriverTest : public testing::Test {
 protected:
  void run(std::vector<Task*> tasks) { drive(linkGroup(tasks), waiting_); }

  ManualClock clock_;
  Waiting waiting_{clock_};
};

TEST_F(DriverTest, ReturnsAtOnceWithoutTasks) { run({}); }

TEST_F(DriverTest, CompletesEachTaskOnce) {
  ScriptedTask quick({Progress::kDone});
  ScriptedTask slow({Progress::kAdvanced, Progress::kIdle, Progress::kAdvanced, Progress::kDone});
  ScriptedTask last({Progress::kIdle, Progress::kDone});
  run({&quick, &slow, &last});
  for (const ScriptedTask* task : {&quick, &slow, &last}) {
    EXPECT_EQ(task->completions, 1);
    EXPECT_TRUE(task->outcome.ok());
  }
  EXPECT_EQ(quick.polls, 1);
  EXPECT_EQ(slow.polls, 4);
}

TEST_F(DriverTest, EndsAFailedTaskWithItsErrorAndDrivesTheOthers) {
  ScriptedTask good(
      {Progress::kAdvanced, Progress::kAdvanced, Progress::kAdvanced, Progress::kDone});
  ScriptedTask bad({Progress::kAdvanced});
  bad.failsAtPoll = 2;
  run({&bad, &good});
  EXPECT_EQ(bad.completions, 1);
  EXPECT_EQ(bad.polls, 2);
  EXPECT_EQ(bad.outcome.code(), Code::kInternalError);
  EXPECT_EQ(good.completions, 1);
  EXPECT_TRUE(good.outcome.ok());
}

TEST_F(DriverTest, EndsATaskWhoseSlowPathFails) {
  ScriptedTask stuck({Progress::kIdle});
  stuck.failsWhenIdle = true;
  ScriptedTask good({Progress::kIdle, Progress::kIdle, Progress::kDone});
  run({&stuck, &good});
  EXPECT_EQ(stuck.completions, 1);
  EXPECT_EQ(stuck.outcome.code(), Code::kRemoteError);
  EXPECT_TRUE(good.outcome.ok());
}

TEST_F(DriverTest, CountsIdleTimeSinceTheTaskItselfAdvanced) {
  // Each idle poll takes a second. The steady task keeps the driver busy; the other one's idle time
  // must grow all the same.
  class Ticking final : public ScriptedTask {
   public:
    Ticking(std::deque<Progress> script, ManualClock& clock)
        : ScriptedTask(std::move(script)), clock_(clock) {}
    Result<Progress> poll() override {
      clock_.advance(std::chrono::seconds(1));
      return ScriptedTask::poll();
    }

   private:
    ManualClock& clock_;
  };
  Ticking ticking({Progress::kIdle, Progress::kIdle, Progress::kIdle, Progress::kAdvanced,
                   Progress::kIdle, Progress::kIdle, Progress::kDone},
                  clock_);
  ScriptedTask waiting({Progress::kIdle, Progress::kIdle, Progress::kIdle, Progress::kIdle,
                        Progress::kIdle, Progress::kIdle, Progress::kIdle, Progress::kDone});
  run({&ticking, &waiting});
  constexpr int64_t kSecond = 1'000'000'000;
  EXPECT_EQ(ticking.idles, (std::vector<int64_t>{0, kSecond, 2 * kSecond, 0, kSecond}));
  EXPECT_EQ(waiting.idles,
            (std::vector<int64_t>{0, kSecond, 2 * kSecond, 4 * kSecond, 5 * kSecond}));
}

TEST_F(DriverTest, LetsATaskBeReusedOrFreedFromInsideComplete) {
  class Own final : public ScriptedTask {
   public:
    explicit Own(int& freed) : ScriptedTask({Progress::kIdle, Progress::kDone}), freed_(freed) {}
    void complete(Status) noexcept override {
      ++freed_;
      delete this;
    }

   private:
    int& freed_;
  };
  int freed = 0;
  run({new Own(freed), new Own(freed), new Own(freed)});
  EXPECT_EQ(freed, 3);
}

class DriverPatienceTest : public DriverTest {
 protected:
  static constexpr WaitPolicy kOwn{.spins = 512, .yields = 64};
  // Waits, each longer than the spins.
  void waitLong(int times) {
    waiting_.setPolicy(kOwn);
    for (int i = 0; i < times; ++i) {
      std::deque<Progress> script(kOwn.spins + 8, Progress::kIdle);
      script.push_back(Progress::kDone);
      ScriptedTask task(std::move(script));
      run({&task});
      EXPECT_EQ(task.completions, 1);
    }
  }
  uint32_t spins() const { return waiting_.patience.limit(kOwn).spins; }
};

TEST_F(DriverPatienceTest, StaysWhileNobodyElseWantsTheCpu) {
  waiting_.switches = [] { return int64_t{7}; };
  waitLong(6);
  EXPECT_EQ(spins(), kOwn.spins);
}

TEST_F(DriverPatienceTest, EndsWhereOthersRunMeanwhile) {
  waiting_.switches = [] {
    static int64_t count = 0;
    return ++count;
  };
  waitLong(6);
  EXPECT_LT(spins(), kOwn.spins / 4);
}

TEST_F(DriverTest, TakesAThreadThatYieldsHome) {
  const std::vector<int32_t> all = affinityCpus();
  class Noting final : public ScriptedTask {
   public:
    using ScriptedTask::ScriptedTask;
    Result<Progress> poll() override {
      if (polls > 520) cpus.insert(::sched_getcpu());  // by then it has looked
      return ScriptedTask::poll();
    }
    std::set<int32_t> cpus;
  };
  waiting_.setPolicy({.spins = 0, .yields = 1000});
  // A busy machine's scheduler may take the thread elsewhere again.
  bool wasHome = false;
  for (int go = 0; go < 20 && !wasHome; ++go) {
    std::thread([&] {
      ASSERT_TRUE(moveThreadTo(all.front()));
      HomeCpu home(all.back());
      std::deque<Progress> script(600, Progress::kIdle);
      script.push_back(Progress::kDone);
      Noting task(std::move(script));
      task.home = &home;
      run({&task});
      wasHome = task.cpus.contains(all.back());
    }).join();
  }
  EXPECT_TRUE(wasHome);
}

}  // namespace
}  // namespace tutti::device::host
