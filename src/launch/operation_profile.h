// What an operation tells its communicator's profiler: its group, its calls, their runs, and which
// of the messages on network links are theirs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "channel/link_set.h"
#include "kernels/bound_program.h"
#include "launch/call.h"
#include "observe/profiler.h"
#include "plan/plan.h"
#include "schedule/schedule.h"

namespace tutti::launch {

// One an operation, in turn by the thread that prepares it and the one that drives it; kept with it
// in the pool, so that nothing is allocated in the steady state.
class OperationProfile {
 public:
  struct Parts {
    observe::Profiler& profiler;
    channel::LinkSet& links;
    Clock& clock;
  };
  explicit OperationProfile(const Parts& parts) : parts_(parts) {}

  void beginGroup(size_t callCount, bool isUsers);
  // The calls by number from 0, in this order.
  void addCall(const Call& call, const plan::Plan& plan, uint64_t sequence);

  // What a call runs over. REQUIRES: its links are made.
  struct Route {
    const schedule::Program& program;
    const kernels::BoundProgram& bound;
    channel::Lane lane = channel::Lane::kCollective;
  };
  void start(size_t call, const Route& route);
  void end(size_t call);
  // With all that is still open: the operation may have failed.
  void finish();

 private:
  struct Entry {
    observe::EventTag call;
    observe::EventTag run;
    bool isRunning = false;
    bool isOpen = false;
    struct Incoming {
      transport::Motor* motor = nullptr;
      uint64_t endMessage = 0;
    };
    std::vector<Incoming> incoming;  // while it runs
  };
  // The messages of a call over one link. Their motor: null where they need no network.
  struct Traffic {
    transport::Motor* motor = nullptr;
    observe::TransferNote note;
  };
  static Traffic trafficOf(channel::Link& link, const Route& route, bool isSend);
  void begin(Entry& entry, const Traffic& traffic);

  const Parts parts_;
  observe::EventTag group_;
  bool isOpen_ = false;
  size_t used_ = 0;
  std::vector<Entry> entries_;  // never shrinks; the first `used_` are the operation's
};

}  // namespace tutti::launch
