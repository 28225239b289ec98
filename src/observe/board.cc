#include "observe/board.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/char_field.h"
#include "base/mapping.h"
#include "base/segment.h"

namespace tutti::observe {
namespace {

constexpr uint64_t kMagic = 0x647261'6f62'7474;  // "ttboard"
constexpr uint32_t kVersion = 4;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr size_t kPageBytes = 4096;

size_t boardBytes(uint32_t rankCount) { return kPageBytes * (1 + size_t{rankCount}); }

}  // namespace

Result<Board> Board::create(int32_t rankCount, std::string_view name, int64_t timeoutNanoseconds) {
  const auto ranks = static_cast<uint32_t>(rankCount);
  UniqueFd fd(::memfd_create(kBoardName.data(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return systemError("memfd_create", "for the ranks' board", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(boardBytes(ranks))) != 0)
    return systemError("ftruncate", "of the ranks' board", errno);
  // Every rank writes its page at once.
  TUTTI_TRY(reserveSegment(fd, boardBytes(ranks),
                           {.name = kBoardName.data(),
                            .what = "the ranks' board",
                            .instead = "a smaller number of ranks on this host"}));
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return systemError("fcntl", "to seal the ranks' board", errno);
  TUTTI_TRY_ASSIGN(Board board, map(std::move(fd), PROT_READ | PROT_WRITE));
  Header& header = board.header();
  header.magic = kMagic;
  header.version = kVersion;
  header.rankCount = ranks;
  header.timeoutNanoseconds = timeoutNanoseconds;
  setText(header.name, name);
  return board;
}

Result<Board> Board::createPrivate(int32_t rankCount) {
  const size_t bytes = boardBytes(static_cast<uint32_t>(rankCount));
  Board board;
  TUTTI_TRY_ASSIGN(board.memory_, mapPrivate(bytes, "of a board"));
  board.header().rankCount = static_cast<uint32_t>(rankCount);
  return board;
}

Result<Board> Board::map(UniqueFd fd, int protection) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return systemError("fstat", "of the ranks' board", errno);
  const auto bytes = static_cast<size_t>(info.st_size);
  Board board;
  board.memory_ = UniqueMapping(::mmap(nullptr, bytes, protection, MAP_SHARED, fd.get(), 0), bytes);
  if (!board.memory_) return systemError("mmap", "of the ranks' board", errno);
  board.fd_ = std::move(fd);
  return board;
}

Result<Board> Board::open(UniqueFd fd) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  struct stat info {};
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(fd.get(), &info) != 0 ||
      info.st_uid != ::geteuid() || info.st_size < static_cast<off_t>(kPageBytes)) {
    return remoteError("the ranks' board is not sealed memory of this user");
  }
  TUTTI_TRY_ASSIGN(Board board, map(std::move(fd), PROT_READ | PROT_WRITE));
  const Header& header = board.header();
  if (header.magic != kMagic || header.version != kVersion || header.rankCount > kMaxRanks ||
      board.memory_.bytes() != boardBytes(header.rankCount)) {
    return remoteError("the ranks' board is of version {} for {} ranks in {} bytes; wanted {}",
                       header.version, header.rankCount, board.memory_.bytes(), kVersion);
  }
  return board;
}

Result<Board> Board::openReadOnly(UniqueFd fd) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  struct stat info {};
  const bool isSealed = seals >= 0 && (seals & kSeals) == kSeals;
  if (!isSealed || ::fstat(fd.get(), &info) != 0 || info.st_size < static_cast<off_t>(kPageBytes))
    return Status(Code::kRemoteError, "no board: the memory is not sealed");
  TUTTI_TRY_ASSIGN(Board board, map(std::move(fd), PROT_READ));
  const Header& header = board.header();
  if (header.magic != kMagic || header.version != kVersion || header.rankCount > kMaxRanks ||
      board.memory_.bytes() != boardBytes(header.rankCount))
    return Status(Code::kRemoteError, "no board, or one of another version of the library");
  return board;
}

std::string Board::name() const { return textOf(header().name); }

Page& Board::page(int32_t rank) const {
  auto* bytes = static_cast<std::byte*>(memory_.get());
  return *reinterpret_cast<Page*>(bytes + kPageBytes * (1 + static_cast<size_t>(rank)));
}

void Board::place(int32_t rank, std::string_view hostName, const ProcessIdentity& process) {
  Page& page = this->page(rank);
  page.processId = process.processId;
  page.processStart = process.start;
  page.pidNamespace = process.pidNamespace;
  setText(page.hostName, hostName);
}

void Board::placeElsewhere(int32_t rank, std::string_view hostName, int32_t processId) {
  place(rank, hostName, {.processId = processId});
  page(rank).life.store(static_cast<uint32_t>(Life::kElsewhere), std::memory_order_release);
}

bool Board::giveVerdict(const Verdict& verdict) {
  Header& header = this->header();
  uint32_t none = 0;
  if (!header.verdictState.compare_exchange_strong(none, 1, std::memory_order_acq_rel))
    return false;
  header.guilty.store(verdict.guilty, std::memory_order_relaxed);
  setText(header.verdict, verdict.text);
  header.verdictState.store(2 + static_cast<uint32_t>(verdict.code), std::memory_order_release);
  return true;
}

Verdict Board::verdict() const {
  const uint32_t state = header().verdictState.load(std::memory_order_acquire);
  if (state < 2) return {};
  const uint32_t code = state - 2;
  return {.code = code <= static_cast<uint32_t>(Code::kRemoteError) ? static_cast<Code>(code)
                                                                    : Code::kRemoteError,
          .guilty = header().guilty.load(std::memory_order_relaxed),
          .text = textOf(header().verdict)};
}

}  // namespace tutti::observe
