// The thread that makes all calls to a fabric's lanes once these are there: the fabric's library
// may never return from one, and a rank's thread that hung in it could not be taken back. Where a
// call does not return in time, whoever waits for a lane is told, and the thread is left behind
// with all that the library knows of.
//
// While something moves or somebody asks, it looks again and again (net/pauses.h); else it sleeps.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "net/fabric.h"
#include "net/foreign_calls.h"

namespace tutti::net {

// What the thread calls now; by it, for anyone to read.
struct CallsMade {
  std::atomic<const char*> underWay{nullptr};  // of static storage
  // Begun so far. Read as hints, which order nothing: who sees them late waits a little longer.
  std::atomic<uint64_t> count{0};
};

// A call that is under way as long as this is.
class MarkedCall {
 public:
  MarkedCall(CallsMade& calls, const char* name) : calls_(calls) {
    calls_.count.store(calls_.count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    calls_.underWay.store(name, std::memory_order_relaxed);
  }
  ~MarkedCall() { calls_.underWay.store(nullptr, std::memory_order_relaxed); }
  MarkedCall(const MarkedCall&) = delete;
  MarkedCall& operator=(const MarkedCall&) = delete;

 private:
  CallsMade& calls_;
};

// Thread-safe.
class LaneThread {
 public:
  struct Options {
    std::shared_ptr<Fabric> fabric;   // shared with its other users; outlives the lanes
    Nanoseconds timeout{};            // for a call to return
    std::function<void()> onMoved{};  // on the thread; owns what it uses
    Clock& clock;
  };
  // What is to be done for one lane, which is closed there, too.
  class Work {
   public:
    // Makes the calls that there are to make; true: something moved.
    virtual bool step() = 0;
    // Whether there is something new to do, or somebody has asked lately what became of what was to
    // be done before. In one total order with what announces either, and with what ring() looks at.
    virtual bool hasNews() const = 0;
    virtual bool isAsked() const = 0;
    // The lane is closed.
    virtual bool isOver() const = 0;
    virtual ~Work() = default;
  };

  static Result<std::unique_ptr<LaneThread>> start(Options options);
  // Leaves the thread behind where it does not end within half a second.
  ~LaneThread();
  LaneThread(const LaneThread&) = delete;
  LaneThread& operator=(const LaneThread&) = delete;

  // For the work's calls.
  std::shared_ptr<CallsMade> calls() const;
  void add(std::shared_ptr<Work> work);  // shared with the lane's user
  // Something is new, or somebody asks. A load where the thread is awake.
  void ring();

  // For who waits: an error once a call has not returned for the time limit. It stays one. Time in
  // which nobody looks counts little: the process may have been stopped.
  Status look();
  bool isHung() const;
  // Until the lane is closed, some tenths of a second at most; no longer than a moment in a call
  // that was awaited in vain before. False: it will be closed later.
  bool awaitEnd(const Work& work);

 private:
  struct State;
  LaneThread(std::shared_ptr<State> state, std::unique_ptr<CallThread> thread);

  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive this
  std::unique_ptr<CallThread> thread_;
};

}  // namespace tutti::net
