#include "sim/trace.h"

#include <algorithm>
#include <memory>
#include <queue>
#include <utility>

#include "sim/fluid.h"
#include "sim/trace_order.h"

namespace tutti::sim {
namespace {

constexpr double kBytesPerUs = 1e3;  // at 1 GB/s
constexpr double kSameTimeUs = 1e-9;

// Event by event: steps begin when what they wait for has ended, calls when all their ranks have
// come. A call first takes what it takes besides its bytes, launch and latency; then its bytes move
// as flows that share every link with those of the other calls under way.
class TraceRun {
 public:
  TraceRun(const Cluster& cluster, const Trace& trace, const Timing& timing)
      : cluster_(cluster),
        trace_(trace),
        timing_(timing),
        groups_(trace.groups.size()),
        fluid_(capacitiesOf(cluster, timing)) {}

  Result<TraceTimes> run() {
    TUTTI_TRY_ASSIGN(order_, orderOf(trace_));
    const size_t count = trace_.steps.size();
    times_.spans.resize(count);
    times_.ways.resize(count);
    times_.linkBytes.resize(static_cast<size_t>(cluster_.linkCount()));
    hasBegun_.resize(count);
    calls_.resize(order_.meetings.size());
    for (const std::vector<int32_t>& each : order_.meetingsOf)
      underWay_.push_back(static_cast<int32_t>(each.size()));
    for (size_t step = 0; step < count; ++step) {
      if (order_.waitsFor[step] == 0) toBegin_.push_back(static_cast<int32_t>(step));
    }
    TUTTI_TRY(play());
    TUTTI_TRY(checkAllEnded());
    return std::move(times_);
  }

 private:
  enum class EventKind : uint8_t { kStepEnd, kMove, kMoved, kCallEnd };
  struct Event {
    double us = 0;
    uint64_t order = 0;  // ties go in the order of making, so runs repeat
    EventKind kind = EventKind::kStepEnd;
    int32_t which = 0;     // step; flow, when it has moved; else meeting
    uint32_t version = 0;  // of the flow
    bool operator>(const Event& other) const {
      return us != other.us ? us > other.us : order > other.order;
    }
  };
  // A meeting's call.
  struct Call {
    size_t come = 0;
    double bytes = 0;   // on the wire, of each of its flows
    double moveUs = 0;  // what they take alone
    const LinkUse* use = nullptr;
  };
  struct Group {
    std::unique_ptr<CallTimer> timer;
    std::vector<int32_t> links;  // of the timer's cluster: their numbers in the whole
  };

  // GB/s of a rank's sends, in whichever communicator is fastest.
  static double mostSent(const Cluster& cluster, const Timing& timing) {
    if (!cluster.hasGpus()) return cpuPrices(Collective::kSend, "direct").gbPerSecond;
    double most = 0;
    for (const int32_t ranks : {1, cluster.mostRanksPerNode()})
      most = std::max(most, pricesFor({timing.system, Collective::kSend, "direct",
                                       graph::Protocol::kSimple, ranks})
                                .gbPerSecond);
    return most;
  }

  // The cluster's links; then, of each rank, what all its sends together take, and its receives.
  static std::vector<double> capacitiesOf(const Cluster& cluster, const Timing& timing) {
    std::vector<double> made;
    for (int32_t link = 0; link < cluster.linkCount(); ++link)
      made.push_back(cluster.gbPerSecond(link) * kBytesPerUs *
                     (cluster.isNetworkLink(link) ? kNetworkShare : 1));
    const double most = mostSent(cluster, timing);
    for (int32_t rank = 0; rank < cluster.rankCount(); ++rank) {
      const double own = most * kBytesPerUs * cluster.speedOf(Rank{rank});
      made.insert(made.end(), 2, own);
    }
    return made;
  }

  const TraceStep& step(int32_t number) const { return trace_.steps[static_cast<size_t>(number)]; }
  TraceTimes::Span& span(int32_t number) { return times_.spans[static_cast<size_t>(number)]; }
  const TraceMeeting& meeting(int32_t number) const {
    return order_.meetings[static_cast<size_t>(number)];
  }
  Call& call(int32_t number) { return calls_[static_cast<size_t>(number)]; }

  // ---- time ----------------------------------------------------------------------------------

  void push(Event event) {
    event.order = nextOrder_++;
    events_.push(event);
  }

  Status play() {
    TUTTI_TRY(settle());
    while (!events_.empty()) {
      now_ = events_.top().us;
      while (!events_.empty() && events_.top().us <= now_ + kSameTimeUs) {
        const Event event = events_.top();
        events_.pop();
        handle(event);
      }
      TUTTI_TRY(settle());
    }
    return {};
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case EventKind::kStepEnd: endStep(event.which); return;
      case EventKind::kMove: move(event.which); return;
      case EventKind::kMoved:
        if (!fluid_.isCurrent(event.which, event.version)) return;
        fluid_.remove(event.which);
        endCall(callOfFlow_[static_cast<size_t>(event.which)]);
        return;
      case EventKind::kCallEnd: endCall(event.which); return;
    }
  }

  Status settle() {
    while (!toBegin_.empty()) {
      const int32_t step = toBegin_.back();
      toBegin_.pop_back();
      TUTTI_TRY(beginStep(step));
    }
    fluid_.settle(now_, [this](int32_t flow, double endUs, uint32_t version) {
      push({.us = endUs, .kind = EventKind::kMoved, .which = flow, .version = version});
    });
    return {};
  }

  // ---- steps ---------------------------------------------------------------------------------

  Status beginStep(int32_t number) {
    const auto i = static_cast<size_t>(number);
    hasBegun_[i] = true;
    span(number).readyUs = span(number).startUs = now_;
    if (order_.meetingsOf[i].empty()) {
      const double us = step(number).computeUs / cluster_.speedOf(step(number).rank);
      push({.us = now_ + us, .kind = EventKind::kStepEnd, .which = number});
      return {};
    }
    for (const int32_t each : order_.meetingsOf[i]) {
      if (++call(each).come == meeting(each).wanted) TUTTI_TRY(beginCall(each));
    }
    return {};
  }

  void endStep(int32_t number) {
    span(number).endUs = now_;
    times_.us = std::max(times_.us, now_);
    ++endedCount_;
    for (const int32_t next : order_.after[static_cast<size_t>(number)]) {
      if (--order_.waitsFor[static_cast<size_t>(next)] == 0) toBegin_.push_back(next);
    }
  }

  // ---- calls ---------------------------------------------------------------------------------

  Status beginCall(int32_t number) {
    const TraceMeeting& met = meeting(number);
    TUTTI_TRY_ASSIGN(Group * group, groupOf(met.call->group));
    const Rank self = order_.placeIn[static_cast<size_t>(met.call->group)].at(met.first->rank);
    TUTTI_TRY_ASSIGN(const CallTimer::Cost* cost, group->timer->costWithUse(met.call->shape, self));
    for (const int32_t each : met.steps) {
      span(each).startUs = now_;
      span(each).aloneUs = std::max(span(each).aloneUs, cost->us);
      times_.ways[static_cast<size_t>(each)] = cost->way;
    }
    const uint64_t bytes = plan::vectorBytes(met.call->shape, group->timer->cluster().rankCount());
    if (cost->use == nullptr || cost->use->crossings.empty() || cost->bytesUs <= 0) {
      push({.us = now_ + cost->us, .kind = EventKind::kCallEnd, .which = number});
      return {};
    }
    call(number).use = cost->use;
    call(number).moveUs = cost->bytesUs;
    call(number).bytes =
        cost->use->flowBytes * static_cast<double>(bytes) * wireFactor(cost->method->protocol);
    push({.us = now_ + cost->us - cost->bytesUs, .kind = EventKind::kMove, .which = number});
    return {};
  }

  // Its bytes go under way.
  void move(int32_t number) {
    const Call& own = call(number);
    const TraceMeeting& met = meeting(number);
    const std::vector<int32_t>& links = groups_[static_cast<size_t>(met.call->group)].links;
    FairShare::Flow flow{.most = own.bytes / own.moveUs};
    for (const LinkUse::Crossing& each : own.use->crossings) {
      const int32_t link = links[static_cast<size_t>(each.link)];
      if (link < 0) continue;
      flow.crossings.push_back({link, each.flows});
      times_.linkBytes[static_cast<size_t>(link)] += own.bytes * each.flows;
    }
    addEnds(met, own, flow);
    const int32_t made = fluid_.add(std::move(flow));
    if (static_cast<size_t>(made) >= callOfFlow_.size())
      callOfFlow_.resize(static_cast<size_t>(made) + 1);
    callOfFlow_[static_cast<size_t>(made)] = number;
    fluid_.start(made, own.bytes, now_);
  }

  // A rank that sends to many at once does not send faster for it.
  void addEnds(const TraceMeeting& met, const Call& own, FairShare::Flow& flow) const {
    const plan::CallShape& shape = met.call->shape;
    if (shape.collective != Collective::kSend && shape.collective != Collective::kRecv) return;
    const double bytes = static_cast<double>(shape.count * sizeOf(shape.type));
    for (const int32_t each : met.steps) {
      const bool isFirst = each == met.steps.front();
      const bool isSender = isFirst == (shape.collective == Collective::kSend);
      const int32_t ofRank = cluster_.linkCount() + 2 * index(step(each).rank);
      flow.crossings.push_back({ofRank + (isSender ? 0 : 1), bytes / own.bytes});
    }
  }

  void endCall(int32_t number) {
    for (const int32_t each : meeting(number).steps) {
      if (--underWay_[static_cast<size_t>(each)] == 0) endStep(each);
    }
  }

  Result<Group*> groupOf(int32_t number) {
    Group& group = groups_[static_cast<size_t>(number)];
    if (group.timer == nullptr) {
      TUTTI_TRY_ASSIGN(Cluster part,
                       cluster_.part(trace_.groups[static_cast<size_t>(number)].ranks));
      group.links = part.linksIn(cluster_);
      TUTTI_TRY_ASSIGN(group.timer, CallTimer::make(std::move(part), timing_));
    }
    return &group;
  }

  Status checkAllEnded() const {
    if (endedCount_ == trace_.steps.size()) return {};
    for (size_t number = 0; number < trace_.steps.size(); ++number) {
      if (!hasBegun_[number]) continue;
      for (const int32_t at : order_.meetingsOf[number]) {
        const TraceMeeting& met = meeting(at);
        const size_t come = calls_[static_cast<size_t>(at)].come;
        if (come == met.wanted) continue;
        const TraceStep& waiting = trace_.steps[number];
        return invalidArgument(
            "{}: rank {} waits for ever in {} of the group {}: {} of {} ranks come there",
            waiting.place, index(waiting.rank), name(met.call->shape.collective),
            trace_.groups[static_cast<size_t>(met.call->group)].name, come, met.wanted);
      }
    }
    const auto stuck = std::ranges::find_if(order_.waitsFor, [](int32_t open) { return open > 0; });
    return invalidArgument("{}: the step waits for itself, by what it is to come after",
                           step(static_cast<int32_t>(stuck - order_.waitsFor.begin())).place);
  }

  const Cluster& cluster_;
  const Trace& trace_;
  const Timing timing_;
  TraceOrder order_;
  std::vector<Group> groups_;      // made at first use
  std::vector<Call> calls_;        // by meeting
  std::vector<int32_t> underWay_;  // by step: its meetings that have not ended
  std::vector<bool> hasBegun_;     // by step
  Fluid fluid_;                    // the calls whose bytes move
  std::vector<int32_t> callOfFlow_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<int32_t> toBegin_;
  uint64_t nextOrder_ = 0;
  double now_ = 0;
  size_t endedCount_ = 0;
  TraceTimes times_;
};

using Interval = std::pair<double, double>;

std::vector<Interval> merged(std::vector<Interval> list) {
  std::ranges::sort(list);
  std::vector<Interval> made;
  for (const Interval& each : list) {
    if (!made.empty() && each.first <= made.back().second) {
      made.back().second = std::max(made.back().second, each.second);
    } else {
      made.push_back(each);
    }
  }
  return made;
}

double lengthOf(const std::vector<Interval>& list) {
  double length = 0;
  for (const auto& [from, to] : list) length += to - from;
  return length;
}

}  // namespace

Result<TraceTimes> simulateTrace(const Cluster& cluster, const Trace& trace, const Timing& timing) {
  return TraceRun(cluster, trace, timing).run();
}

std::vector<RankTimes> timesOfAll(const Trace& trace, const TraceTimes& times, int32_t rankCount) {
  struct Busy {
    std::vector<Interval> computing, calling;
  };
  std::vector<Busy> busy(static_cast<size_t>(rankCount));
  for (size_t i = 0; i < trace.steps.size(); ++i) {
    const TraceTimes::Span& span = times.spans[i];
    Busy& own = busy[static_cast<size_t>(index(trace.steps[i].rank))];
    if (trace.steps[i].calls.empty()) {
      own.computing.emplace_back(span.startUs, span.endUs);
    } else {
      own.calling.emplace_back(span.readyUs, span.endUs);
    }
  }
  std::vector<RankTimes> made;
  for (Busy& each : busy) {
    std::vector<Interval> any = each.computing;
    any.insert(any.end(), each.calling.begin(), each.calling.end());
    const double all = lengthOf(merged(std::move(any)));
    const double computing = lengthOf(merged(std::move(each.computing)));
    made.push_back({.computeUs = computing,
                    .callUs = lengthOf(merged(std::move(each.calling))),
                    .exposedUs = all - computing,
                    .idleUs = times.us - all});
  }
  return made;
}

}  // namespace tutti::sim
