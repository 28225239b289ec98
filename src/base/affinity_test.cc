#include "base/affinity.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <thread>

namespace tutti {
namespace {

TEST(Affinity, NamesTheCpusOfTheThread) {
  const std::vector<int32_t> all = affinityCpus();
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(std::ranges::is_sorted(all));
  EXPECT_NE(std::ranges::find(all, ::sched_getcpu()), all.end());
}

TEST(Affinity, FollowsABoundThread) {
  const int32_t last = affinityCpus().back();
  std::vector<int32_t> bound;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    if (::sched_setaffinity(0, sizeof one, &one) == 0) bound = affinityCpus();
  }).join();
  EXPECT_EQ(bound, std::vector<int32_t>{last});
}

TEST(CpuList, IsReadAsTheKernelWritesIt) {
  EXPECT_EQ(parseCpuList("0-3,8,10-11\n"), (std::vector<int32_t>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parseCpuList("5"), std::vector<int32_t>{5});
  for (const char* wrong : {"", "\n", "a", "3-1", "-1", "1,,2", "0-99999999", "1-"})
    EXPECT_TRUE(parseCpuList(wrong).empty()) << wrong;
}

TEST(NarrowedAffinity, HoldsWhileItLivesAndIsRestored) {
  const std::vector<int32_t> all = affinityCpus();
  if (all.size() < 2) GTEST_SKIP() << "this thread has one CPU";
  const std::vector<int32_t> last = {all.back()};
  {
    const NarrowedAffinity narrowed(last, false);
    EXPECT_TRUE(narrowed.isNarrowed());
    EXPECT_EQ(affinityCpus(), last);
    {
      // Of the CPUs beyond its affinity none, unless it ignores that.
      const std::vector<int32_t> first = {all.front()};
      const NarrowedAffinity beyond(first, false);
      EXPECT_FALSE(beyond.isNarrowed());
      EXPECT_EQ(affinityCpus(), last);
      const NarrowedAffinity regardless(first, true);
      EXPECT_EQ(affinityCpus(), first);
    }
    EXPECT_EQ(affinityCpus(), last);
    const NarrowedAffinity both(all, false);
    EXPECT_EQ(affinityCpus(), last);
  }
  EXPECT_EQ(affinityCpus(), all);
}

TEST(NarrowedAffinity, LeavesAThreadAloneThatNoCpuIsFor) {
  const std::vector<int32_t> all = affinityCpus();
  for (const std::vector<int32_t>& cpus : {std::vector<int32_t>{}, {-1}, {kMostCpus - 1}, all}) {
    const NarrowedAffinity narrowed(cpus, false);
    EXPECT_FALSE(narrowed.isNarrowed());
    EXPECT_EQ(affinityCpus(), all);
  }
}

}  // namespace
}  // namespace tutti
