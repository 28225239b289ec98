#include "launch/operation_profile.h"

#include <algorithm>

namespace tutti::launch {
namespace {

// How many messages the program moves over the port, in either direction.
uint64_t messagesOver(const kernels::BoundProgram& program, const wire::LinkPort& port) {
  const auto isIt = [&port](const kernels::BoundOperand& operand) { return operand.port == &port; };
  uint64_t messages = 0;
  for (const kernels::BoundStep& step : program.steps()) {
    const auto uses = std::ranges::count_if(program.sources(step), isIt) +
                      std::ranges::count_if(program.links(step), isIt);
    const size_t pieces = (step.elements + program.pieceElements() - 1) / program.pieceElements();
    messages += static_cast<uint64_t>(uses) * std::min(pieces, program.pieceCount());
  }
  return messages;
}

}  // namespace

void OperationProfile::beginGroup(size_t callCount, bool isUsers) {
  group_ =
      parts_.profiler.beginGroup({.callCount = callCount, .isUsers = isUsers}, parts_.clock.now());
  isOpen_ = true;
  used_ = 0;
}

void OperationProfile::addCall(const Call& call, const plan::Plan& plan, uint64_t sequence) {
  if (used_ == entries_.size()) entries_.emplace_back();
  Entry& entry = entries_[used_++];
  entry.call = parts_.profiler.beginCall(group_,
                                         {.collective = call.shape.collective,
                                          .type = call.shape.type,
                                          .op = call.shape.op,
                                          .peer = index(call.shape.peer),
                                          .count = call.shape.count,
                                          .sequence = sequence,
                                          .input = call.input,
                                          .output = call.output,
                                          .algorithm = plan.algorithm},
                                         parts_.clock.now());
  entry.isOpen = true;
  entry.isRunning = false;
  entry.incoming.clear();
}

OperationProfile::Traffic OperationProfile::trafficOf(channel::Link& link, const Route& route,
                                                      bool isSend) {
  const kernels::BoundProgram& bound = route.bound;
  return {.motor = link.motor(),
          .note = {.peer = index(link.peer()),
                   .isSend = isSend,
                   .lane = static_cast<uint8_t>(route.lane),
                   .firstMessage = link.port().next,
                   .messageCount = link.motor() == nullptr ? 0 : messagesOver(bound, link.port()),
                   .messageBytes = bound.pieceElements() * bound.elementBytes()}};
}

void OperationProfile::begin(Entry& entry, const Traffic& traffic) {
  if (traffic.motor == nullptr || traffic.note.messageCount == 0) return;
  traffic.motor->beginTransfer(entry.call, traffic.note);
  if (traffic.note.isSend) return;
  entry.incoming.push_back({.motor = traffic.motor,
                            .endMessage = traffic.note.firstMessage + traffic.note.messageCount});
}

void OperationProfile::start(size_t call, const Route& route) {
  Entry& entry = entries_[call];
  entry.run = parts_.profiler.beginRun(entry.call, parts_.clock.now());
  entry.isRunning = true;
  if (!parts_.links.hasMotors()) return;
  for (const kernels::BoundOperand& link : route.bound.outgoing())
    begin(entry, trafficOf(parts_.links.outgoing(Rank{link.peer}, route.lane), route, true));
  for (const Rank peer : route.program.receivesFrom) {
    if (channel::Link* link = parts_.links.findIncoming(peer, route.lane); link != nullptr)
      begin(entry, trafficOf(*link, route, false));
  }
}

void OperationProfile::end(size_t call) {
  Entry& entry = entries_[call];
  for (const Entry::Incoming& each : entry.incoming) each.motor->endTransfer(each.endMessage);
  entry.incoming.clear();
  const Instant now = parts_.clock.now();
  if (entry.isRunning) parts_.profiler.end(observe::EventKind::kRun, entry.run, now);
  if (entry.isOpen) parts_.profiler.end(observe::EventKind::kCall, entry.call, now);
  entry.isRunning = false;
  entry.isOpen = false;
}

void OperationProfile::finish() {
  if (!isOpen_) return;
  for (size_t call = 0; call < used_; ++call) end(call);
  parts_.profiler.end(observe::EventKind::kGroup, group_, parts_.clock.now());
  isOpen_ = false;
}

}  // namespace tutti::launch
