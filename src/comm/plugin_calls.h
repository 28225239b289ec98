// Calls that set up a plug-in (a tuner, a profiler, a collective network), which may never return.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "net/foreign_calls.h"

namespace tutti::comm {

// How long a plug-in may take to begin. The other ranks wait for this one meanwhile, for T.
inline Nanoseconds pluginPatience(Nanoseconds timeout) { return timeout / 2; }

// The call's result; kSystemError where it has not returned in time, with which it is left behind.
// `call` owns all that it uses, and says by a net::ForeignCall what it calls.
template <typename T, typename Call>
Result<T> callInTime(Nanoseconds patience, Call call) {
  TUTTI_TRY_ASSIGN(const std::unique_ptr<net::CallThread> thread, net::CallThread::start());
  net::Awaited<T> awaited;
  awaited.start(thread.get(), std::move(call));
  thread->waitUntilIdle(patience);
  if (std::optional<Result<T>> result = awaited.take()) return std::move(*result);
  return makeError(Code::kSystemError, thread->complaint(patience) + "; it is done without");
}

}  // namespace tutti::comm
