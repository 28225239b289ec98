// Board: one page a rank, in memory that all ranks of a communicator on this host share, where each
// rank writes what it does and what it waits for. Peers read it to find out why a rank is late;
// `tutti why` reads it from outside, also after the writer has died: any survivor keeps it mapped.
//
// Nobody ever waits for a board, and nothing read from it is trusted with more than the text of a
// message: every number is checked before it is used as an index.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/mapping.h"
#include "base/status.h"
#include "observe/process_state.h"

namespace tutti::observe {

// The operations kept a rank; the newest overwrites the oldest. A power of two.
inline constexpr size_t kHistory = 64;
inline constexpr size_t kMaxWaits = 8;
inline constexpr size_t kVerdictBytes = 2048;
inline constexpr uint32_t kMaxRanks = 1u << 20;

enum class Life : uint32_t {
  kAbsent = 0,  // the rank has not come this far
  kReady = 1,
  kFinalized = 2,
  kDestroyed = 3,
  kAborted = 4,
  kExited = 5,     // its process has called exit()
  kElsewhere = 6,  // of another host: it never writes here, who made the board has named it, and
                   // what it tells ranks of this host they keep here (told_page.h)
};

// One operation, 32 bytes. A reader may come while the entry is being overwritten: `number` is zero
// then, and it reads `number` before and after the rest, all with acquire, against the writer's
// releases. Written by the thread that drives the rank's operation.
struct Entry {
  std::atomic<uint64_t> number;  // 1 + which operation of this rank it is; 0: none, or in the
                                 // making
  std::atomic<uint64_t> count;   // elements, as the call counts them
  // From the lowest byte: collective, type, op, state; then the peer or root in 32 bits.
  std::atomic<uint64_t> what;
  std::atomic<uint64_t> sequence;  // of collectives: 1 + how many came before on the communicator
};
static_assert(sizeof(Entry) == 32);

// When the operation of the entry at the same place began and ended, in nanoseconds of the
// monotonic clock; 0: nobody looked at the clock, or not yet. Same protocol, by the entry's number.
struct EntryTimes {
  std::atomic<int64_t> began;
  std::atomic<int64_t> ended;
};

// What a rank waits for, published only when it has waited for long. Same protocol as an entry:
// `since` is zero while the slot is empty or being written.
struct WaitSlot {
  std::atomic<int64_t> since;      // nanoseconds of the monotonic clock; 0: none
  std::atomic<uint64_t> whom;      // low half: the peer; then a byte of Direction
  std::atomic<uint64_t> progress;  // low half: step of the program; high half: piece of the vector
  std::atomic<uint64_t> number;    // of the operation, as Entry::number
};

struct Page {
  // Written before `life` is set with release; read after it was read with acquire. Who makes the
  // board names the process of each rank, before that has come.
  int32_t processId;
  int32_t threadId;
  uint64_t processStart;  // ticks since boot, as /proc/<pid>/stat has it: tells a reused pid apart
  uint64_t pidNamespace;  // pids of another namespace mean nothing here
  std::array<char, 64> hostName;  // zero-terminated

  std::atomic<uint32_t> life;  // Life
  // Of kElsewhere, whose page has several writers. 1 while there is one, else 0: acquire and
  // release.
  std::atomic<uint32_t> isBeingTold;
  std::atomic<int64_t> toldAt;  // nanoseconds of the monotonic clock; 0: nothing told yet
  alignas(64) std::atomic<uint64_t> longCalls;   // launch/block_accord.h
  alignas(64) std::atomic<uint64_t> lastNumber;  // the newest entry's number; written with release
  alignas(64) std::array<WaitSlot, kMaxWaits> waits;
  alignas(64) std::array<Entry, kHistory> entries;
  std::array<EntryTimes, kHistory> times;
};
static_assert(sizeof(Page) <= 4096);

struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t rankCount;
  std::array<char, 64> name;  // the communicator's, or its job's; zero-terminated
  int64_t timeoutNanoseconds;
  // The first verdict stays. 0: none; 1: being written by whoever changed it from 0; 2 + code:
  // `verdict` and `guilty` may be read. Set with release, read with acquire.
  std::atomic<uint32_t> verdictState;
  std::atomic<int32_t> guilty;  // a rank, or -1
  std::array<char, kVerdictBytes> verdict;
  alignas(64) std::atomic<uint64_t> accord;  // launch/block_accord.h
};
static_assert(sizeof(Header) <= 4096);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

struct Verdict {
  Code code = Code::kOk;
  int32_t guilty = -1;
  std::string text;
};

class Board {
 public:
  // Sealed memory without a name in any file system; /proc/<pid>/maps shows
  // "memfd:tutti-rank-board".
  static Result<Board> create(int32_t rankCount, std::string_view name, int64_t timeoutNanoseconds);
  // Memory that another process made. kRemoteError unless it is sealed, this user's and a board.
  static Result<Board> open(UniqueFd fd);
  // Memory of this process alone, for a rank that can share none.
  static Result<Board> createPrivate(int32_t rankCount);
  // For a reader that must not write.
  static Result<Board> openReadOnly(UniqueFd fd);

  int32_t rankCount() const { return static_cast<int32_t>(header().rankCount); }
  std::string name() const;
  int64_t timeoutNanoseconds() const { return header().timeoutNanoseconds; }
  int fd() const { return fd_.get(); }
  void closeFd() { fd_.reset(); }  // the mapping stays

  // rank: 0 to rankCount() - 1.
  Page& page(int32_t rank) const;
  // A rank of this host that is to come, or one of another, whose page only says so. Before others
  // open the board.
  void place(int32_t rank, std::string_view hostName, const ProcessIdentity& process);
  void placeElsewhere(int32_t rank, std::string_view hostName, int32_t processId);

  // Keeps the first verdict for all ranks; false when there is one.
  bool giveVerdict(const Verdict& verdict);
  bool hasVerdict() const { return header().verdictState.load(std::memory_order_acquire) > 1; }
  Verdict verdict() const;

  std::atomic<uint64_t>& accord() { return header().accord; }

 private:
  static Result<Board> map(UniqueFd fd, int protection);
  Header& header() const { return *static_cast<Header*>(memory_.get()); }

  UniqueFd fd_;
  UniqueMapping memory_;
};

inline constexpr std::string_view kBoardName = "tutti-rank-board";

}  // namespace tutti::observe
