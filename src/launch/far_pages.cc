#include "launch/far_pages.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/char_field.h"
#include "base/futex.h"
#include "bootstrap/bytes.h"
#include "observe/told_page.h"

namespace tutti::launch {
namespace {

using bootstrap::ByteReader;
using bootstrap::ByteWriter;
using observe::OperationNote;
using observe::RankView;
using observe::Verdict;
using observe::WaitNote;

constexpr size_t kMostOperations = 24;
constexpr size_t kEntryBytes = 4 * sizeof(uint64_t);  // of an operation, and of a wait
constexpr size_t kHeadBytes = 7;
constexpr size_t kMostTextBytes =
    bootstrap::kMaxWordsBytes - kHeadBytes - (kMostOperations + observe::kMaxWaits) * kEntryBytes;

// Every rank asked is a small message each way, ten times a second.
constexpr int32_t kAsksALook = 8;

// So old at most is what a rank is believed to wait for: the time between two looks and a way there
// and back.
constexpr Nanoseconds kNews = std::chrono::milliseconds(300);

// A round trip between hosts and more, and nothing that a user would notice once all has failed.
constexpr Nanoseconds kPatience = std::chrono::milliseconds(500);
// What has left may have told before, which comes another way than that it has left.
constexpr Nanoseconds kForLastWords = std::chrono::milliseconds(50);
constexpr Nanoseconds kFirstPause = std::chrono::microseconds(200);
constexpr Nanoseconds kLongestPause = std::chrono::milliseconds(10);
constexpr size_t kMostFresh = 64;

}  // namespace

std::vector<std::byte> encodePage(const RankView& rank, const Verdict& verdict, int64_t now) {
  const size_t operations = std::min(rank.history.size(), kMostOperations);
  const size_t waits = std::min(rank.waits.size(), observe::kMaxWaits);
  ByteWriter writer;
  writer.put(static_cast<uint8_t>(operations));
  writer.put(static_cast<uint8_t>(waits));
  writer.put(static_cast<uint8_t>(verdict.code));
  writer.put(verdict.guilty);
  for (const OperationNote& note : std::span(rank.history).first(operations)) {
    writer.put(note.number);
    writer.put(note.count);
    writer.put(packWhat(note));
    writer.put(note.sequence);
  }
  for (const WaitNote& wait : std::span(rank.waits).first(waits)) {
    writer.put(packWhom(wait));
    writer.put(packProgress(wait));
    writer.put(wait.number);
    writer.put(std::max<int64_t>(now - wait.since, 0));
  }
  const std::string_view text = std::string_view(verdict.text).substr(0, kMostTextBytes);
  writer.putBytes(std::as_bytes(std::span(text)));
  return std::move(writer.bytes());
}

std::optional<Verdict> decodePage(std::span<const std::byte> bytes, int64_t now, int32_t rankCount,
                                  RankView& view) {
  ByteReader reader(bytes);
  const size_t operations = reader.get<uint8_t>();
  const size_t waits = reader.get<uint8_t>();
  const auto code = static_cast<Code>(reader.get<uint8_t>());
  Verdict verdict;
  verdict.guilty = reader.get<int32_t>();
  if (operations > kMostOperations || waits > observe::kMaxWaits) return std::nullopt;
  std::vector<OperationNote> history(operations);
  for (OperationNote& note : history) {
    const auto number = reader.get<uint64_t>();
    const auto count = reader.get<uint64_t>();
    note = observe::unpackWhat(reader.get<uint64_t>());
    note.number = number;
    note.count = count;
    note.sequence = reader.get<uint64_t>();
  }
  std::vector<WaitNote> awaited(waits);
  for (WaitNote& wait : awaited) {
    const auto whom = reader.get<uint64_t>();
    wait = observe::unpackWait(whom, reader.get<uint64_t>());
    wait.number = reader.get<uint64_t>();
    const auto age = reader.get<int64_t>();
    if (wait.peer < 0 || wait.peer >= rankCount || age < 0) return std::nullopt;
    wait.since = now - std::min(age, now);
  }
  if (!reader.isGood() || verdict.guilty < -1 || verdict.guilty >= rankCount) return std::nullopt;
  verdict.text = foreignText(reader.rest());
  // What else a host may end with is its own affair.
  if (code == Code::kInvalidUsage || code == Code::kRemoteError) verdict.code = code;
  view.history = std::move(history);
  view.waits = std::move(awaited);
  view.hasTold = true;
  return verdict;
}

FarPages::FarPages(bootstrap::Bootstrap* bootstrap, observe::Board& board, int32_t rank,
                   Clock& clock)
    : bootstrap_(bootstrap), board_(board), clock_(clock) {
  if (bootstrap_ == nullptr) return;
  bootstrap_->say([&board, rank, &clock] {
    return encodePage(observe::readRank(board, rank),
                      board.hasVerdict() ? board.verdict() : Verdict{},
                      static_cast<int64_t>(clock.now()));
  });
}

FarPages::~FarPages() {
  if (bootstrap_ != nullptr) bootstrap_->say(nullptr);
}

void FarPages::tellVerdict() {
  if (bootstrap_ != nullptr) bootstrap_->tellAll();
}

Verdict FarPages::toldBy(std::vector<RankView>& ranks, std::span<const int32_t> some) const {
  const auto rankCount = static_cast<int32_t>(ranks.size());
  for (const int32_t rank : some) {
    RankView& view = ranks[static_cast<size_t>(rank)];
    if (!isFar(view)) continue;
    if (Heard heard = find(view, rankCount); heard.verdict.code != Code::kOk)
      return std::move(heard.verdict);
  }
  return {};
}

// Of a rank that is gone, however long ago it told it.
void FarPages::addTold(RankView& rank) const {
  if (isFar(rank) && find(rank, board_.rankCount()).isThere) rank.hasTold = true;
}

bool FarPages::ask(int32_t rank) {
  const auto found = std::ranges::find(asked_, rank, &Asked::rank);
  if (found != asked_.end()) return found->isTaken;
  const bool isTaken = bootstrap_->probe(Rank{rank}).ok();
  asked_.push_back({.rank = rank, .isTaken = isTaken});
  return isTaken;
}

FarPages::Heard FarPages::add(RankView& rank, int32_t rankCount) {
  const bool isLast = !ask(rank.rank);
  Heard heard = find(rank, rankCount);
  heard.isLast = isLast;
  return heard;
}

FarPages::Heard FarPages::find(RankView& rank, int32_t rankCount) const {
  Heard heard;
  const auto sign = bootstrap_->lastSign(Rank{rank.rank});
  if (!sign) return heard;
  const Instant askedAt = sign->askedAt.value_or(Instant{});
  auto verdict = decodePage(sign->words, static_cast<int64_t>(askedAt), rankCount, rank);
  if (!verdict) return heard;
  // A wire that is cut or slow, or a rank that stands still, tells what was: what it has called
  // since, nobody knows.
  if (clock_.now() - askedAt > kNews) {
    rank.waits.clear();
    rank.hasTold = false;
  }
  heard.isThere = true;
  heard.askedAt = askedAt;
  heard.verdict = std::move(*verdict);
  return heard;
}

Verdict FarPages::addAwaited(std::vector<RankView>& ranks, int32_t start) {
  const auto rankCount = static_cast<int32_t>(ranks.size());
  std::vector<int32_t> path{start};
  int32_t asked = 0;
  for (size_t i = 0; i < path.size(); ++i) {
    RankView& rank = ranks[static_cast<size_t>(path[i])];
    if (isFar(rank)) {
      if (asked++ == kAsksALook) return {};
      Heard heard = add(rank, rankCount);
      if (heard.verdict.code != Code::kOk) return std::move(heard.verdict);
      if (heard.isThere) observe::keepTold(board_, rank, static_cast<int64_t>(heard.askedAt));
    }
    for (const WaitNote& wait : rank.waits) {
      if (std::ranges::find(path, wait.peer) == path.end()) path.push_back(wait.peer);
    }
  }
  return {};
}

void FarPages::addFresh(std::vector<RankView>& ranks, std::span<const int32_t> wanted) {
  const auto rankCount = static_cast<int32_t>(ranks.size());
  std::vector<int32_t> missing;
  for (const int32_t rank : wanted) {
    if (isFar(ranks[static_cast<size_t>(rank)]) && missing.size() < kMostFresh)
      missing.push_back(rank);
  }
  const Instant began = clock_.now();
  Nanoseconds pause = kFirstPause;
  while (!missing.empty() && clock_.now() - began < kPatience) {
    beginLook();
    std::erase_if(missing, [&](int32_t rank) {
      const Heard heard = add(ranks[static_cast<size_t>(rank)], rankCount);
      if (heard.isLast) return clock_.now() - began > kForLastWords;
      return heard.isThere && (heard.askedAt >= began || heard.verdict.code != Code::kOk);
    });
    if (!missing.empty()) sleepFor(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace tutti::launch
