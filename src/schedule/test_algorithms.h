// For tests: the whole catalogue as test parameters, named "AllReduce_ring" and so on; programs as
// text.
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

// Its steps, or of each so many the first.
inline std::vector<std::string> describeAll(const Program& program, size_t every = 1) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < program.steps.size(); i += every)
    lines.push_back(describe(program, program.steps[i]));
  return lines;
}

}  // namespace tutti::schedule
