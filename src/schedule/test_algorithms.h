// For tests: the whole catalogue as test parameters, named "AllReduce_ring" and so on; programs as
// text.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
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

// Messages a program moves in one piece.
inline int32_t countLinks(const Program& program, bool asSources) {
  int32_t count = 0;
  for (const Step& step : program.steps) {
    for (const Operand& operand : asSources ? program.sources(step) : program.destinations(step))
      count += operand.place == Place::kLink;
  }
  return count;
}

// But for the hops.
inline Cost costSeen(const Schedule& schedule) {
  Cost seen;
  for (size_t rank = 0; rank < schedule.programs.size(); ++rank) {
    const Program& program = schedule.programs[rank];
    seen.messages += countLinks(program, false);
    if (rank >= static_cast<size_t>(schedule.rankCount)) continue;  // the network
    seen.steps = std::max(seen.steps, static_cast<int32_t>(program.steps.size()));
    seen.sentMessages = std::max(seen.sentMessages, countLinks(program, false));
    seen.receivedMessages = std::max(seen.receivedMessages, countLinks(program, true));
    seen.links += static_cast<int64_t>(program.sendsTo.size());
  }
  return seen;
}

}  // namespace tutti::schedule
