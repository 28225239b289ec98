// Which steps of a trace wait for which: those of a rank for each other, and calls for the other
// ranks'. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "sim/trace.h"

namespace tutti::sim {

// Steps that can only run together: those of a collective, or the two ends of a transfer.
struct TraceMeeting {
  const TraceStep* first = nullptr;  // of the trace, as `call` is
  const TraceCall* call = nullptr;   // of `first`
  std::vector<int32_t> steps{};
  size_t wanted = 0;  // how many
};

struct TraceOrder {
  std::vector<TraceMeeting> meetings;
  std::vector<std::vector<int32_t>> meetingsOf;  // by step
  std::vector<std::vector<int32_t>> after;       // by step: those that wait for it
  std::vector<int32_t> waitsFor;                 // by step: for how many
  std::vector<std::map<Rank, Rank>> placeIn;     // by group: the place of each of its ranks
};

// kInvalidArgument, with the place: ranks of a group call different things.
Result<TraceOrder> orderOf(const Trace& trace);

}  // namespace tutti::sim
