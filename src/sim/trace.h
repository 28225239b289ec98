// What the ranks of a program do, and when on a described cluster: computation and calls, in order
// on their streams, each after what it depends on. Calls under way at the same time share the links
// that they have in common max-min fairly; alone each takes what it takes in closed form
// (closed_form.h). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "plan/plan.h"
#include "sim/call_timer.h"

namespace tutti::sim {

// Ranks of the cluster that call together; a rank's number in it is its place.
struct TraceGroup {
  std::string name;
  std::vector<Rank> ranks;
};

// One call of one rank; `shape.peer` is of the group.
struct TraceCall {
  int32_t group = 0;
  plan::CallShape shape{};
};

// What a rank does at once: computation, a collective, or sends and receives beside each other.
struct TraceStep {
  Rank rank{0};
  std::string name{};
  int32_t stream = kNoStream;  // steps of a rank on a stream come one after the other
  double computeUs = 0;        // where there are no calls
  std::vector<TraceCall> calls{};
  std::vector<int32_t> after{};  // steps, by their place in the trace
  std::string place{};           // "file:12", for messages

  static constexpr int32_t kNoStream = -1;  // in order with none
};

struct Trace {
  std::vector<TraceGroup> groups;
  std::vector<std::string> streams;
  std::vector<TraceStep> steps;
};

struct TraceTimes {
  // By step.
  struct Span {
    double readyUs = 0;  // its stream and what it depends on are done
    double startUs = 0;  // the others have come, too
    double endUs = 0;
    double aloneUs = 0;  // of a call: what it would take with nothing else on its links
  };
  std::vector<Span> spans;
  std::vector<std::string> ways;  // by step: how a collective is done, "" for others
  std::vector<double> linkBytes;  // by link of the cluster: what all calls put on it
  double us = 0;                  // until the last step has ended
};

// kInvalidArgument, with the place: ranks of a group call different things, or a step waits for
// what never comes.
Result<TraceTimes> simulateTrace(const Cluster& cluster, const Trace& trace, const Timing& timing);

// What one rank does with its time.
struct RankTimes {
  double computeUs = 0;
  double callUs = 0;     // at least one call under way, from ready to end
  double exposedUs = 0;  // of that, nothing computed
  double idleUs = 0;     // neither
};
std::vector<RankTimes> timesOfAll(const Trace& trace, const TraceTimes& times, int32_t rankCount);

}  // namespace tutti::sim
