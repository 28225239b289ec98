#include "observe/time_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "base/markup.h"

namespace tutti::observe {
namespace {

Bar::Kind kindOf(EntryState state) {
  switch (state) {
    case EntryState::kRunning: return Bar::Kind::kRunning;
    case EntryState::kDone: return Bar::Kind::kDone;
    case EntryState::kFailed: return Bar::Kind::kFailed;
  }
  return Bar::Kind::kRunning;
}

std::string_view nameOf(Bar::Kind kind) {
  switch (kind) {
    case Bar::Kind::kDone: return "done";
    case Bar::Kind::kRunning: return "running";
    case Bar::Kind::kFailed: return "failed";
    case Bar::Kind::kWait: return "wait";
  }
  return "?";
}

// Operations of a group overlap in any way: each goes to the first lane from 1 on that is free.
void addOperations(const RankView& rank, int64_t now, std::vector<Bar>& bars) {
  std::vector<OperationNote> timed;
  std::ranges::copy_if(rank.history, std::back_inserter(timed), [now](const OperationNote& note) {
    return note.began > 0 && note.began <= now;
  });
  std::ranges::sort(timed, {}, &OperationNote::began);
  std::vector<int64_t> freeFrom;  // by lane, but for the one with the waits
  for (const OperationNote& note : timed) {
    const bool hasEnded = note.state != EntryState::kRunning && note.ended >= note.began;
    const int64_t end = hasEnded ? note.ended : now;
    auto lane = std::ranges::find_if(freeFrom, [&](int64_t from) { return from <= note.began; });
    if (lane == freeFrom.end()) lane = freeFrom.insert(lane, 0);
    *lane = end;
    bars.push_back({.kind = kindOf(note.state),
                    .rank = rank.rank,
                    .lane = 1 + static_cast<int32_t>(lane - freeFrom.begin()),
                    .begin = note.began,
                    .end = end,
                    .text = what(note)});
  }
}

// A rank publishes its waits together: one bar tells of all.
void addWaits(const RankView& rank, int64_t now, std::vector<Bar>& bars) {
  if (rank.waits.empty()) return;
  Bar bar{.kind = Bar::Kind::kWait, .rank = rank.rank, .begin = now, .end = now, .text = {}};
  for (const WaitNote& wait : rank.waits) {
    bar.begin = std::min(bar.begin, wait.since);
    bar.text += (bar.text.empty() ? "" : "; ") + waitText(rank, wait);
  }
  bars.push_back(std::move(bar));
}

double microseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-3; }

// The waits' lane, and at most one an operation.
int64_t threadNumber(int32_t rank, int32_t lane) {
  return int64_t{rank} * static_cast<int64_t>(kHistory + 1) + lane;
}

std::string threadName(int process, const RankView& rank, int32_t lane) {
  const std::string name = lane == 0 ? who(rank) + " waits" : who(rank);
  return fmt::format(
      R"({{"ph": "M", "name": "thread_name", "pid": {}, "tid": {}, "args": {{"name": {}}}}})",
      process, threadNumber(rank.rank, lane), quoteJson(name));
}

}  // namespace

std::vector<Bar> barsOf(const Evidence& evidence) {
  std::vector<Bar> bars;
  for (const RankView& rank : evidence.ranks) {
    if (!hasPage(rank)) continue;
    addWaits(rank, evidence.now, bars);
    addOperations(rank, evidence.now, bars);
  }
  std::ranges::stable_sort(
      bars, {}, [](const Bar& bar) { return std::tuple(bar.rank, bar.lane, bar.begin); });
  return bars;
}

std::string traceOf(std::span<const Examination> found) {
  std::vector<std::string> events;
  for (size_t i = 0; i < found.size(); ++i) {
    const Examination& each = found[i];
    const int process = static_cast<int>(i) + 1;
    events.push_back(
        fmt::format(R"({{"ph": "M", "name": "process_name", "pid": {}, "args": {{"name": {}}}}})",
                    process, quoteJson("communicator " + each.name)));
    const Bar* last = nullptr;
    const std::vector<Bar> bars = barsOf(each.evidence);
    for (const Bar& bar : bars) {
      if (last == nullptr || std::tie(last->rank, last->lane) != std::tie(bar.rank, bar.lane)) {
        const RankView& rank = each.evidence.ranks[static_cast<size_t>(bar.rank)];
        events.push_back(threadName(process, rank, bar.lane));
      }
      last = &bar;
      events.push_back(fmt::format(
          R"({{"ph": "X", "name": {}, "cat": "{}", "pid": {}, "tid": {}, "ts": {:.3f}, "dur": {:.3f}}})",
          quoteJson(bar.text), nameOf(bar.kind), process, threadNumber(bar.rank, bar.lane),
          microseconds(bar.begin), microseconds(bar.end - bar.begin)));
    }
  }
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (size_t i = 0; i < events.size(); ++i)
    text += events[i] + (i + 1 < events.size() ? ",\n" : "\n");
  return text + "]}\n";
}

}  // namespace tutti::observe
