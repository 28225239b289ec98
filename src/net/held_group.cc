#include "net/held_group.h"

#include <chrono>
#include <utility>

#include "base/log.h"

namespace tutti::net {
namespace {

// Of what abort may take, a second, some is others'.
constexpr std::chrono::milliseconds kParting{500};

}  // namespace

HeldGroup::~HeldGroup() {
  calls_->post([group = std::move(group_)] {});
  endCalls(std::move(calls_));
}

void endCalls(std::unique_ptr<CallThread> calls) {
  if (!calls->waitUntilIdle(kParting)) log::warn("{}: it is left behind", calls->whatHangs());
}

}  // namespace tutti::net
