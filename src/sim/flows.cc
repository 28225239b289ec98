#include "sim/flows.h"

namespace tutti::sim {
namespace {

using schedule::Operand;
using schedule::Place;
using schedule::Step;

// A lane's steps that move something, piece after piece.
template <typename Visit>
Status walk(const Lane& lane, Visit visit) {
  for (size_t piece = 0; piece < lane.layout.pieceCount; ++piece) {
    for (size_t i = 0; i < lane.program->steps.size(); ++i) {
      const uint64_t bytes = lane.bytesOf(lane.program->steps[i].chunk, piece);
      if (bytes > 0) TUTTI_TRY(visit(piece, i, bytes));
    }
  }
  return {};
}

}  // namespace

Result<FlowTable> FlowTable::make(const Traffic& traffic, int64_t mostFlows) {
  FlowTable table;
  table.traffic_ = &traffic;
  table.links_.resize(static_cast<size_t>(traffic.channelCount()));
  for (int32_t rank = 0; rank < traffic.rankCount(); ++rank) {
    for (int32_t channel = 0; channel < traffic.channelCount(); ++channel) {
      const Lane lane = traffic.lane(channel, Rank{rank});
      auto& links = table.links_[static_cast<size_t>(channel)];
      TUTTI_TRY(walk(lane, [&](size_t, size_t i, uint64_t) -> Status {
        const Step& step = lane.program->steps[i];
        for (const Operand& operand : lane.program->destinations(step)) {
          if (operand.place != Place::kLink) continue;
          const Rank to = lane.program->sendsTo[static_cast<size_t>(operand.index)];
          links[{rank, index(to)}].push_back(table.count_++);
        }
        if (table.count_ <= mostFlows) return {};
        return invalidArgument("{} of {} bytes on {} ranks: more than {} flows",
                               name(traffic.call().collective), traffic.call().bytes,
                               traffic.rankCount(), mostFlows);
      }));
    }
  }
  return table;
}

Status FlowTable::forSteps(Rank rank, const std::function<Status(const FlowStep&)>& visit) const {
  for (int32_t channel = 0; channel < traffic_->channelCount(); ++channel) {
    const Lane lane = traffic_->lane(channel, rank);
    const auto& links = links_[static_cast<size_t>(channel)];
    std::map<int32_t, int64_t> sent, received;  // by peer: how many so far
    TUTTI_TRY(walk(lane, [&](size_t piece, size_t i, uint64_t bytes) -> Status {
      const Step& step = lane.program->steps[i];
      FlowStep made{.rank = rank,
                    .channel = channel,
                    .piece = static_cast<int64_t>(piece),
                    .step = static_cast<int32_t>(i),
                    .chunk = step.chunk,
                    .bytes = bytes,
                    .isFold = step.fold == schedule::Fold::kReduce,
                    .sources = lane.program->sources(step),
                    .destinations = lane.program->destinations(step)};
      const auto operands = lane.program->allOperands(step);
      for (size_t j = 0; j < operands.size(); ++j) {
        const Operand& operand = operands[j];
        if (operand.place != Place::kLink) continue;
        const bool isSource = j < step.sourceCount;
        const auto at = static_cast<size_t>(operand.index);
        const Rank peer = isSource ? lane.program->receivesFrom[at] : lane.program->sendsTo[at];
        const auto ends =
            isSource ? std::pair(index(peer), index(rank)) : std::pair(index(rank), index(peer));
        const int64_t place = (isSource ? received : sent)[index(peer)]++;
        const auto found = links.find(ends);
        if (found == links.end() || static_cast<size_t>(place) >= found->second.size())
          return internalError(
              "flows: rank {} waits for message {} of rank {} on channel {}, which "
              "sends no more",
              index(rank), place, ends.first, channel);
        (isSource ? made.receives : made.sends)
            .push_back({peer, found->second[static_cast<size_t>(place)], place});
      }
      return visit(made);
    }));
  }
  return {};
}

Status FlowTable::forFlows(const std::function<Status(const Flow&)>& visit) const {
  const int32_t slots = traffic_->method().slotCount;
  for (int32_t rank = 0; rank < traffic_->rankCount(); ++rank) {
    std::map<int32_t, std::vector<int64_t>> wroteOutput;  // by chunk: flows whose data is there
    int64_t previous = kNoFlow;
    std::pair<int32_t, int64_t> at{-1, -1};  // channel and piece
    const auto emit = [&](const FlowStep& step) -> Status {
      if (at.first != step.channel) previous = kNoFlow;
      if (at != std::pair(step.channel, step.piece)) wroteOutput.clear();
      at = {step.channel, step.piece};
      std::vector<int64_t> data;
      for (const FlowStep::End& end : step.receives) data.push_back(end.flow);
      for (const Operand& source : step.sources) {
        if (source.place != Place::kOutput) continue;
        const auto& wrote = wroteOutput[source.index];
        data.insert(data.end(), wrote.begin(), wrote.end());
      }
      for (const Operand& destination : step.destinations) {
        if (destination.place == Place::kOutput) wroteOutput[destination.index] = data;
      }
      const auto& links = links_[static_cast<size_t>(step.channel)];
      for (const FlowStep::End& end : step.sends) {
        const auto& ofLink = links.at({rank, index(end.peer)});
        const bool takesSlot = end.place >= slots;
        TUTTI_TRY(
            visit({.id = end.flow,
                   .channel = step.channel,
                   .from = Rank{rank},
                   .to = end.peer,
                   .piece = step.piece,
                   .step = step.step,
                   .chunk = step.chunk,
                   .bytes = step.bytes,
                   .wireBytes = wireBytes(traffic_->method().protocol, step.bytes),
                   .place = end.place,
                   .waitsFor = data,
                   .previous = previous,
                   .slot = takesSlot ? ofLink[static_cast<size_t>(end.place - slots)] : kNoFlow}));
        previous = end.flow;
      }
      return {};
    };
    TUTTI_TRY(forSteps(Rank{rank}, emit));
  }
  return {};
}

}  // namespace tutti::sim
