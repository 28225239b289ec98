#include "launch/idle_poll.h"

#include "base/futex.h"

namespace tutti::launch {

bool pollUntilIdle(Runner& runner, device::Accelerator& accelerator, Nanoseconds bound,
                   Clock& clock) {
  const Instant deadline = clock.now() + bound;
  const int mode = accelerator.relaxCapture();
  bool idle = runner.isIdle();
  while (!idle && clock.now() < deadline) {
    sleepFor(kIdlePoll);
    idle = runner.isIdle();
  }
  accelerator.restoreCapture(mode);
  return idle;
}

}  // namespace tutti::launch
