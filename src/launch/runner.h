// Runner: what a communicator asks of whatever runs its calls: on the host (Launcher), on GPUs
// (GpuLauncher), for GPUs on the host (StagedLauncher), or nowhere (VirtualLauncher).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "launch/call.h"
#include "observe/board.h"

namespace tutti::launch {

// Thread-safe.
class Runner {
 public:
  // Nothing that was called still runs. On a GPU this says nothing about replays of captured calls.
  virtual bool isIdle() = 0;
  // No call waits for the library itself: those of a GPU are on their streams when they return.
  virtual bool isSettled() = 0;
  // Sleeps until idle, or `bound` has passed; false: not idle yet.
  virtual bool waitIdle(Nanoseconds bound, Clock& clock) = 0;

  // The first failure; ok while there is none.
  virtual Status failure() const = 0;
  virtual bool hasFailed() const = 0;
  // The ranks' common error, which no call of this rank has come upon yet; ok while there is none.
  virtual Status verdict() const { return {}; }
  // This rank's newest call, for people; empty where none is kept.
  virtual std::string lastCall() const { return {}; }
  // Whether the ranks have called the same so far, as far as it can be seen here: what no message
  // has told, as where two ranks broadcast and none of them receives. Once idle.
  virtual Status compareCalls() { return {}; }
  // Whether the process of that rank has died; false also where that cannot be seen here.
  virtual bool isDead(int32_t /*rank*/) const { return false; }
  // Records a failure from outside (the first one wins), ends what runs, and lets the peers know.
  virtual void fail(const Status& status) = 0;
  // This rank starts no further operation, and why: peers that wait for one learn of it. Once idle.
  virtual void retire(observe::Life how) = 0;

 protected:
  ~Runner() = default;
};

// Of GPU ranks: calls go to the users' streams. Of virtual ones they are over at once.
class StreamRunner : public Runner {
 public:
  // The calls of one group. They run on the first call's stream; the other streams wait for it, and
  // it for them. Returns when they are on the stream. Any thread; serialised. `isUsersGroup`:
  // between the program's ncclGroupStart and ncclGroupEnd.
  virtual Status launch(std::span<const StreamCall> calls, bool isUsersGroup) = 0;
  virtual ~StreamRunner() = default;
};

}  // namespace tutti::launch
