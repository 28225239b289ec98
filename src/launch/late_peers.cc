#include "launch/late_peers.h"

#include <sched.h>

#include <algorithm>

#include "base/futex.h"
#include "base/log.h"
#include "observe/diagnosis.h"

namespace tutti::launch {
namespace {

// An abort returns within a second, also beside a rank that is stopped.
constexpr Nanoseconds kMostOfStopped = std::chrono::milliseconds(300);
// A message's time is some milliseconds.
constexpr Nanoseconds kLong = std::chrono::milliseconds(500);
// A look at a process costs some 10 us.
constexpr Nanoseconds kBetweenLooks = std::chrono::milliseconds(5);
// Most are through in microseconds.
constexpr int kYields = 200;
constexpr Nanoseconds kNap = std::chrono::microseconds(100);

}  // namespace

LatePeers::LatePeers(observe::Recorder& recorder, Clock& clock, Nanoseconds timeout)
    : recorder_(recorder),
      clock_(clock),
      begin_(clock.now()),
      deadline_(begin_ + std::max(timeout, kMostOfStopped)),
      stoppedDeadline_(begin_ + kMostOfStopped),
      nextLook_(begin_ + kBetweenLooks) {}

bool LatePeers::mayWait(const Peer& peer) {
  const Instant now = clock_.now();
  if (!peer.isHere && now >= nextLook_) {
    nextLook_ = now + kBetweenLooks;
    if (!mayBeWriting(peer, now)) return false;
  }
  if (peer.isHere) warnOfThread(peer, now);
  if (pauses_++ < kYields) {
    ::sched_yield();
  } else {
    sleepFor(kNap);
  }
  return true;
}

bool LatePeers::mayBeWriting(const Peer& peer, Instant now) {
  const observe::RankView view = observe::readRank(recorder_.board(), peer.rank);
  switch (observe::stateOf(view.process, recorder_.pidNamespace())) {
    case observe::ProcessState::kDead: return false;
    case observe::ProcessState::kAlive: return now < deadline_ || giveUp(peer, now);
    case observe::ProcessState::kStopped:
    case observe::ProcessState::kUnknown: break;
  }
  return now < stoppedDeadline_ || giveUp(peer, now);
}

void LatePeers::warnOfThread(const Peer& peer, Instant now) {
  if (hasWarned_ || now - begin_ < kLong) return;
  hasWarned_ = true;
  log::warn(
      "rank {} still reads or writes a buffer of a call that failed {} ms ago: the call returns "
      "when that thread of the same process is through, which gets no CPU",
      peer.rank, std::chrono::duration_cast<std::chrono::milliseconds>(now - begin_).count());
}

bool LatePeers::giveUp(const Peer& peer, Instant now) {
  log::warn(
      "rank {} still writes to the output of a call that failed {} ms ago: it is stopped, or "
      "gets no CPU, and writes the rest when it goes on",
      peer.rank, std::chrono::duration_cast<std::chrono::milliseconds>(now - begin_).count());
  return false;
}

}  // namespace tutti::launch
