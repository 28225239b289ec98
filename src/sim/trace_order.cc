#include "sim/trace_order.h"

#include <tuple>
#include <utility>

namespace tutti::sim {
namespace {

class OrderMaker {
 public:
  explicit OrderMaker(const Trace& trace) : trace_(trace) {}

  Result<TraceOrder> run() {
    const size_t count = trace_.steps.size();
    made_.meetingsOf.resize(count);
    made_.after.resize(count);
    made_.waitsFor.resize(count);
    findPlaces();
    joinSteps();
    TUTTI_TRY(meet());
    return std::move(made_);
  }

 private:
  const TraceStep& step(int32_t number) const { return trace_.steps[static_cast<size_t>(number)]; }

  void findPlaces() {
    made_.placeIn.resize(trace_.groups.size());
    for (size_t group = 0; group < trace_.groups.size(); ++group) {
      const auto& ranks = trace_.groups[group].ranks;
      for (size_t place = 0; place < ranks.size(); ++place)
        made_.placeIn[group][ranks[place]] = Rank{static_cast<int32_t>(place)};
    }
  }

  // What each step waits for of its own rank: what it names, and the one before on its stream.
  void joinSteps() {
    std::map<std::pair<Rank, int32_t>, int32_t> last;
    for (int32_t number = 0; number < static_cast<int32_t>(trace_.steps.size()); ++number) {
      const TraceStep& each = step(number);
      const auto wait = [&](int32_t before) {
        made_.after[static_cast<size_t>(before)].push_back(number);
        ++made_.waitsFor[static_cast<size_t>(number)];
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
        if (isPointToPoint(call.shape.collective)) {
          TUTTI_TRY(pair(number, call));
          continue;
        }
        const size_t order = collectives[{call.group, step(number).rank}]++;
        const auto [at, isNew] =
            known.try_emplace({call.group, order}, static_cast<int32_t>(made_.meetings.size()));
        if (isNew)
          made_.meetings.push_back(
              {.first = &step(number), .call = &call, .wanted = groupOf(call).ranks.size()});
        TUTTI_TRY(add(at->second, number, call));
      }
    }
    return {};
  }

  const TraceGroup& groupOf(const TraceCall& call) const {
    return trace_.groups[static_cast<size_t>(call.group)];
  }

  Status checkMember(int32_t number, const TraceCall& call) const {
    if (made_.placeIn[static_cast<size_t>(call.group)].contains(step(number).rank)) return {};
    return invalidArgument("{}: rank {} is not in the group {}", step(number).place,
                           index(step(number).rank), groupOf(call).name);
  }

  Status add(int32_t meeting, int32_t number, const TraceCall& call) {
    TraceMeeting& met = made_.meetings[static_cast<size_t>(meeting)];
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
    made_.meetingsOf[static_cast<size_t>(number)].push_back(meeting);
    return {};
  }

  Status pair(int32_t number, const TraceCall& call) {
    const Rank self = made_.placeIn[static_cast<size_t>(call.group)].at(step(number).rank);
    const bool isSend = call.shape.collective == Collective::kSend;
    if (call.shape.peer == self) {  // nobody to wait for
      made_.meetingsOf[static_cast<size_t>(number)].push_back(
          static_cast<int32_t>(made_.meetings.size()));
      made_.meetings.push_back(
          {.first = &step(number), .call = &call, .steps = {number}, .wanted = 1});
      return {};
    }
    const auto ends = isSend ? std::tuple(call.group, self, call.shape.peer)
                             : std::tuple(call.group, call.shape.peer, self);
    auto& [sent, received] = transfers_[ends];
    size_t& mine = isSend ? sent : received;
    auto& list = pairs_[ends];
    if (mine == list.size()) {
      list.push_back(static_cast<int32_t>(made_.meetings.size()));
      made_.meetings.push_back({.first = &step(number), .call = &call, .wanted = 2});
    }
    const int32_t meeting = list[mine++];
    TraceMeeting& met = made_.meetings[static_cast<size_t>(meeting)];
    const auto bytesOf = [](const plan::CallShape& shape) {
      return shape.count * sizeOf(shape.type);
    };
    if (bytesOf(met.call->shape) != bytesOf(call.shape)) {
      return invalidArgument("{}: rank {} {}s {} bytes, its peer has {} ({})", step(number).place,
                             index(step(number).rank), isSend ? "send" : "receive",
                             bytesOf(call.shape), bytesOf(met.call->shape), met.first->place);
    }
    met.steps.push_back(number);
    made_.meetingsOf[static_cast<size_t>(number)].push_back(meeting);
    return {};
  }

  const Trace& trace_;
  TraceOrder made_;
  std::map<std::tuple<int32_t, Rank, Rank>, std::pair<size_t, size_t>> transfers_;
  std::map<std::tuple<int32_t, Rank, Rank>, std::vector<int32_t>> pairs_;
};

}  // namespace

Result<TraceOrder> orderOf(const Trace& trace) { return OrderMaker(trace).run(); }

}  // namespace tutti::sim
