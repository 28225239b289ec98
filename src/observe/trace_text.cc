// The trace as Chrome's trace format has it: a process a rank; a thread for its calls, and for each
// link two, its transfers and its messages. Bars of one thread must lie inside each other or apart,
// so that what overlaps goes to another thread of the same name.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/markup.h"
#include "observe/diagnosis.h"
#include "observe/trace.h"

namespace tutti::observe {
namespace {

double microseconds(Instant at) { return static_cast<double>(static_cast<int64_t>(at)) * 1e-3; }

struct Bar {
  std::string name;
  std::string_view category;
  Instant begin{};
  Instant end{};
  std::string arguments;  // of a JSON object
};

class TraceWriter {
 public:
  TraceWriter(const TraceIdentity& identity, const TraceMoment& moment)
      : identity_(identity), moment_(moment) {}

  void add(const TraceRecord& record) {
    switch (record.kind) {
      case EventKind::kGroup: return addGroup(record);
      case EventKind::kCall: return addCall(record);
      case EventKind::kLaunch: return;
      case EventKind::kRun: return addRun(record);
      case EventKind::kTransfer: return addTransfer(record);
      case EventKind::kMessage: return addMessage(record);
    }
  }

  std::string finish() {
    nameProcess();
    std::string text =
        "{\"displayTimeUnit\": \"ns\", \"otherData\": " + facts() + ", \"traceEvents\": [\n";
    for (size_t i = 0; i < events_.size(); ++i)
      text += events_[i] + (i + 1 < events_.size() ? ",\n" : "\n");
    return text + "]}\n";
  }

 private:
  struct Threads {
    int first = 0;                  // the number of its first lane
    std::vector<Instant> freeFrom;  // by lane
  };
  // Threads of one name have numbers that follow each other, as far as they go.
  static constexpr int kLanes = 64;

  Instant endOf(const TraceRecord& record) const {
    return record.stage == TraceStage::kEnded ? record.ended : moment_.now;
  }
  Instant movedOf(const TraceRecord& record) const {
    return record.stage == TraceStage::kOpen ? moment_.now : record.moved;
  }

  int threadFor(const std::string& name, Instant begin, Instant end) {
    auto [at, isNew] = threads_.try_emplace(name);
    Threads& threads = at->second;
    if (isNew) threads.first = static_cast<int>(threads_.size() - 1) * kLanes;
    auto lane = std::ranges::find_if(threads.freeFrom, [begin](Instant from) {
      return static_cast<int64_t>(from) <= static_cast<int64_t>(begin);
    });
    const bool hasRoom = threads.freeFrom.size() < kLanes;
    if (lane == threads.freeFrom.end() && !hasRoom) --lane;
    if (lane == threads.freeFrom.end()) {
      lane = threads.freeFrom.insert(lane, Instant{});
      nameThread(name, threads.first + static_cast<int>(threads.freeFrom.size()) - 1);
    }
    *lane = end;
    return threads.first + static_cast<int>(lane - threads.freeFrom.begin());
  }

  void addBar(int thread, const Bar& bar) {
    const double begin = microseconds(bar.begin);
    events_.push_back(fmt::format(
        R"({{"ph": "X", "name": {}, "cat": "{}", "pid": {}, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, "args": {{{}}}}})",
        quoteJson(bar.name), bar.category, identity_.rank, thread, begin,
        std::max(0.0, microseconds(bar.end) - begin), bar.arguments));
  }

  void addGroup(const TraceRecord& group) {
    if (group.bytes < 2) return;
    const Bar bar{.name = fmt::format("group of {} calls", group.bytes),
                  .category = "group",
                  .begin = group.began,
                  .end = endOf(group),
                  .arguments = {}};
    addBar(threadFor("groups", bar.begin, bar.end), bar);
  }

  void addCall(const TraceRecord& call) {
    const Bar bar{.name = nameOf(call),
                  .category = "call",
                  .begin = call.began,
                  .end = endOf(call),
                  .arguments = fmt::format(R"("algorithm": {}, "bytes": {}, "ended": {})",
                                           quoteJson(call.call.algorithm),
                                           call.call.count * sizeOf(call.call.type),
                                           call.stage == TraceStage::kEnded)};
    const int thread = threadFor("calls", bar.begin, bar.end);
    callThreads_[call.number] = thread;
    addBar(thread, bar);
  }

  // Inside its call; before it the call waited for its turn, and for links to be made.
  void addRun(const TraceRecord& run) {
    const auto call = callThreads_.find(run.parent);
    if (call == callThreads_.end()) return;
    addBar(
        call->second,
        {.name = "run", .category = "run", .begin = run.began, .end = endOf(run), .arguments = {}});
  }

  void addTransfer(const TraceRecord& transfer) {
    const Bar bar{.name = nameOf(transfer),
                  .category = transfer.isSend ? "send" : "receive",
                  .begin = transfer.began,
                  .end = endOf(transfer),
                  .arguments = fmt::format(R"("messages": {})", transfer.bytes)};
    addBar(threadFor(linkName(transfer), bar.begin, bar.end), bar);
  }

  void addMessage(const TraceRecord& message) {
    const Instant moved = movedOf(message);
    const Instant end = endOf(message);
    const int thread = threadFor(linkName(message) + ", messages", message.began, end);
    addBar(thread, {.name = fmt::format("message {}", message.first),
                    .category = message.isSend ? "send" : "receive",
                    .begin = message.began,
                    .end = end,
                    .arguments = fmt::format(R"("bytes": {}, "call": {})", message.bytes,
                                             quoteJson(nameOf(message)))});
    const std::array<std::string_view, 2> phases =
        message.isSend ? std::array<std::string_view, 2>{"waits for the network", "goes out"}
                       : std::array<std::string_view, 2>{"comes in", "is used"};
    addPhase(thread, phases[0], message.began, moved);
    addPhase(thread, phases[1], moved, end);
    if (message.stage != TraceStage::kOpen) addArrow(thread, message, moved);
  }

  void addPhase(int thread, std::string_view name, Instant begin, Instant end) {
    if (begin == end) return;
    addBar(thread, {.name = std::string(name),
                    .category = "phase",
                    .begin = begin,
                    .end = end,
                    .arguments = {}});
  }

  // From the sender's file to the receiver's: both ends number a link's messages alike.
  void addArrow(int thread, const TraceRecord& message, Instant at) {
    const int32_t from = message.isSend ? identity_.rank : message.peer;
    const int32_t to = message.isSend ? message.peer : identity_.rank;
    events_.push_back(fmt::format(
        R"({{"ph": "{}", "name": "message", "cat": "message", "id": "{:x}.{}.{}.{}.{}", "pid": {}, "tid": {}, "ts": {:.3f}{}}})",
        message.isSend ? "s" : "f", identity_.communicator, message.lane, from, to, message.first,
        identity_.rank, thread, microseconds(at), message.isSend ? "" : R"(, "bp": "e")"));
  }

  static std::string nameOf(const TraceRecord& record) {
    return what({.collective = record.call.collective,
                 .type = record.call.type,
                 .op = record.call.op,
                 .peer = record.call.peer,
                 .count = record.call.count,
                 .sequence = record.call.sequence});
  }

  static std::string linkName(const TraceRecord& record) {
    return fmt::format("{} rank {}{}", record.isSend ? "to" : "from", record.peer,
                       record.lane == 0 ? "" : ", point-to-point");
  }

  void nameThread(const std::string& name, int number) {
    events_.push_back(fmt::format(
        R"({{"ph": "M", "name": "thread_name", "pid": {}, "tid": {}, "args": {{"name": {}}}}})",
        identity_.rank, number, quoteJson(name)));
    events_.push_back(fmt::format(
        R"({{"ph": "M", "name": "thread_sort_index", "pid": {0}, "tid": {1}, "args": {{"sort_index": {1}}}}})",
        identity_.rank, number));
  }

  void nameProcess() {
    events_.push_back(
        fmt::format(R"({{"ph": "M", "name": "process_name", "pid": {}, "args": {{"name": {}}}}})",
                    identity_.rank,
                    quoteJson(fmt::format("rank {} ({}, pid {})", identity_.rank, identity_.host,
                                          identity_.processId))));
    events_.push_back(fmt::format(
        R"({{"ph": "M", "name": "process_sort_index", "pid": {0}, "args": {{"sort_index": {0}}}}})",
        identity_.rank));
  }

  // Times are the monotonic clock's; with this much added, the wall clock's.
  std::string facts() const {
    const int64_t toWallNs = moment_.wallClockNs - static_cast<int64_t>(moment_.now);
    return fmt::format(
        R"({{"schema": "tutti.trace/1", "communicator": "{:016x}", "name": {}, "rank": {}, "rank_count": {}, "host": {}, "clock": "{:016x}", "process_id": {}, "wall_clock_offset_us": {:.3f}, "dropped_events": {}}})",
        identity_.communicator, quoteJson(identity_.name), identity_.rank, identity_.rankCount,
        quoteJson(identity_.host), identity_.hostHash, identity_.processId,
        static_cast<double>(toWallNs) * 1e-3, moment_.droppedCount);
  }

  const TraceIdentity& identity_;
  const TraceMoment& moment_;
  std::vector<std::string> events_;
  std::map<std::string, Threads> threads_;
  std::map<uint64_t, int> callThreads_;  // by the call's number
};

}  // namespace

std::string traceText(const TraceIdentity& identity, const std::vector<TraceRecord>& records,
                      const TraceMoment& moment) {
  TraceWriter writer(identity, moment);
  for (const TraceRecord& record : records) writer.add(record);
  return writer.finish();
}

}  // namespace tutti::observe
