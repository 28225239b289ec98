#include "api/call_range.h"

#include <memory>

#include "base/settings.h"
#include "observe/registry.h"

namespace tutti::api {
namespace {

// Not the process's settings: a program may ask for the version and fork before it uses the
// library, and the process object would stay its parent's.
observe::CallRanges* openRanges() {
  if (!observe::hasCallRanges() || Settings::load().integer("NCCL_NVTX_DISABLE") != 0)
    return nullptr;
  return observe::openCallRanges().release();  // threads may call while the process ends
}

}  // namespace

std::atomic<bool> areCallsWatched{true};

CallNote noteOf(const comm::Communicator* communicator) {
  CallNote note{.kind = observe::CallKind::kCommunicator};
  if (communicator == nullptr) return note;
  note.payload.communicator = communicator->hash();
  note.payload.rank = index(communicator->rank());
  note.payload.rankCount = communicator->rankCount();
  note.payload.device = communicator->device().caps().index;
  return note;
}

void CallRange::begin(std::string_view function, const CallNote& note) {
  static observe::CallRanges* const ranges = openRanges();
  if (ranges == nullptr) {
    areCallsWatched.store(false, std::memory_order_relaxed);
    return;
  }
  ranges->begin(function.data(), note.kind, note.payload);
  ranges_ = ranges;
}

}  // namespace tutti::api
