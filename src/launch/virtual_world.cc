#include "launch/virtual_world.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "launch/group_time.h"
#include "observe/diagnosis.h"

namespace tutti::launch {
namespace {

// Calls that one rank may be ahead of another: real ranks would wait, a program that never calls
// the other's would fill memory.
constexpr size_t kMostAhead = size_t{1} << 20;

// As ranks of one collective must agree.
bool isSameCall(const plan::CallShape& one, const plan::CallShape& other) {
  return one.collective == other.collective && one.type == other.type && one.count == other.count &&
         (!isReduction(one.collective) || one.op == other.op) &&
         (!hasRoot(one.collective) || one.peer == other.peer);
}

std::string textOf(const plan::CallShape& shape, uint64_t number) {
  observe::OperationNote note;
  note.collective = shape.collective;
  note.type = shape.type;
  note.op = shape.op;
  note.peer = index(shape.peer);
  note.count = shape.count;
  note.sequence = number + 1;
  return observe::what(note);
}

}  // namespace

VirtualWorld::VirtualWorld(Options options)
    : options_(std::move(options)),
      hereCount_(static_cast<int32_t>(std::ranges::count(options_.isHere, true))),
      members_(options_.places.size()) {
  if (options_.trace != nullptr)
    traceName_ = options_.trace->declare(options_.name, options_.places);
}

// REQUIRES: mutex_ is held.
Result<sim::CallTimer*> VirtualWorld::timer() {
  if (timer_ == nullptr) {
    TUTTI_TRY_ASSIGN(sim::Cluster part, options_.cluster->part(options_.places));
    TUTTI_TRY_ASSIGN(timer_, sim::CallTimer::make(std::move(part), options_.timing));
  }
  return timer_.get();
}

Result<double> VirtualWorld::costOf(const plan::CallShape& shape, Rank self) {
  TUTTI_TRY_ASSIGN(sim::CallTimer * known, timer());
  TUTTI_TRY_ASSIGN(const sim::CallTimer::Cost* cost, known->costOf(shape, self));
  return cost->us;
}

Result<double> VirtualWorld::estimateUs(const plan::CallShape& shape, Rank self) {
  const std::lock_guard lock(mutex_);
  return costOf(shape, self);
}

Status VirtualWorld::enter(Rank self, std::span<const StreamCall> calls) {
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_.clone();
  Member& own = member(self);
  GroupTime group;
  for (const StreamCall& item : calls) {
    const plan::CallShape& shape = item.call->shape;
    Status compared = compare(self, shape);
    if (!compared.ok()) {
      failure_ = compared.clone();
      hasFailed_.store(true, std::memory_order_release);
      return compared;
    }
    TUTTI_TRY_ASSIGN(const double us, costOf(shape, self));
    Totals& totals = own.totals[static_cast<size_t>(shape.collective)];
    totals.calls += 1;
    totals.bytes += plan::vectorBytes(shape, rankCount());
    totals.us += us;
    group.add(shape.collective, us);
  }
  own.us += group.us();
  if (options_.trace != nullptr)
    options_.trace->record(traceName_, options_.places[static_cast<size_t>(index(self))], calls);
  return {};
}

Status VirtualWorld::compare(Rank self, const plan::CallShape& shape) {
  return isPointToPoint(shape.collective) ? pair(self, shape) : meet(self, shape);
}

Status VirtualWorld::meet(Rank self, const plan::CallShape& shape) {
  const uint64_t number = member(self).collectives++;
  const size_t at = static_cast<size_t>(number - firstMeeting_);
  if (at == kMostAhead) {
    const auto behind = std::ranges::min_element(members_, {}, [this](const Member& each) {
      const Rank rank{static_cast<int32_t>(&each - members_.data())};
      return isHere(rank) ? each.collectives : UINT64_MAX;
    });
    return invalidUsage(
        "{}: rank {} has called {} collectives more than rank {}, which real ranks "
        "would have waited for",
        options_.name, index(self), kMostAhead, behind - members_.begin());
  }
  if (at == meetings_.size()) meetings_.push_back({.shape = shape, .first = self, .called = 0});
  Meeting& meeting = meetings_[at];
  if (!isSameCall(meeting.shape, shape)) {
    return invalidUsage("{}: ranks call different things: rank {} {}, rank {} {}", options_.name,
                        index(meeting.first), textOf(meeting.shape, number), index(self),
                        textOf(shape, number));
  }
  ++meeting.called;
  while (!meetings_.empty() && meetings_.front().called == hereCount_) {
    meetings_.pop_front();
    ++firstMeeting_;
  }
  return {};
}

Status VirtualWorld::pair(Rank self, const plan::CallShape& shape) {
  if (!isHere(shape.peer)) return {};
  const bool isSend = shape.collective == Collective::kSend;
  const std::pair<Rank, Rank> ends =
      isSend ? std::pair(self, shape.peer) : std::pair(shape.peer, self);
  auto& waiting = halves_[ends];
  if (waiting.empty() || waiting.front().collective == shape.collective) {
    if (waiting.size() == kMostAhead) {
      return invalidUsage("{}: rank {} has called {} {}s more than rank {} has answered",
                          options_.name, index(self), kMostAhead, name(shape.collective),
                          index(shape.peer));
    }
    waiting.push_back(shape);
    return {};
  }
  const plan::CallShape other = waiting.front();
  waiting.pop_front();
  if (waiting.empty()) halves_.erase(ends);
  if (plan::vectorBytes(other, rankCount()) == plan::vectorBytes(shape, rankCount())) return {};
  return invalidUsage("{}: a send and its receive differ: rank {} {}, rank {} {}", options_.name,
                      index(self), textOf(shape, 0), index(shape.peer), textOf(other, 0));
}

void VirtualWorld::leave() {
  const std::lock_guard lock(mutex_);
  if (++gone_ < hereCount_) return;
  if (failure_.ok()) warnOfLeftovers();
  if (options_.trace != nullptr) options_.trace->flush();
}

void VirtualWorld::warnOfLeftovers() const {
  if (!meetings_.empty()) {
    const Meeting& oldest = meetings_.front();
    log::warn(
        "{}: {} of {} ranks called {} (rank {} first), and {} more that not all did: real "
        "ranks would wait for ever",
        options_.name, oldest.called, hereCount_, textOf(oldest.shape, firstMeeting_),
        index(oldest.first), meetings_.size() - 1);
  }
  for (const auto& [ends, waiting] : halves_) {
    const bool isSend = waiting.front().collective == Collective::kSend;
    log::warn("{}: rank {} called {}, which rank {} never answered; {} more like it", options_.name,
              index(isSend ? ends.first : ends.second), textOf(waiting.front(), 0),
              index(isSend ? ends.second : ends.first), waiting.size() - 1);
  }
}

Status VirtualWorld::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_.clone();
}

double VirtualWorld::spentUs(Rank self) const {
  const std::lock_guard lock(mutex_);
  return members_[static_cast<size_t>(index(self))].us;
}

std::string VirtualWorld::describe(Rank self) const {
  const std::lock_guard lock(mutex_);
  const sim::Cluster& cluster = *options_.cluster;
  std::string text = fmt::format("virtual ranks of cluster {}, timed as {}\n", cluster.name(),
                                 sim::nameOf(options_.timing.system));
  for (size_t rank = 0; rank < options_.places.size(); ++rank) {
    const Rank place = options_.places[rank];
    text += fmt::format("  {:>5}  node {} place {}{}\n", rank, cluster.nodeOf(place),
                        cluster.localOf(place), options_.isHere[rank] ? "" : ", another process");
  }
  text += fmt::format("\ncalls of rank {}; a group's sends beside its receives: {:.1f} us\n",
                      index(self), members_[static_cast<size_t>(index(self))].us);
  for (int i = 0; i < kCollectiveCount; ++i) {
    const Totals& totals =
        members_[static_cast<size_t>(index(self))].totals[static_cast<size_t>(i)];
    if (totals.calls == 0) continue;
    text += fmt::format("  {:<14} {:>10} calls {:>16} bytes {:>14.1f} us\n",
                        name(static_cast<Collective>(i)), totals.calls, totals.bytes, totals.us);
  }
  return text;
}

}  // namespace tutti::launch
