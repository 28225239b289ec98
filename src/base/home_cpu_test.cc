#include "base/home_cpu.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <functional>
#include <thread>

#include "base/affinity.h"

namespace tutti {
namespace {

constexpr uint32_t kPlenty = 1u << 15;

// In a thread of its own, so that no other test inherits where it is.
void inThread(const std::function<void()>& body) { std::thread(body).join(); }

TEST(HomeCpu, TakesAThreadThatYieldsHomeAndLeavesItsAffinity) {
  inThread([] {
    const std::vector<int32_t> all = affinityCpus();
    for (const int32_t cpu : all) {
      HomeCpu home(cpu);
      for (int i = 0; i < 4 && ::sched_getcpu() != cpu; ++i) home.noteYields(kPlenty);
      EXPECT_EQ(::sched_getcpu(), cpu);
      EXPECT_EQ(affinityCpus(), all);
    }
  });
}

TEST(HomeCpu, LeavesAThreadAloneThatSeldomYields) {
  const std::vector<int32_t> all = affinityCpus();
  if (all.size() < 2) GTEST_SKIP() << "one CPU";
  inThread([&all] {
    ASSERT_TRUE(moveThreadTo(all[0]));
    HomeCpu home(all[1]);
    home.noteYields(10);
    HomeCpu anywhere(HomeCpu::kNone);
    anywhere.noteYields(kPlenty);
    EXPECT_EQ(::sched_getcpu(), all[0]);  // the scheduler would have no reason, either
  });
}

TEST(HomeCpu, GivesInToWhoeverTakesTheThreadAway) {
  const std::vector<int32_t> all = affinityCpus();
  if (all.size() < 2) GTEST_SKIP() << "one CPU";
  inThread([&all] {
    HomeCpu home(all[1]);
    int moves = 0;
    for (int i = 0; i < 4096; ++i) {
      if (::sched_getcpu() == all[1]) ++moves;
      ASSERT_TRUE(moveThreadTo(all[0]));
      home.noteYields(512);
    }
    EXPECT_GE(moves, 1);
    EXPECT_LE(moves, 64);  // it doubles its patience each time; the scheduler may move it as well
  });
}

TEST(HomeCpu, ABoundThreadStays) {
  const std::vector<int32_t> all = affinityCpus();
  if (all.size() < 2) GTEST_SKIP() << "one CPU";
  inThread([&all] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(all[0], &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_FALSE(moveThreadTo(all[1]));
    HomeCpu(all[1]).noteYields(kPlenty);
    EXPECT_EQ(::sched_getcpu(), all[0]);
    EXPECT_EQ(affinityCpus(), std::vector<int32_t>{all[0]});
  });
}

TEST(Affinity, NoThreadMovesToACpuThatIsNone) {
  EXPECT_FALSE(moveThreadTo(-1));
  EXPECT_FALSE(moveThreadTo(kMostCpus));
}

}  // namespace
}  // namespace tutti
