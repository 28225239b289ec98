// Waiting for what runs on a GPU: the driver has no bounded wait for an event, so it is asked.
#pragma once

#include "base/clock.h"
#include "launch/runner.h"

namespace tutti::launch {

// Between two questions.
inline constexpr Nanoseconds kIdlePoll = std::chrono::microseconds(100);

// False: the runner was not idle within `bound`.
bool pollUntilIdle(Runner& runner, Nanoseconds bound, Clock& clock);

}  // namespace tutti::launch
