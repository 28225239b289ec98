// Groups: what a thread calls between ncclGroupStart and ncclGroupEnd is done as one at the
// outermost end. A call outside a group is a group of one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "device/device.h"
#include "device/host_streams.h"
#include "launch/launcher.h"

namespace tutti::group {

// One operation call, waiting for the end of its group.
struct PendingCall {
  std::shared_ptr<comm::Communicator> communicator;  // shared with the handle table: the user may
                                                     // destroy it before the group ends
  launch::Call call;
  void* stream = nullptr;  // as the user gave it
  bool isTaken = false;    // part of an operation already
};

// A call outside a group: a group of one, with nothing to order or join. REQUIRES: the communicator
// is ready and stays alive during the call.
Status runAlone(comm::Communicator& communicator, const launch::Call& call, void* stream);

// What the launcher has begun of such a call in the calling thread, or (`where`) is to run on a
// stream.
Status goOn(comm::Communicator& communicator, device::Stream* where, device::Task& task);

// One thread's group. The vectors keep their memory, so that a steady stream of groups allocates
// nothing.
class Group {
 public:
  // This thread's.
  static Group& current();

  // Whether this thread's is.
  static bool isOpen() { return groupDepth_ > 0; }
  void start() { ++groupDepth_; }

  // Runs everything when the outermost group ends. Returns the first error of the group,
  // kInProgress when a non-blocking communicator still works; the thread's group is empty
  // afterwards in any case.
  Status end();
  // Ends the outermost group without running its operations.
  Status endWithoutRunning();
  // The same, and at the outermost end the estimate of what they would have taken, in microseconds:
  // those of a communicator one after the other, its sends beside its receives; communicators
  // (ranks of one thread, mostly) beside each other. No value inside.
  Result<std::optional<double>> simulateEnd();

  // Keeps the call for the group's end. REQUIRES: isOpen().
  Status add(PendingCall pending);
  // Inside a group: initialised at its end, with the others of the group at the same time.
  // Otherwise at once.
  Status addInitialisation(std::shared_ptr<comm::Communicator> communicator);

  // Inside a group: at its end, after the calls and in this order.
  struct Ending {
    std::function<Status()> run;
    bool isOwed = false;  // also after an error: its caller counts on what it frees
  };
  void addEnding(Ending ending) { endings_.push_back(std::move(ending)); }
  // Initialised at the end of this group.
  bool willInitialise(const comm::Communicator& communicator) const;

  // Remembers the first error of a call inside an open group: its end returns it and runs nothing.
  void noteError(const Status& status);

 private:
  class Emptied;
  struct Prepared {
    device::Task* task = nullptr;
    comm::Communicator* communicator = nullptr;
    void* stream = nullptr;
  };

  Result<double> estimate() const;
  Status run();
  Status runCalls();
  Status runEndings(Status status);
  Status initialiseAll();
  Status launchAll();
  Status prepareAll();
  Status prepareOne(size_t firstCall);
  enum class JoinAt : uint8_t { kBefore, kAfter };
  Status joinStreams(const Prepared& prepared, JoinAt at);
  Status enqueueAll();
  Status outcome();
  void clear();

  // Of current(), but apart: it needs no constructor, so that isOpen() is one load.
  static constinit thread_local int32_t groupDepth_;
  Status error_;
  std::vector<PendingCall> calls_;
  std::vector<std::shared_ptr<comm::Communicator>> initialisations_;
  std::vector<Ending> endings_;
  std::vector<launch::Call> scratchCalls_;
  std::vector<launch::StreamCall> scratchStreamCalls_;
  std::vector<Prepared> prepared_;
  std::vector<device::Task*> scratchTasks_;
};

}  // namespace tutti::group
