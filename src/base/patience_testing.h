// Tests only: time-outs and bounds that a machine without a free CPU does not break.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <functional>

namespace tutti {

// A machine that others use takes CPUs away for a second at times, and whoever measures then finds
// everybody late. So `attempt` checks everything, and where a check fails is tried again, with four
// and sixteen times the patience. What is wrong fails all three tries; the last one's failures are
// the test's. Each attempt makes anew what it changes, and ends its threads.
inline void inThreeTries(const std::function<void(int patience)>& attempt) {
  using Reporter = testing::ScopedFakeTestPartResultReporter;
  for (const int patience : {1, 4}) {
    testing::TestPartResultArray results;
    {
      const Reporter reporter(Reporter::INTERCEPT_ALL_THREADS, &results);
      attempt(patience);
    }
    bool isGood = true;
    for (int i = 0; i < results.size(); ++i) {
      const testing::TestPartResult& result = results.GetTestPartResult(i);
      if (!result.failed()) continue;
      isGood = false;
      std::printf("tried again, after %d times the patience: %s\n", patience, result.message());
    }
    if (isGood) return;
  }
  attempt(16);
}

// For ranks with a short time-out, which ends where they get no CPU: they name each other.
inline void withPatience(std::chrono::milliseconds timeout,
                         const std::function<void(std::chrono::milliseconds)>& attempt) {
  inThreeTries([&](int patience) { attempt(timeout * patience); });
}

}  // namespace tutti
