// Tests only: what ranks agree on, and a call of theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "plan/plan.h"

namespace tutti::plan {

inline Agreement agreementOf(int32_t rankCount, std::string algorithms = "") {
  return {.rank = Rank{0},
          .rankCount = rankCount,
          .geometry = {.slotCount = 8, .slotBytes = 64_KiB},
          .algorithms = std::move(algorithms),
          .isOneHost = true};
}

inline CallShape allReduceOf(uint64_t count) {
  return {.collective = Collective::kAllReduce, .count = count};
}

// Of ranks on these hosts, between which a network gathers, and reduces floats' sums.
inline Agreement agreementOfHosts(const std::vector<int32_t>& hostOf, std::string algorithms) {
  Agreement agreement = agreementOf(static_cast<int32_t>(hostOf.size()), std::move(algorithms));
  agreement.isOneHost = false;
  agreement.hostOf = hostOf;
  agreement.inNetwork = {.name = "Switch",
                         .headCount = 1,
                         .supported = NetworkReduction::bitOf(DataType::kFloat32, ReduceOp::kSum),
                         .gathers = true};
  for (size_t i = 0; i < hostOf.size(); ++i) {
    if (i == 0 || hostOf[i] != hostOf[i - 1])
      agreement.inNetwork.hostStarts.push_back(static_cast<int32_t>(i));
  }
  return agreement;
}

}  // namespace tutti::plan
