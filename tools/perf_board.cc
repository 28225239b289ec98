#include "tools/perf_board.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/affinity.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/units.h"

namespace tutti::tools {
namespace {

constexpr uint32_t kReady = 0x7475f00d;
constexpr size_t kReasonBytes = 256;

struct alignas(64) Slot {
  // Relaxed: the barrier orders it, but partly through other processes, where a race detector does
  // not look.
  std::atomic<double> value;
};

void sleepMilliseconds(long milliseconds) {
  const timespec span{.tv_sec = 0, .tv_nsec = milliseconds * 1'000'000};
  ::nanosleep(&span, nullptr);
}

// Sleeps while `word` is `seen`, at most 100 ms, so that a failure is noticed even if its wake-up
// was for another value.
void sleepWhile(std::atomic<uint32_t>& word, uint32_t seen) {
  const timespec span{.tv_sec = 0, .tv_nsec = 100'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &span, nullptr, 0);
}

void wakeAll(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void pauseCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

struct Board::Layout {
  std::atomic<uint32_t> ready;  // kReady once a named board may be used
  std::atomic<int32_t> creatorPid;
  std::atomic<uint32_t> attached;

  // The barrier. The last rank to arrive empties `arrived` and then raises `round` (release), on
  // which the others wait (acquire): what a rank wrote before arriving is seen by all after it. It
  // wraps harmlessly: a waiter compares with the one value that it saw before it arrived.
  alignas(64) std::atomic<uint32_t> arrived;
  alignas(64) std::atomic<uint32_t> round;
  alignas(64) std::atomic<uint32_t> failed;  // 0 fine, 1 reason being written, 2 reason there
  char reason[kReasonBytes];                 // this and the code: once failed is 2
  int32_t exitCode;
  unsigned char id[kIdBytes];
  Slot slots[1];  // rankCount of them
};

size_t Board::bytesFor(int rankCount) {
  return roundUp(sizeof(Layout) + static_cast<size_t>(rankCount) * sizeof(Slot), 4096);
}

Board::Board(Layout* layout, size_t bytes, int rankCount)
    : layout_(layout), bytes_(bytes), rankCount_(rankCount) {
  constexpr int kManySpins = 20'000;  // about 0.1 ms
  spins_ = rankCount <= usableCpuCount() ? kManySpins : 0;
}

Board::~Board() { ::munmap(layout_, bytes_); }

Result<std::unique_ptr<Board>> Board::makeAnonymous(int rankCount) {
  const size_t bytes = bytesFor(rankCount);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return systemError("mmap", "the ranks' shared memory", errno);
  return std::unique_ptr<Board>(new Board(static_cast<Layout*>(memory), bytes, rankCount));
}

namespace {

// False: not there yet, or not usable yet; the caller tries again.
Result<bool> tryOpenExisting(const std::string& path, size_t bytes, UniqueFd& fd) {
  UniqueFd opened(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!opened && errno == ENOENT) return false;
  if (!opened) return systemError("open", path, errno);
  struct stat status {};
  if (::fstat(opened.get(), &status) != 0) return systemError("fstat", path, errno);
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0) {
    return makeError(
        Code::kSystemError,
        fmt::format("{} is not a private file of user {} (owner {}, mode {:o}): remove "
                    "it, or set XDG_RUNTIME_DIR to a directory of your own",
                    path, ::geteuid(), status.st_uid, status.st_mode & 07777));
  }
  if (static_cast<size_t>(status.st_size) != bytes) return false;
  fd = std::move(opened);
  return true;
}

Result<void*> mapFile(const UniqueFd& fd, const std::string& path, size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return systemError("mmap", path, errno);
  return memory;
}

struct RemoveAtEnd {
  const std::string& path;
  ~RemoveAtEnd() { ::unlink(path.c_str()); }
};

bool isAlive(int32_t pid) { return pid > 0 && (::kill(pid, 0) == 0 || errno == EPERM); }

}  // namespace

Result<std::unique_ptr<Board>> Board::create(const Rendezvous& rendezvous, int rankCount) {
  const std::string& path = rendezvous.path;
  const size_t bytes = bytesFor(rankCount);
  ::unlink(path.c_str());  // left by a run that was killed: the name says this job and user
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd)
    return systemError(
        "create", path + ", where ranks of this host meet (XDG_RUNTIME_DIR names another folder)",
        errno);
  const RemoveAtEnd remover{path};
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return systemError("ftruncate", path, errno);
  }
  TUTTI_TRY_ASSIGN(void* memory, mapFile(fd, path, bytes));
  std::unique_ptr<Board> board(new Board(static_cast<Layout*>(memory), bytes, rankCount));
  Layout& layout = *board->layout_;
  layout.creatorPid.store(::getpid(), std::memory_order_relaxed);
  layout.attached.store(1, std::memory_order_relaxed);
  layout.ready.store(kReady, std::memory_order_release);
  const Instant deadline = steadyClock().now() + std::chrono::seconds(rendezvous.timeoutSeconds);
  for (;;) {
    const uint32_t attached = layout.attached.load(std::memory_order_acquire);
    if (attached == static_cast<uint32_t>(rendezvous.processCount)) return board;
    if (steadyClock().now() >= deadline) {
      return remoteError("only {} of {} processes came to {} within {} s", attached,
                         rendezvous.processCount, path, rendezvous.timeoutSeconds);
    }
    sleepMilliseconds(1);
  }
}

// Null: not there yet, or left by a creator that has died.
Result<std::unique_ptr<Board>> Board::tryAttach(const std::string& path, int rankCount) {
  const size_t bytes = bytesFor(rankCount);
  UniqueFd fd;
  TUTTI_TRY_ASSIGN(const bool isThere, tryOpenExisting(path, bytes, fd));
  if (!isThere) return std::unique_ptr<Board>();
  TUTTI_TRY_ASSIGN(void* memory, mapFile(fd, path, bytes));
  std::unique_ptr<Board> board(new Board(static_cast<Layout*>(memory), bytes, rankCount));
  Layout& layout = *board->layout_;
  if (layout.ready.load(std::memory_order_acquire) != kReady ||
      !isAlive(layout.creatorPid.load(std::memory_order_relaxed))) {
    return std::unique_ptr<Board>();
  }
  layout.attached.fetch_add(1, std::memory_order_acq_rel);
  return board;
}

Result<std::unique_ptr<Board>> Board::openNamed(const Rendezvous& rendezvous, int rankCount) {
  if (rendezvous.isCreator) return create(rendezvous, rankCount);
  const Instant deadline = steadyClock().now() + std::chrono::seconds(rendezvous.timeoutSeconds);
  for (;;) {
    TUTTI_TRY_ASSIGN(std::unique_ptr<Board> board, tryAttach(rendezvous.path, rankCount));
    if (board != nullptr) return board;
    if (steadyClock().now() >= deadline) {
      return remoteError(
          "rank 0 did not make {} within {} s: are all ranks on this host, and do they share this "
          "directory?",
          rendezvous.path, rendezvous.timeoutSeconds);
    }
    sleepMilliseconds(1);
  }
}

Status Board::barrier(int rank) {
  Layout& layout = *layout_;
  const uint32_t seen = layout.round.load(std::memory_order_acquire);
  const uint32_t before = layout.arrived.fetch_add(1, std::memory_order_acq_rel);
  if (before + 1 == static_cast<uint32_t>(rankCount_)) {
    layout.arrived.store(0, std::memory_order_relaxed);
    layout.round.fetch_add(1, std::memory_order_release);
    wakeAll(layout.round);
  }
  constexpr int kYields = 50;
  for (int attempt = 0; layout.round.load(std::memory_order_acquire) == seen; ++attempt) {
    if (hasFailed()) break;
    if (attempt < spins_) {
      pauseCpu();
    } else if (attempt < spins_ + kYields) {
      ::sched_yield();
    } else {
      sleepWhile(layout.round, seen);
    }
  }
  if (!hasFailed()) return {};
  return Status(Code::kRemoteError, fmt::format("rank {} stops: {}", rank, layout.reason));
}

Result<std::vector<double>> Board::gather(int rank, double value) {
  layout_->slots[rank].value.store(value, std::memory_order_relaxed);
  TUTTI_TRY(barrier(rank));
  std::vector<double> values;
  values.reserve(static_cast<size_t>(rankCount_));
  for (int i = 0; i < rankCount_; ++i)
    values.push_back(layout_->slots[i].value.load(std::memory_order_relaxed));
  TUTTI_TRY(barrier(rank));  // nobody writes the next value before all have read
  return values;
}

void Board::setId(const IdBytes& id) { std::memcpy(layout_->id, id.data(), id.size()); }

IdBytes Board::id() const {
  IdBytes id;
  std::memcpy(id.data(), layout_->id, id.size());
  return id;
}

bool Board::fail(int rank, std::string_view reason, int exitCode) {
  uint32_t fine = 0;
  if (!layout_->failed.compare_exchange_strong(fine, 1, std::memory_order_acq_rel)) return false;
  const std::string text = fmt::format("rank {} failed: {}", rank, reason);
  const size_t length = std::min(text.size(), kReasonBytes - 1);
  std::memcpy(layout_->reason, text.data(), length);
  layout_->reason[length] = '\0';
  layout_->exitCode = exitCode;
  layout_->failed.store(2, std::memory_order_release);
  wakeAll(layout_->round);
  return true;
}

// Once the reason is there. A rank killed while it writes one is noticed by the parent, which ends
// the others.
bool Board::hasFailed() const { return layout_->failed.load(std::memory_order_acquire) == 2; }

int Board::exitCode() const { return layout_->exitCode; }

int usableCpuCount() { return std::max(static_cast<int>(affinityCpus().size()), 1); }

}  // namespace tutti::tools
