// Tests only: time-outs that a machine without a free CPU does not break.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <functional>

namespace tutti {

// A machine that gives nobody a CPU for half a second ends short time-outs of ranks that are well,
// and they name each other. So `attempt` is given a time-out, checks everything, and where a check
// fails is tried again with four and sixteen times the time. What is wrong fails all three tries;
// the last one's failures are the test's. Each attempt makes anew what it changes.
inline void withPatience(std::chrono::milliseconds timeout,
                         const std::function<void(std::chrono::milliseconds)>& attempt) {
  using Reporter = testing::ScopedFakeTestPartResultReporter;
  for (const int more : {1, 4}) {
    testing::TestPartResultArray results;
    {
      const Reporter reporter(Reporter::INTERCEPT_ALL_THREADS, &results);
      attempt(timeout * more);
    }
    bool isGood = true;
    for (int i = 0; i < results.size(); ++i) {
      const testing::TestPartResult& result = results.GetTestPartResult(i);
      if (result.skipped() || result.passed()) continue;
      isGood = false;
      std::printf("tried again, after a time-out of %lld ms: %s\n",
                  static_cast<long long>((timeout * more).count()), result.message());
    }
    if (isGood) return;
  }
  attempt(timeout * 16);
}

}  // namespace tutti
