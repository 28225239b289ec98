#include "launch/idle_poll.h"

#include "base/futex.h"

namespace tutti::launch {

bool pollUntilIdle(Runner& runner, Nanoseconds bound, Clock& clock) {
  const Instant deadline = clock.now() + bound;
  bool idle = runner.isIdle();
  while (!idle && clock.now() < deadline) {
    sleepFor(kIdlePoll);
    idle = runner.isIdle();
  }
  return idle;
}

}  // namespace tutti::launch
