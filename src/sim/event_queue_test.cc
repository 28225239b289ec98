#include "sim/event_queue.h"

#include <gtest/gtest.h>

#include <queue>

#include "base/rng.h"

namespace tutti::sim {
namespace {

struct Timed {
  double us = 0;
  uint64_t order = 0;
  bool operator>(const Timed& other) const {
    return us != other.us ? us > other.us : order > other.order;
  }
};

// Both play the same: each event popped makes up to two later ones, many at the same time as
// others, one at the end of time.
TEST(EventQueue, GivesWhatOneHeapWouldGive) {
  for (const uint64_t pending : {1u, 40u, 5000u}) {
    SeededRng rng(pending);
    EventQueue<Timed> queue;
    std::priority_queue<Timed, std::vector<Timed>, std::greater<>> heap;
    uint64_t order = 0;
    const auto push = [&](double us) {
      queue.push({us, order});
      heap.push({us, order++});
    };
    push(1e300);
    for (uint64_t i = 0; i < pending; ++i) push(static_cast<double>(rng.below(100)));
    for (int i = 0; i < 50'000 && !heap.empty(); ++i) {
      ASSERT_FALSE(queue.empty());
      const Timed wanted = heap.top();
      ASSERT_EQ(queue.top().us, wanted.us);
      ASSERT_EQ(queue.top().order, wanted.order);
      heap.pop();
      queue.pop();
      if (wanted.us > 1e200) continue;
      const uint64_t made = heap.size() < pending ? 2 : rng.below(2);
      for (uint64_t k = 0; k < made; ++k)
        push(wanted.us + static_cast<double>(rng.below(64)) / (rng.below(8) == 0 ? 1e-3 : 8));
    }
    while (!queue.empty()) queue.pop();
    EXPECT_TRUE(queue.empty());
  }
}

TEST(EventQueue, IsUsedAnewWhenItWasEmpty) {
  EventQueue<Timed> queue;
  for (const double us : {5.0, 7.0, 7.0, 1e9}) {
    EXPECT_TRUE(queue.empty());
    queue.push({us, 0});
    EXPECT_EQ(queue.top().us, us);
    queue.pop();
  }
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace tutti::sim
