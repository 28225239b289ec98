#include "comm/link_register.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace tutti::comm {
namespace {

std::string_view name(channel::Lane lane) {
  switch (lane) {
    case channel::Lane::kCollective: return "collectives";
    case channel::Lane::kPointToPoint: return "sends and receives";
    case channel::Lane::kGpuCollective: return "collectives on GPUs' memory";
    case channel::Lane::kGpuPointToPoint: return "sends and receives of GPUs' memory";
  }
  return "?";
}

std::string_view text(wire::LinkFault fault) {
  switch (fault) {
    case wire::LinkFault::kNone: return "";
    case wire::LinkFault::kAborted: return "has aborted";
    case wire::LinkFault::kDestroyed: return "has left";
    case wire::LinkFault::kLost: return "is lost";
  }
  return "has left for a reason that is not known here";
}

std::string notesOf(const wire::LinkLook& look) {
  std::string notes;
  const auto add = [&notes](std::string_view whose, std::string_view what) {
    if (what.empty()) return;
    notes += notes.empty() ? "its " : ", its ";
    notes.append(whose).append(" ").append(what);
  };
  add("sender", look.senderSleeps ? "sleeps" : "");
  add("sender", look.isBeingWritten ? "writes to the receiver's memory" : "");
  add("sender", text(look.senderFault));
  add("receiver", look.receiverSleeps ? "sleeps" : "");
  add("receiver", look.isBeingRead ? "reads the sender's memory" : "");
  add("receiver", text(look.receiverFault));
  return notes;
}

}  // namespace

LinkRegister::Entry::Entry(LinkRegister& owner, std::string communicator, int32_t rank,
                           const channel::LinkSet& links)
    : owner_(owner), communicator_(std::move(communicator)), rank_(rank), links_(links) {
  const std::lock_guard lock(owner_.mutex_);
  owner_.entries_.push_back(this);
}

LinkRegister::Entry::~Entry() {
  const std::lock_guard lock(owner_.mutex_);
  std::erase(owner_.entries_, this);
}

std::vector<observe::LinkState> LinkRegister::look() const {
  std::vector<observe::LinkState> found;
  const std::lock_guard lock(mutex_);
  for (const Entry* entry : entries_) {
    for (const channel::LinkSet::State& state : entry->links_.states()) {
      const channel::LinkSet::Use& use = state.use;
      found.push_back({.communicator = entry->communicator_,
                       .rank = entry->rank_,
                       .peer = index(use.peer),
                       .isOutgoing = use.isOutgoing,
                       .lane = name(use.lane),
                       .transport = use.transportName,
                       .isConnected = state.isConnected,
                       .published = state.look.published,
                       .givenBack = state.look.givenBack,
                       .slots = state.look.slots,
                       .isCarried = use.isCarried,
                       .carriedMessages = use.carried.messages,
                       .carriedBytes = use.carried.bytes,
                       .notes = notesOf(state.look)});
    }
  }
  return found;
}

}  // namespace tutti::comm
