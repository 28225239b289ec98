#include "observe/diagnosis.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/char_field.h"

namespace tutti::observe {
namespace {

constexpr size_t kTableLines = 16;

// What a page says may be anything; what is no enumerator becomes the first one.
template <typename Enum>
Enum checked(uint64_t value, int count) {
  return value < static_cast<uint64_t>(count) ? static_cast<Enum>(value) : Enum{};
}

std::optional<OperationNote> readEntry(const Entry& entry, const EntryTimes& times) {
  const uint64_t number = entry.number.load(std::memory_order_acquire);
  if (number == 0) return std::nullopt;
  const uint64_t count = entry.count.load(std::memory_order_acquire);
  OperationNote note = unpackWhat(entry.what.load(std::memory_order_acquire));
  note.number = number;
  note.count = count;
  note.sequence = entry.sequence.load(std::memory_order_acquire);
  note.began = times.began.load(std::memory_order_acquire);
  note.ended = times.ended.load(std::memory_order_acquire);
  if (entry.number.load(std::memory_order_relaxed) != number) return std::nullopt;
  return note;
}

std::optional<WaitNote> readWait(const WaitSlot& slot, int32_t rankCount) {
  const int64_t since = slot.since.load(std::memory_order_acquire);
  if (since == 0) return std::nullopt;
  const uint64_t whom = slot.whom.load(std::memory_order_acquire);
  const uint64_t progress = slot.progress.load(std::memory_order_acquire);
  const uint64_t number = slot.number.load(std::memory_order_acquire);
  if (slot.since.load(std::memory_order_relaxed) != since) return std::nullopt;
  WaitNote note = unpackWait(whom, progress);
  if (note.peer < 0 || note.peer >= rankCount) return std::nullopt;
  note.number = number;
  note.since = since;
  return note;
}

// What all ranks of a collective must agree on.
using Shape = std::tuple<Collective, uint64_t, DataType, ReduceOp, int32_t>;

Shape shapeOf(const OperationNote& note) {
  return {note.collective, note.count, note.type, note.op, note.peer};
}

std::string tableLine(const RankView& rank, const OperationNote& note) {
  return fmt::format("\n  {:>4}  {:<13}  {:>12}  {:<8}  {:<9}  {}", rank.rank,
                     name(note.collective), note.count, name(note.type),
                     isReduction(note.collective) ? name(note.op) : "-",
                     hasRoot(note.collective) ? fmt::format("{}", note.peer) : "-");
}

std::optional<Verdict> mismatchAt(const std::vector<RankView>& ranks, uint64_t sequence) {
  std::map<Shape, int> votes;
  for (const RankView& rank : ranks) {
    if (const OperationNote* note = rank.collectiveAt(sequence)) ++votes[shapeOf(*note)];
  }
  if (votes.size() < 2) return std::nullopt;
  // The few who differ come first: a table that is cut short still shows them.
  std::vector<std::pair<int, const RankView*>> rows;
  for (const RankView& rank : ranks) {
    if (const OperationNote* note = rank.collectiveAt(sequence))
      rows.emplace_back(votes[shapeOf(*note)], &rank);
  }
  std::ranges::stable_sort(rows, {}, [](const auto& row) { return row.first; });
  Verdict verdict;
  verdict.code = Code::kInvalidUsage;
  const bool isOneAgainstAll = rows.size() > 2 && votes.size() == 2 && rows[0].first == 1;
  if (isOneAgainstAll) verdict.guilty = rows[0].second->rank;
  verdict.text =
      fmt::format("the ranks call different things as collective #{}{}:", sequence,
                  isOneAgainstAll ? fmt::format(", {} differs", who(*rows[0].second)) : "");
  verdict.text += "\n  rank  call                  count  type      op         root";
  for (size_t i = 0; i < rows.size() && i < kTableLines; ++i)
    verdict.text += tableLine(*rows[i].second, *rows[i].second->collectiveAt(sequence));
  if (rows.size() > kTableLines)
    verdict.text += fmt::format("\n  and {} more ranks", rows.size() - kTableLines);
  return verdict;
}

// Depth-first from `at`, along waits that are old enough; `path` holds the ranks on the way.
bool searchCycle(const std::vector<RankView>& ranks, int64_t latestStart,
                 std::vector<int32_t>& path, std::vector<bool>& seen) {
  const int32_t at = path.back();
  for (const WaitNote& wait : ranks[static_cast<size_t>(at)].waits) {
    if (wait.since > latestStart) continue;
    if (const auto found = std::ranges::find(path, wait.peer); found != path.end()) {
      path.erase(path.begin(), found);
      return true;
    }
    if (seen[static_cast<size_t>(wait.peer)]) continue;
    seen[static_cast<size_t>(wait.peer)] = true;
    path.push_back(wait.peer);
    if (searchCycle(ranks, latestStart, path, seen)) return true;
    path.pop_back();
  }
  return false;
}

const WaitNote* waitFor(const RankView& rank, int32_t peer) {
  for (const WaitNote& wait : rank.waits) {
    if (wait.peer == peer) return &wait;
  }
  return nullptr;
}

bool isInTransfer(const RankView& rank, const WaitNote& wait) {
  const OperationNote* call = rank.operation(wait.number);
  return call != nullptr && isPointToPoint(call->collective);
}

// The other waits for the other end of the same message.
bool isMet(const RankView& waiter, const WaitNote& wait, const RankView& other) {
  return std::ranges::any_of(other.waits, [&](const WaitNote& back) {
    const bool isOtherEnd =
        (back.direction == Direction::kReceive) != (wait.direction == Direction::kReceive);
    return back.peer == waiter.rank && isOtherEnd &&
           isInTransfer(other, back) == isInTransfer(waiter, wait);
  });
}

}  // namespace

OperationNote unpackWhat(uint64_t what) {
  return {.collective = checked<Collective>(what & 0xff, kCollectiveCount),
          .type = checked<DataType>(what >> 8 & 0xff, kDataTypeCount),
          .op = checked<ReduceOp>(what >> 16 & 0xff, kReduceOpCount),
          .state = checked<EntryState>(what >> 24 & 0xff, 4),
          .peer = static_cast<int32_t>(what >> 32)};
}

WaitNote unpackWait(uint64_t whom, uint64_t progress) {
  return {.peer = static_cast<int32_t>(whom & 0xffffffffu),
          .direction = checked<Direction>(whom >> 32, 3),
          .step = static_cast<uint32_t>(progress),
          .piece = static_cast<uint32_t>(progress >> 32)};
}

const OperationNote* RankView::newestCollective() const {
  for (const OperationNote& note : history) {
    if (!isPointToPoint(note.collective)) return &note;
  }
  return nullptr;
}

const OperationNote* RankView::collectiveAt(uint64_t sequence) const {
  for (const OperationNote& note : history) {
    if (!isPointToPoint(note.collective) && note.sequence == sequence) return &note;
  }
  return nullptr;
}

const OperationNote* RankView::operation(uint64_t number) const {
  for (const OperationNote& note : history) {
    if (note.number == number) return &note;
  }
  return nullptr;
}

RankView readRank(const Board& board, int32_t rank) {
  RankView view;
  view.rank = rank;
  const Page& page = board.page(rank);
  const uint32_t life = page.life.load(std::memory_order_acquire);
  view.life =
      life <= static_cast<uint32_t>(Life::kElsewhere) ? static_cast<Life>(life) : Life::kReady;
  view.process = {
      .processId = page.processId, .start = page.processStart, .pidNamespace = page.pidNamespace};
  view.hostName = textOf(page.hostName);
  if (!hasPage(view)) return view;
  view.threadId = page.threadId;
  readCalls(board, view);
  return view;
}

void readCalls(const Board& board, RankView& view) {
  const Page& page = board.page(view.rank);
  const uint64_t last = page.lastNumber.load(std::memory_order_acquire);
  for (uint64_t number = last; number > 0 && last - number < kHistory; --number) {
    const auto note = readEntry(page.entries[number % kHistory], page.times[number % kHistory]);
    if (note && note->number == number) view.history.push_back(*note);
  }
  for (const WaitSlot& slot : page.waits) {
    if (const auto wait = readWait(slot, board.rankCount())) view.waits.push_back(*wait);
  }
}

std::vector<RankView> readBoard(const Board& board) {
  std::vector<RankView> ranks;
  for (int32_t rank = 0; rank < board.rankCount(); ++rank) ranks.push_back(readRank(board, rank));
  return ranks;
}

std::string_view name(Life life) {
  switch (life) {
    case Life::kAbsent: return "absent";
    case Life::kReady: return "ready";
    case Life::kFinalized: return "finalized";
    case Life::kDestroyed: return "destroyed";
    case Life::kAborted: return "aborted";
    case Life::kExited: return "exited";
    case Life::kElsewhere: return "elsewhere";
  }
  return "unknown";
}

std::string_view name(EntryState state) {
  switch (state) {
    case EntryState::kRunning: return "running";
    case EntryState::kDone: return "done";
    case EntryState::kFailed: return "failed";
  }
  return "unknown";
}

std::string who(const RankView& rank) {
  if (rank.process.processId == 0) return fmt::format("rank {}", rank.rank);
  return fmt::format("rank {} ({}, pid {})", rank.rank, rank.hostName, rank.process.processId);
}

std::string what(const OperationNote& operation) {
  std::string text(name(operation.collective));
  if (!isPointToPoint(operation.collective)) text += fmt::format(" #{}", operation.sequence);
  text += fmt::format(" ({} of {}", operation.count, name(operation.type));
  if (isReduction(operation.collective)) text += fmt::format(", {}", name(operation.op));
  if (hasRoot(operation.collective)) text += fmt::format(", root {}", operation.peer);
  if (operation.collective == Collective::kSend)
    text += fmt::format(", to rank {}", operation.peer);
  if (operation.collective == Collective::kRecv)
    text += fmt::format(", from rank {}", operation.peer);
  return text + ")";
}

std::string lastCall(const RankView& rank) {
  const OperationNote* last = rank.newest();
  if (last == nullptr) return "it has called nothing yet";
  switch (last->state) {
    case EntryState::kDone: return fmt::format("its last call was {}, done", what(*last));
    case EntryState::kFailed: return fmt::format("its last call was {}, failed", what(*last));
    case EntryState::kRunning: break;
  }
  return fmt::format("it is in {}", what(*last));
}

std::string lastCallClause(const RankView& rank) {
  return isKnown(rank) ? "; " + lastCall(rank) : "";
}

std::string waitText(const RankView& waiter, const WaitNote& wait) {
  const OperationNote* operation = waiter.operation(wait.number);
  std::string_view kind = "a message from";
  if (wait.direction == Direction::kSend) kind = "a receive by";
  if (wait.direction == Direction::kConnect) kind = "a link to";
  return fmt::format("rank {} waits for {} rank {}{}", waiter.rank, kind, wait.peer,
                     operation == nullptr ? "" : " in " + what(*operation));
}

std::optional<Verdict> findMismatch(const std::vector<RankView>& ranks, uint64_t before) {
  uint64_t oldest = UINT64_MAX;
  for (const RankView& rank : ranks) {
    if (const OperationNote* note = rank.newestCollective())
      oldest = std::min(oldest, note->sequence);
  }
  // Some before, too: who only sends goes on, and learns of it from a later call's messages.
  std::set<uint64_t> sequences;
  for (const RankView& rank : ranks) {
    for (const OperationNote& note : rank.history) {
      if (!isPointToPoint(note.collective) && note.sequence + before >= oldest)
        sequences.insert(note.sequence);
    }
  }
  for (const uint64_t sequence : sequences) {
    if (auto verdict = mismatchAt(ranks, sequence)) return verdict;
  }
  return std::nullopt;
}

std::optional<Verdict> compareTransfer(const std::vector<RankView>& ranks, int32_t receiver,
                                       int32_t sender, const OperationNote& receive) {
  const RankView& from = ranks[static_cast<size_t>(sender)];
  const OperationNote* send = nullptr;
  for (const OperationNote& note : from.history) {
    const bool isToReceiver = note.collective == Collective::kSend && note.peer == receiver;
    if (!isToReceiver) continue;
    // Of several, the oldest that is not done is the one received now.
    if (send == nullptr || note.state != EntryState::kDone) send = &note;
  }
  if (send == nullptr || (send->count == receive.count && send->type == receive.type))
    return std::nullopt;
  return Verdict{
      .code = Code::kInvalidUsage,
      .text = fmt::format(
          "{} sends {} elements of {} ({} bytes), but {} receives {} of {} ({} bytes): a send and "
          "its receive must agree",
          who(from), send->count, name(send->type), send->count * sizeOf(send->type),
          who(ranks[static_cast<size_t>(receiver)]), receive.count, name(receive.type),
          receive.count * sizeOf(receive.type))};
}

std::vector<int32_t> findCycle(const std::vector<RankView>& ranks, int64_t now,
                               int64_t minimumAge) {
  std::vector<bool> seen(ranks.size());
  for (const RankView& rank : ranks) {
    if (rank.waits.empty() || seen[static_cast<size_t>(rank.rank)]) continue;
    seen[static_cast<size_t>(rank.rank)] = true;
    std::vector<int32_t> path{rank.rank};
    if (!searchCycle(ranks, now - minimumAge, path, seen)) continue;
    std::ranges::rotate(path, std::ranges::min_element(path));
    return path;
  }
  return {};
}

bool isOfCalls(const std::vector<RankView>& ranks, const std::vector<int32_t>& cycle) {
  bool hasTransfer = false;
  for (size_t i = 0; i < cycle.size(); ++i) {
    const RankView& rank = ranks[static_cast<size_t>(cycle[i])];
    const int32_t next = cycle[(i + 1) % cycle.size()];
    const WaitNote* wait = waitFor(rank, next);
    if (wait == nullptr || isMet(rank, *wait, ranks[static_cast<size_t>(next)])) return false;
    hasTransfer = hasTransfer || isInTransfer(rank, *wait);
  }
  return hasTransfer;
}

Verdict cycleVerdict(const std::vector<RankView>& ranks, const std::vector<int32_t>& cycle) {
  Verdict verdict{.code = Code::kInvalidUsage,
                  .text = "these ranks wait for each other in a circle, so none can go on:"};
  for (size_t i = 0; i < cycle.size(); ++i) {
    if (i == kTableLines) {
      verdict.text += fmt::format("\n  and {} more", cycle.size() - i);
      break;
    }
    const RankView& rank = ranks[static_cast<size_t>(cycle[i])];
    const WaitNote* wait = waitFor(rank, cycle[(i + 1) % cycle.size()]);
    if (wait != nullptr) verdict.text += "\n  " + waitText(rank, *wait);
  }
  verdict.text +=
      "\nall ranks must make the same calls in the same order; sends and receives that wait for "
      "each other belong between ncclGroupStart and ncclGroupEnd";
  return verdict;
}

std::vector<int32_t> followWaits(const std::vector<RankView>& ranks, int32_t start) {
  std::vector<int32_t> chain{start};
  for (;;) {
    const RankView& rank = ranks[static_cast<size_t>(chain.back())];
    if (rank.waits.empty()) return chain;
    const int32_t next = rank.waits.front().peer;
    if (std::ranges::find(chain, next) != chain.end()) return chain;
    chain.push_back(next);
  }
}

bool isOutside(const RankView& rank) {
  return isKnown(rank) &&
         (rank.newest() == nullptr || rank.newest()->state != EntryState::kRunning);
}

std::string whyLate(const RankView& late, const RankView& waiter, const OperationNote* waiting) {
  if (late.life == Life::kAbsent)
    return fmt::format("{} has not finished its initialisation", who(late));
  if (late.life == Life::kElsewhere && !late.hasTold) {
    return fmt::format("{} is on another host: \"tutti why\" on {} tells what it does", who(late),
                       late.hostName);
  }
  const OperationNote* last = late.newestCollective();
  const uint64_t reached = last == nullptr ? 0 : last->sequence;
  if (waiting != nullptr && waiting->sequence > reached) {
    const uint64_t behind = waiting->sequence - reached;
    return fmt::format("{} has not called {}, {} operation{} behind: {}", who(late), what(*waiting),
                       behind, behind == 1 ? "" : "s", lastCall(late));
  }
  const bool isTransfer = waiting != nullptr && isPointToPoint(waiting->collective);
  if (isTransfer && isOutside(late)) {
    const bool isSend = waiting->collective == Collective::kSend;
    return fmt::format("{} has not called {} rank {} to meet that rank's {}: {}", who(late),
                       isSend ? "Recv from" : "Send to", waiter.rank, what(*waiting),
                       lastCall(late));
  }
  return fmt::format("{} is late: {}", who(late), lastCall(late));
}

Verdict deathVerdict(const RankView& dead, const RankView& waiter, const OperationNote* waiting) {
  const std::string_view how =
      dead.life == Life::kExited ? "exited without ncclCommDestroy" : "died";
  return {
      .code = Code::kRemoteError,
      .guilty = dead.rank,
      .text = fmt::format("{} {} while rank {} waited for it{}{}", who(dead), how, waiter.rank,
                          waiting == nullptr ? "" : " in " + what(*waiting), lastCallClause(dead))};
}

}  // namespace tutti::observe
