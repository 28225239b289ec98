// Ranks that still read or write the buffers of this one's call, which has failed: the memory is
// the caller's again once the call returns, so it does not until they are through.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "observe/recorder.h"

namespace tutti::launch {

// What is waited for is a message's time of a rank that runs. A thread of this process is waited
// for as long as that takes, since nothing else keeps it from memory that is gone. So is another
// process, but no longer than T: its word that it is through is its own. One that has died writes
// nothing. One that is stopped, or that nobody can look at, might go on at any time or never: it is
// waited for for some hundred milliseconds, and writes the rest when it goes on.
class LatePeers {
 public:
  LatePeers(observe::Recorder& recorder, Clock& clock, Nanoseconds timeout);

  struct Peer {
    int32_t rank = 0;
    bool isHere = false;  // a thread of this process
  };
  // Asked again and again while one is at it. Pauses for a moment, or says that it has been waited
  // for long enough, with a warning unless it is dead. A thread of this process that takes long is
  // warned of once.
  bool mayWait(const Peer& peer);

 private:
  bool mayBeWriting(const Peer& peer, Instant now);
  bool giveUp(const Peer& peer, Instant now);
  void warnOfThread(const Peer& peer, Instant now);

  observe::Recorder& recorder_;
  Clock& clock_;
  const Instant begin_;
  const Instant deadline_;         // of those that run
  const Instant stoppedDeadline_;  // of the others
  Instant nextLook_;
  bool hasWarned_ = false;  // of a thread
  int pauses_ = 0;
};

}  // namespace tutti::launch
