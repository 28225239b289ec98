// Recorder: what one rank writes on its page of the board. An operation costs a few stores to lines
// that nobody else reads in ordinary times.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "observe/board.h"
#include "wire/types.h"

namespace tutti::observe {

enum class EntryState : uint8_t { kRunning = 1, kDone = 2, kFailed = 3 };

enum class Direction : uint8_t { kReceive = 0, kSend = 1, kConnect = 2 };

struct OperationNote {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  EntryState state = EntryState::kRunning;
  int32_t peer = 0;
  uint64_t count = 0;
  uint64_t sequence = 0;  // collectives only, else 0
  uint64_t number = 0;    // reading only, these three
  int64_t began = 0;      // nanoseconds of the monotonic clock; 0: not known
  int64_t ended = 0;
};

struct WaitNote {
  int32_t peer = -1;
  Direction direction = Direction::kReceive;
  uint32_t step = 0;
  uint32_t piece = 0;
  uint64_t number = 0;  // of the operation that waits
  int64_t since = 0;
};

constexpr uint64_t packWhat(const OperationNote& note) {
  return uint64_t{static_cast<uint8_t>(note.collective)} |
         uint64_t{static_cast<uint8_t>(note.type)} << 8 |
         uint64_t{static_cast<uint8_t>(note.op)} << 16 |
         uint64_t{static_cast<uint8_t>(note.state)} << 24 |
         uint64_t{static_cast<uint32_t>(note.peer)} << 32;
}

constexpr uint64_t packWhom(const WaitNote& note) {
  return uint64_t{static_cast<uint32_t>(note.peer)} | uint64_t{static_cast<uint8_t>(note.direction)}
                                                          << 32;
}
constexpr uint64_t packProgress(const WaitNote& note) {
  return uint64_t{note.step} | uint64_t{note.piece} << 32;
}

// In place of those that are there; the first that have room.
void writeWaits(Page& page, std::span<const WaitNote> waits);

class Recorder;

// What the recorders of a process have in common. Thread-safe; lives as long as the process.
class ProcessRecorders {
 public:
  // Before the first recorder, if at all. They look at the clock at each operation's beginning and
  // end, and call `onVerdict` with each board that has got its verdict from this process: on the
  // thread that found it, which must not wait.
  using OnVerdict = std::function<void(const Board& board)>;
  void watchClosely(OnVerdict onVerdict) { onVerdict_ = std::move(onVerdict); }
  bool isWatchingClosely() const { return onVerdict_ != nullptr; }
  void verdictGiven(const Board& board) const {
    if (onVerdict_) onVerdict_(board);
  }

  void add(Recorder& recorder);
  void remove(Recorder& recorder);
  // The process has called exit(): marks all pages.
  void mark();

 private:
  std::mutex mutex_;
  std::vector<Recorder*> recorders_;  // guarded by mutex_
  OnVerdict onVerdict_;               // constant once there is a recorder
};

class Recorder {
 public:
  // Writes the rank's identity and marks it ready. `board` is shared with the other ranks of this
  // process that have it mapped; `rank` is below its rank count.
  Recorder(Board board, int32_t rank, std::string_view hostName, ProcessRecorders& siblings);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  Board& board() { return board_; }
  int32_t rank() const { return rank_; }
  uint64_t pidNamespace() const { return page_->pidNamespace; }

  // A new operation; returns its number. The thread that drives the rank's operations.
  uint64_t begin(const OperationNote& note) {
    return begin(packWhat(note), note.count, note.sequence);
  }
  // The same with what packWhat() has made of the note, which calls of one shape share.
  uint64_t begin(uint64_t what, uint64_t count, uint64_t sequence) {
    const uint64_t number = ++last_;
    Entry& entry = page_->entries[number % kHistory];
    entry.number.store(0, std::memory_order_relaxed);
    entry.count.store(count, std::memory_order_release);
    entry.what.store(what, std::memory_order_release);
    entry.sequence.store(sequence, std::memory_order_release);
    if (keepsTimes_) [[unlikely]]
      noteBeginning(number);
    entry.number.store(number, std::memory_order_release);
    page_->lastNumber.store(number, std::memory_order_release);
    return number;
  }
  void end(uint64_t number, EntryState state) {
    Entry& entry = page_->entries[number % kHistory];
    if (entry.number.load(std::memory_order_relaxed) != number) return;
    if (keepsTimes_) [[unlikely]]
      noteEnd(number);
    const uint64_t what = entry.what.load(std::memory_order_relaxed) & ~(uint64_t{0xff} << 24);
    entry.what.store(what | uint64_t{static_cast<uint8_t>(state)} << 24, std::memory_order_release);
  }

  // What the rank has been waiting for, long. Same thread as begin().
  void publishWaits(const WaitNote* waits, size_t count);
  void clearWaits() {
    if (!hasWaits_) return;
    publishWaits(nullptr, 0);
  }

  // As the board's.
  bool giveVerdict(const Verdict& verdict);

  // Any thread. Later states win over earlier ones.
  void setLife(Life life);

 private:
  void noteBeginning(uint64_t number);
  void noteEnd(uint64_t number);

  Board board_;
  const int32_t rank_;
  Page* page_;
  ProcessRecorders& siblings_;
  const bool keepsTimes_;
  uint64_t last_ = 0;      // driving thread only
  bool hasWaits_ = false;  // driving thread only
};

}  // namespace tutti::observe
