#include "sim/trace.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

namespace tutti::sim {
namespace {

bool isTransfer(Collective collective) {
  return collective == Collective::kSend || collective == Collective::kRecv;
}

// Steps that can only run together: those of a collective, or the two ends of a transfer.
struct Meeting {
  const TraceStep* first = nullptr;
  const TraceCall* call = nullptr;
  std::vector<int32_t> steps;
  size_t wanted = 0;  // how many
  size_t come = 0;
  double startUs = 0;  // when the last of them has come
};

class TraceRun {
 public:
  TraceRun(const Cluster& cluster, const Trace& trace, const Timing& timing)
      : cluster_(cluster), trace_(trace), timing_(timing), timers_(trace.groups.size()) {}

  Result<TraceTimes> run() {
    const size_t count = trace_.steps.size();
    times_.spans.resize(count);
    times_.ways.resize(count);
    open_.resize(count);
    after_.resize(count);
    meetingsOf_.resize(count);
    missing_.resize(count);
    hasCome_.resize(count);
    findPlaces();
    joinSteps();
    TUTTI_TRY(meet());
    for (size_t step = 0; step < count; ++step)
      missing_[step] = static_cast<int32_t>(meetingsOf_[step].size());
    for (size_t step = 0; step < count; ++step) {
      if (open_[step] == 0) ready_.push_back(static_cast<int32_t>(step));
    }
    while (!ready_.empty()) {
      const int32_t step = ready_.back();
      ready_.pop_back();
      TUTTI_TRY(come(step));
    }
    TUTTI_TRY(checkAllEnded());
    return std::move(times_);
  }

 private:
  const TraceStep& step(int32_t number) const { return trace_.steps[static_cast<size_t>(number)]; }
  TraceTimes::Span& span(int32_t number) { return times_.spans[static_cast<size_t>(number)]; }

  void findPlaces() {
    placeIn_.resize(trace_.groups.size());
    for (size_t group = 0; group < trace_.groups.size(); ++group) {
      const auto& ranks = trace_.groups[group].ranks;
      for (size_t place = 0; place < ranks.size(); ++place)
        placeIn_[group][ranks[place]] = Rank{static_cast<int32_t>(place)};
    }
  }

  // What each step waits for of its own rank: what it names, and the one before on its stream.
  void joinSteps() {
    std::map<std::pair<Rank, int32_t>, int32_t> last;
    for (int32_t number = 0; number < static_cast<int32_t>(trace_.steps.size()); ++number) {
      const TraceStep& each = step(number);
      const auto wait = [&](int32_t before) {
        after_[static_cast<size_t>(before)].push_back(number);
        ++open_[static_cast<size_t>(number)];
      };
      for (const int32_t before : each.after) wait(before);
      if (each.stream == TraceStep::kNoStream) continue;
      const auto [at, isFirst] = last.try_emplace({each.rank, each.stream}, number);
      if (!isFirst) wait(std::exchange(at->second, number));
    }
  }

  // The calls of a communicator meet in the order in which each rank makes them.
  Status meet() {
    std::map<std::pair<int32_t, Rank>, size_t> collectives;  // group, rank: called so far
    std::map<std::pair<int32_t, size_t>, int32_t> known;     // group, number of the call
    for (int32_t number = 0; number < static_cast<int32_t>(trace_.steps.size()); ++number) {
      for (const TraceCall& call : step(number).calls) {
        TUTTI_TRY(checkMember(number, call));
        if (isTransfer(call.shape.collective)) {
          TUTTI_TRY(pair(number, call));
          continue;
        }
        const size_t order = collectives[{call.group, step(number).rank}]++;
        const auto [at, isNew] =
            known.try_emplace({call.group, order}, static_cast<int32_t>(meetings_.size()));
        if (isNew)
          meetings_.push_back({.first = &step(number),
                               .call = &call,
                               .steps = {},
                               .wanted = groupOf(call).ranks.size(),
                               .come = 0,
                               .startUs = 0});
        TUTTI_TRY(add(at->second, number, call));
      }
    }
    return {};
  }

  const TraceGroup& groupOf(const TraceCall& call) const {
    return trace_.groups[static_cast<size_t>(call.group)];
  }

  Status checkMember(int32_t number, const TraceCall& call) const {
    if (placeIn_[static_cast<size_t>(call.group)].contains(step(number).rank)) return {};
    return invalidArgument("{}: rank {} is not in the group {}", step(number).place,
                           index(step(number).rank), groupOf(call).name);
  }

  Status add(int32_t meeting, int32_t number, const TraceCall& call) {
    Meeting& met = meetings_[static_cast<size_t>(meeting)];
    const plan::CallShape& first = met.call->shape;
    plan::CallShape same = call.shape;
    if (!hasRoot(same.collective)) same.peer = first.peer;
    if (!isReduction(same.collective)) same.op = first.op;
    if (same != first) {
      return invalidArgument(
          "{}: rank {} calls {} of {} {} in the group {}, where rank {} calls {} of {} {} ({})",
          step(number).place, index(step(number).rank), name(same.collective), same.count,
          name(same.type), groupOf(call).name, index(met.first->rank), name(first.collective),
          first.count, name(first.type), met.first->place);
    }
    met.steps.push_back(number);
    meetingsOf_[static_cast<size_t>(number)].push_back(meeting);
    return {};
  }

  Status pair(int32_t number, const TraceCall& call) {
    const Rank self = placeIn_[static_cast<size_t>(call.group)].at(step(number).rank);
    const bool isSend = call.shape.collective == Collective::kSend;
    if (call.shape.peer == self) return {};
    const auto ends = isSend ? std::tuple(call.group, self, call.shape.peer)
                             : std::tuple(call.group, call.shape.peer, self);
    auto& [sent, received] = transfers_[ends];
    size_t& mine = isSend ? sent : received;
    auto& list = pairs_[ends];
    if (mine == list.size()) {
      list.push_back(static_cast<int32_t>(meetings_.size()));
      meetings_.push_back({.first = &step(number),
                           .call = &call,
                           .steps = {},
                           .wanted = 2,
                           .come = 0,
                           .startUs = 0});
    }
    const int32_t meeting = list[mine++];
    Meeting& met = meetings_[static_cast<size_t>(meeting)];
    const auto bytesOf = [](const plan::CallShape& shape) {
      return shape.count * sizeOf(shape.type);
    };
    if (bytesOf(met.call->shape) != bytesOf(call.shape)) {
      return invalidArgument("{}: rank {} {}s {} bytes, its peer has {} ({})", step(number).place,
                             index(step(number).rank), isSend ? "send" : "receive",
                             bytesOf(call.shape), bytesOf(met.call->shape), met.first->place);
    }
    met.steps.push_back(number);
    meetingsOf_[static_cast<size_t>(number)].push_back(meeting);
    return {};
  }

  // The step comes to its meetings. Where it is the last, those that miss no other one go.
  Status come(int32_t number) {
    const auto& own = meetingsOf_[static_cast<size_t>(number)];
    hasCome_[static_cast<size_t>(number)] = true;
    if (own.empty()) return end(number, span(number).readyUs);
    for (const int32_t at : own) {
      Meeting& meeting = meetings_[static_cast<size_t>(at)];
      meeting.startUs = std::max(meeting.startUs, span(number).readyUs);
      if (++meeting.come < meeting.wanted) continue;
      for (const int32_t each : meeting.steps) {
        if (--missing_[static_cast<size_t>(each)] == 0) TUTTI_TRY(end(each, startOf(each)));
      }
    }
    return {};
  }

  double startOf(int32_t number) const {
    double start = 0;
    for (const int32_t at : meetingsOf_[static_cast<size_t>(number)])
      start = std::max(start, meetings_[static_cast<size_t>(at)].startUs);
    return start;
  }

  Status end(int32_t number, double start) {
    TUTTI_TRY_ASSIGN(const double us, durationOf(number));
    TraceTimes::Span& own = span(number);
    own.startUs = start;
    own.endUs = start + us;
    times_.us = std::max(times_.us, own.endUs);
    ++endedCount_;
    for (const int32_t next : after_[static_cast<size_t>(number)]) {
      span(next).readyUs = std::max(span(next).readyUs, own.endUs);
      if (--open_[static_cast<size_t>(next)] == 0) ready_.push_back(next);
    }
    return {};
  }

  Result<double> durationOf(int32_t number) {
    const TraceStep& each = step(number);
    if (each.calls.empty()) return each.computeUs / cluster_.speedOf(each.rank);
    double collectives = 0, sends = 0, receives = 0;
    for (const TraceCall& call : each.calls) {
      TUTTI_TRY_ASSIGN(CallTimer * timer, timerOf(call.group));
      const Rank self = placeIn_[static_cast<size_t>(call.group)].at(each.rank);
      TUTTI_TRY_ASSIGN(const CallTimer::Cost* cost, timer->costOf(call.shape, self));
      times_.ways[static_cast<size_t>(number)] = cost->way;
      const Collective collective = call.shape.collective;
      (collective == Collective::kSend   ? sends
       : collective == Collective::kRecv ? receives
                                         : collectives) += cost->us;
    }
    return collectives + std::max(sends, receives);
  }

  Result<CallTimer*> timerOf(int32_t group) {
    auto& timer = timers_[static_cast<size_t>(group)];
    if (timer == nullptr) {
      TUTTI_TRY_ASSIGN(Cluster part,
                       cluster_.part(trace_.groups[static_cast<size_t>(group)].ranks));
      TUTTI_TRY_ASSIGN(timer, CallTimer::make(std::move(part), timing_));
    }
    return timer.get();
  }

  Status checkAllEnded() const {
    if (endedCount_ == trace_.steps.size()) return {};
    for (size_t number = 0; number < trace_.steps.size(); ++number) {
      if (!hasCome_[number]) continue;
      for (const int32_t at : meetingsOf_[number]) {
        const Meeting& meeting = meetings_[static_cast<size_t>(at)];
        if (meeting.come == meeting.wanted) continue;
        const TraceStep& waiting = trace_.steps[number];
        return invalidArgument(
            "{}: rank {} waits for ever in {} of the group {}: {} of {} ranks come there",
            waiting.place, index(waiting.rank), name(meeting.call->shape.collective),
            groupOf(*meeting.call).name, meeting.come, meeting.wanted);
      }
    }
    const auto stuck = std::ranges::find_if(open_, [](int32_t open) { return open > 0; });
    return invalidArgument("{}: the step waits for itself, by what it is to come after",
                           step(static_cast<int32_t>(stuck - open_.begin())).place);
  }

  const Cluster& cluster_;
  const Trace& trace_;
  const Timing timing_;
  std::vector<std::unique_ptr<CallTimer>> timers_;        // by group, made at first use
  std::vector<std::map<Rank, Rank>> placeIn_;             // by group
  std::vector<std::vector<int32_t>> after_, meetingsOf_;  // by step
  std::vector<int32_t> open_;                             // by step: what it still waits for
  std::vector<int32_t> missing_;  // by step: its meetings that are not complete
  std::vector<bool> hasCome_;     // by step
  std::vector<Meeting> meetings_;
  std::map<std::tuple<int32_t, Rank, Rank>, std::pair<size_t, size_t>> transfers_;
  std::map<std::tuple<int32_t, Rank, Rank>, std::vector<int32_t>> pairs_;
  std::vector<int32_t> ready_;
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
