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

}  // namespace
}  // namespace tutti
