// Diagnosis: from what the ranks wrote on their board to who holds up whom, and why. Pure but for
// readBoard(): plain values in, verdicts and sentences out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "observe/board.h"
#include "observe/process_state.h"
#include "observe/recorder.h"

namespace tutti::observe {

// One rank's page as it was at some moment.
struct RankView {
  int32_t rank = 0;
  Life life = Life::kAbsent;
  ProcessIdentity process;
  int32_t threadId = 0;
  std::string hostName;
  std::vector<OperationNote> history;  // newest first
  std::vector<WaitNote> waits;
  bool hasTold = false;  // of another host: both are what it has told

  const OperationNote* newest() const { return history.empty() ? nullptr : &history.front(); }
  const OperationNote* newestCollective() const;
  const OperationNote* collectiveAt(uint64_t sequence) const;
  const OperationNote* operation(uint64_t number) const;
};

// Of packWhat()'s word, and packWhom()'s and packProgress()'s, which may be any.
OperationNote unpackWhat(uint64_t what);
WaitNote unpackWait(uint64_t whom, uint64_t progress);

// It writes what it does where this board's readers see it.
inline bool hasPage(const RankView& rank) {
  return rank.life != Life::kAbsent && rank.life != Life::kElsewhere;
}
inline bool isKnown(const RankView& rank) { return hasPage(rank) || rank.hasTold; }

// Without what ranks of other hosts have told (told_page.h).
RankView readRank(const Board& board, int32_t rank);
std::vector<RankView> readBoard(const Board& board);  // by rank
// History and waits, as the rank's page has them.
void readCalls(const Board& board, RankView& view);

// "ready", "exited"; "running", "done"
std::string_view name(Life life);
std::string_view name(EntryState state);
// "rank 3 (node1, pid 123)"
std::string who(const RankView& rank);
// "AllReduce #41 (1024 of float, sum)", "Send (100 of float, to rank 2)"
std::string what(const OperationNote& operation);
// "its last call was Broadcast #40 (...), done", "it has called nothing yet"
std::string lastCall(const RankView& rank);
// The same behind a semicolon, for sentences about a rank that died or stands still; "" where
// nobody here knows.
std::string lastCallClause(const RankView& rank);
// "rank 0 waits for a message from rank 1 in AllReduce #41 (1024 of float, sum)"
std::string waitText(const RankView& waiter, const WaitNote& wait);

// Ranks that called different things where all must call the same: in their newest collectives and
// up to `before` of those that came before. kInvalidUsage with a table of who called what, at most
// 16 lines; `guilty` is the one rank that differs from all others, if so.
std::optional<Verdict> findMismatch(const std::vector<RankView>& ranks, uint64_t before = 8);

// A receive whose message says it belongs to another call: names both sizes, if the sender's page
// tells its. `receiver` and `sender` are ranks of the board.
std::optional<Verdict> compareTransfer(const std::vector<RankView>& ranks, int32_t receiver,
                                       int32_t sender, const OperationNote& receive);

// Ranks that wait for each other in a circle, each for at least `minimumAge` nanoseconds; first the
// lowest. Empty when there is none.
std::vector<int32_t> findCycle(const std::vector<RankView>& ranks, int64_t now, int64_t minimumAge);
// Whether the calls alone make the circle, whatever is still on its way: sends or receives are
// among them, and nobody in it waits for the other end of what the next one waits for. (Collectives
// alone make none: where they differ, findMismatch() says so.)
bool isOfCalls(const std::vector<RankView>& ranks, const std::vector<int32_t>& cycle);
// kInvalidUsage: the circle in words.
Verdict cycleVerdict(const std::vector<RankView>& ranks, const std::vector<int32_t>& cycle);

// The ranks from `start` along what each waits for: the last one waits for nobody (or closes a
// circle) and holds up the others.
std::vector<int32_t> followWaits(const std::vector<RankView>& ranks, int32_t start);

// True when none of the rank's operations runs: whatever holds it up is no call of this library.
bool isOutside(const RankView& rank);

// Why a rank that waits for nobody holds up another, for people: what it called last, how far
// behind it is. `waiting` is what the waiter is in.
std::string whyLate(const RankView& late, const RankView& waiter, const OperationNote* waiting);

// kRemoteError: a rank whose process is gone.
Verdict deathVerdict(const RankView& dead, const RankView& waiter, const OperationNote* waiting);

}  // namespace tutti::observe
