// The time line of a communicator's ranks: the operations whose times were kept, and what the ranks
// wait for; as bars, and as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "observe/examination.h"

namespace tutti::observe {

struct Bar {
  enum class Kind : uint8_t { kDone, kRunning, kFailed, kWait };
  Kind kind = Kind::kDone;
  int32_t rank = 0;
  int32_t lane = 0;   // of the rank; bars of one lane do not overlap. Lane 0 has the waits
  int64_t begin = 0;  // nanoseconds of the monotonic clock
  int64_t end = 0;    // of what goes on: the moment of the last look
  std::string text;
};

// By rank, then lane, then begin.
std::vector<Bar> barsOf(const Evidence& evidence);

// Chrome's trace format: a process a communicator, a thread a rank's lane.
std::string traceOf(std::span<const Examination> found);

}  // namespace tutti::observe
