// A trace as text, ours (docs/SIMULATOR.md): JSON Lines, or one JSON list of the same objects.
//
//   {"group": "tensor", "consecutive": 8}
//   {"compute_us": 120, "name": "layer 1"}
//   {"call": "all_reduce", "count": 65536, "type": "half", "group": "tensor", "stream": "comm"}
//
// Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "sim/trace.h"

namespace tutti::sim {

// Steps that a trace may have, those for all ranks counted for each.
inline constexpr size_t kMostSteps = 20'000'000;

// The trace of a cluster with so many ranks, or one error with file:line:column.
Result<Trace> parseTrace(std::string_view text, const std::string& source, int32_t rankCount);

// One call on a line of its own, as parseTrace reads it. `batch` tells steps of several calls:
// those with the same number that follow each other on a rank.
struct TraceLine {
  std::string_view group;
  Rank rank{0};
  uint64_t stream = 0;
  uint64_t batch = 0;  // 0: alone
  const plan::CallShape* shape = nullptr;
};
std::string formatTraceLine(const TraceLine& line);
// What declares a group, its ranks in order.
std::string formatTraceGroup(std::string_view name, std::span<const Rank> ranks);

}  // namespace tutti::sim
