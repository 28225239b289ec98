#include "observe/told_page.h"

#include <algorithm>

namespace tutti::observe {
namespace {

constexpr int64_t kNews = 1'000'000'000;

void writeEntries(Page& page, const std::vector<OperationNote>& history) {
  for (Entry& entry : page.entries) entry.number.store(0, std::memory_order_relaxed);
  const size_t kept = std::min(history.size(), kHistory);
  for (size_t i = 0; i < kept; ++i) {
    const OperationNote& note = history[i];
    Entry& entry = page.entries[note.number % kHistory];
    entry.count.store(note.count, std::memory_order_release);
    entry.what.store(packWhat(note), std::memory_order_release);
    entry.sequence.store(note.sequence, std::memory_order_release);
    entry.number.store(note.number, std::memory_order_release);
  }
  page.lastNumber.store(kept == 0 ? 0 : history.front().number, std::memory_order_release);
}

}  // namespace

void keepTold(Board& board, const RankView& rank, int64_t toldAt) {
  Page& page = board.page(rank.rank);
  if (page.isBeingTold.exchange(1, std::memory_order_acquire) != 0) return;
  if (toldAt > page.toldAt.load(std::memory_order_relaxed)) {
    writeEntries(page, rank.history);
    writeWaits(page, rank.waits);
    page.toldAt.store(toldAt, std::memory_order_release);
  }
  page.isBeingTold.store(0, std::memory_order_release);
}

void addTold(const Board& board, int64_t now, RankView& rank) {
  if (rank.life != Life::kElsewhere) return;
  const int64_t toldAt = board.page(rank.rank).toldAt.load(std::memory_order_acquire);
  if (toldAt == 0 || now - toldAt > kNews) return;
  readCalls(board, rank);
  rank.hasTold = true;
}

}  // namespace tutti::observe
