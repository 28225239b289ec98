// For tests: the whole catalogue as test parameters, named "AllReduce_ring" and so on.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "schedule/catalog.h"

namespace tutti::schedule {

inline std::vector<Algorithm> allAlgorithms() {
  std::vector<Algorithm> all;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto some = algorithms(static_cast<Collective>(i));
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

inline std::string algorithmTestName(const testing::TestParamInfo<Algorithm>& parameter) {
  const Algorithm& algorithm = parameter.param;
  return std::string(name(algorithm.collective)) + "_" + std::string(algorithm.name);
}

}  // namespace tutti::schedule
