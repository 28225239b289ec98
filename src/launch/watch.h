// Watch: what a rank does while its operation does not advance. Ten times a second it tells the
// others on the board what it waits for, and looks there whether that can still come: whether the
// awaited rank is alive, in the same call, or itself waits for us.
//
// The first rank that finds a reason gives the verdict for all; the others end with the same error.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fnv.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/peer_info.h"
#include "launch/far_pages.h"
#include "observe/board.h"
#include "observe/diagnosis.h"
#include "observe/recorder.h"
#include "transport/transport.h"

namespace tutti::launch {

// Which call a message is of: that of the plan's signature, and of collectives the how many-th.
inline uint32_t callSignature(uint32_t planSignature, uint64_t sequence) {
  Fnv hash;
  hash.add(planSignature);
  if (sequence != 0) hash.add(sequence);
  return static_cast<uint32_t>(hash.value());
}

// A process that ends closes its connections, and can no longer be read, some time before it counts
// as dead; on a busy machine tens of milliseconds.
inline constexpr int kDeathLooks = 20;
inline constexpr Nanoseconds kBetweenDeathLooks = std::chrono::milliseconds(5);

// Whether the process of that rank, of the recorder's board, has died; false also where that cannot
// be seen here. Any thread.
bool isDead(observe::Recorder& recorder, int32_t rank);

// Used by the thread that drives the communicator's operation.
class Watch {
 public:
  struct Parts {
    observe::Recorder& recorder;
    Clock& clock;
    Nanoseconds timeout;  // T: how long a rank may be stopped or silent, or a circle stand
    // For ranks whose pages cannot be read here, those of other hosts; null: there are none.
    bootstrap::Bootstrap* bootstrap = nullptr;
    const std::vector<bootstrap::PeerInfo>* peers = nullptr;
    // Of a rank of another host: bytes that have arrived so far, here or there. Null: not known.
    std::function<uint64_t(Rank)> arrivedBytes{};
  };
  explicit Watch(const Parts& parts)
      : parts_(parts),
        far_(parts.bootstrap, parts.recorder.board(), parts.recorder.rank(), parts.clock) {}

  // Before an operation may wait, and whenever one advances.
  void advanced() {
    parts_.recorder.clearWaits();
    if (!moved_.empty()) moved_.clear();
  }

  bool hasVerdict() const { return parts_.recorder.board().hasVerdict(); }

  // The verdict as this rank's error; ok while there is none. One load.
  Status verdict() const;

  // True when look() wants to be called: the operation is idle for long, and the last look was some
  // time ago. Reads the clock only when the first holds.
  bool isDue(int64_t idleNanoseconds);

  // Publishes what the operation waits for and judges it. An error ends the operation. Of
  // `carriers`, ranks whose processes carry what is waited for, only death and silence matter.
  Status look(std::span<const observe::WaitNote> waits, int64_t idleNanoseconds,
              std::span<const int32_t> carriers = {});

  // "its last call was Broadcast #2 (4 of float, root 0), failed": this rank's, for people.
  std::string lastCall() const;
  // Of any rank, as observe::lastCallClause() has it.
  std::string lastCallOf(int32_t rank) const;

  // What this rank, as it fails, tells those of other hosts: the verdict, when there is one.
  transport::Parting parting() const;
  void tellVerdict() { far_.tellVerdict(); }

  // The verdict for all ranks, or the one that another rank gave first; as this rank's error.
  Status give(observe::Verdict verdict);

  // What this rank of another host has said that has failed, as give(); ok: nothing.
  Status giveTold(int32_t peer);

  // Whether the ranks have called the same so far, as far as their pages go back. An error is the
  // verdict for all ranks. Any thread, while the rank is idle.
  Status compareCalls();

  // A better word for an error of a link: one of `peers` died, or ranks called different things.
  // The error itself when there is none; the others are told of it. `operation` as the recorder
  // numbers it.
  Status explain(Status error, uint64_t operation, std::span<const int32_t> peers);

 private:
  Status tell(Status error, const observe::RankView& self, const observe::OperationNote* own);
  std::optional<observe::Verdict> judgePeers(const std::vector<observe::RankView>& ranks,
                                             Instant now);
  std::optional<observe::Verdict> judgeCarriers(const std::vector<observe::RankView>& ranks,
                                                std::span<const int32_t> carriers, Instant now);
  std::optional<observe::Verdict> judgeAbsentees(const std::vector<observe::RankView>& ranks);
  const observe::RankView* findDead(const std::vector<observe::RankView>& ranks) const;
  bool areAlive(const std::vector<observe::RankView>& ranks, std::span<const int32_t> some) const;
  int64_t circleAge() const { return parts_.timeout.count() * 3 / 4; }
  std::optional<observe::Verdict> judgeCircle(const std::vector<observe::RankView>& ranks,
                                              Instant now) const;
  struct Seen {
    observe::ProcessState state = observe::ProcessState::kUnknown;  // of the peer
    const observe::OperationNote* waiting = nullptr;                // for it
  };
  std::optional<observe::Verdict> judgeLife(const observe::RankView& peer,
                                            const observe::RankView& self, const Seen& seen);
  std::optional<observe::Verdict> judgeStop(const observe::RankView& peer,
                                            observe::ProcessState state, Instant now);
  std::optional<observe::Verdict> judgeSilence(const observe::RankView& view, Instant now);
  std::string lastCallOf(observe::RankView view) const;
  int64_t quietSince(int32_t peer, int64_t since, Instant now);
  void warnOnce(const std::vector<observe::RankView>& ranks, int64_t idleNanoseconds);

  struct Suspect {
    int32_t rank = -1;
    Instant since{};
    uint64_t arrivedBytes = 0;  // at the last look
  };

  const Parts parts_;
  FarPages far_;
  Instant nextLook_{};
  int32_t nextPeek_ = 0;          // the first rank whose process the next look peeks at
  uint64_t warnedNumber_ = 0;     // the operation that was warned about
  std::vector<Suspect> stopped_;  // awaited ranks that were stopped at every look since
  std::vector<Suspect> gone_;     // awaited ranks that had left or died at an earlier look
  // Ranks of other hosts, since they were asked for the first sign of life that has not come; kept
  // from wait to wait, as their silence goes on.
  std::vector<Suspect> silent_;
  std::vector<Suspect> moved_;  // awaited ranks, since bytes last came from there or arrived
};

}  // namespace tutti::launch
