#include "launch/late_writers.h"

#include <sched.h>

#include <algorithm>

#include "base/futex.h"
#include "base/log.h"
#include "observe/diagnosis.h"

namespace tutti::launch {
namespace {

// An abort returns within a second, also beside a rank that is stopped.
constexpr Nanoseconds kMostOfStopped = std::chrono::milliseconds(300);
// A look at a process costs some 10 us.
constexpr Nanoseconds kBetweenLooks = std::chrono::milliseconds(5);
// Most are through in microseconds.
constexpr int kYields = 200;
constexpr Nanoseconds kNap = std::chrono::microseconds(100);

}  // namespace

LateWriters::LateWriters(observe::Recorder& recorder, Clock& clock, Nanoseconds timeout)
    : recorder_(recorder),
      clock_(clock),
      begin_(clock.now()),
      deadline_(begin_ + std::max(timeout, kMostOfStopped)),
      stoppedDeadline_(begin_ + kMostOfStopped),
      nextLook_(begin_ + kBetweenLooks) {}

bool LateWriters::mayWait(const Writer& writer) {
  const Instant now = clock_.now();
  if (!writer.isHere && now >= nextLook_) {
    nextLook_ = now + kBetweenLooks;
    if (!mayBeWriting(writer, now)) return false;
  }
  if (pauses_++ < kYields) {
    ::sched_yield();
  } else {
    sleepFor(kNap);
  }
  return true;
}

bool LateWriters::mayBeWriting(const Writer& writer, Instant now) {
  const observe::RankView view = observe::readRank(recorder_.board(), writer.rank);
  switch (observe::stateOf(view.process, recorder_.pidNamespace())) {
    case observe::ProcessState::kDead: return false;
    case observe::ProcessState::kAlive: return now < deadline_ || giveUp(writer, now);
    case observe::ProcessState::kStopped:
    case observe::ProcessState::kUnknown: break;
  }
  return now < stoppedDeadline_ || giveUp(writer, now);
}

bool LateWriters::giveUp(const Writer& writer, Instant now) {
  log::warn(
      "rank {} still writes to the output of a call that failed {} ms ago: it is stopped, or "
      "gets no CPU, and writes the rest when it goes on",
      writer.rank, std::chrono::duration_cast<std::chrono::milliseconds>(now - begin_).count());
  return false;
}

}  // namespace tutti::launch
