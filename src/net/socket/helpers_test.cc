#include "net/socket/helpers.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace tutti::net::socket {
namespace {

TEST(Helpers, DoEachPieceOnce) {
  Helpers helpers(3);
  for (int round = 0; round < 1000; ++round) {
    std::array<int, 8> times{};  // each written by whoever has the piece, read when all are over
    helpers.run(times.size(), [&times](size_t i) { ++times[i]; });
    for (const int each : times) ASSERT_EQ(each, 1) << round;
  }
}

TEST(Helpers, WorkAtTheSameTimeAsTheCaller) {
  Helpers helpers(2);
  std::mutex mutex;
  std::condition_variable all;
  std::set<std::thread::id> threads;
  helpers.run(3, [&](size_t) {  // nobody goes on before three are here
    std::unique_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    all.notify_all();
    all.wait(lock, [&] { return threads.size() == 3; });
  });
  EXPECT_EQ(threads.size(), 3u);
}

TEST(Helpers, AreNotWaitedForWhenTheyHelpSomebodyElse) {
  Helpers helpers(1);
  std::vector<std::thread> callers;
  std::array<std::array<int, 4>, 4> times{};
  for (auto& own : times) {
    callers.emplace_back([&helpers, &own] {
      for (int round = 0; round < 500; ++round)
        helpers.run(own.size(), [&own](size_t i) { ++own[i]; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const auto& own : times) {
    for (const int each : own) EXPECT_EQ(each, 500);
  }
}

TEST(Helpers, MayBeNone) {
  Helpers helpers(0);
  int sum = 0;
  helpers.run(5, [&sum](size_t i) { sum += static_cast<int>(i); });
  EXPECT_EQ(sum, 10);
}

}  // namespace
}  // namespace tutti::net::socket
