#include "base/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Growing a file beyond this limit would be answered by a signal that ends the process.
Status checkFileSizeLimit(size_t bytes, std::string_view what) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur >= bytes)
    return {};
  return makeError(Code::kSystemError,
                   fmt::format("{} needs {} bytes, the limit on file size is {} (ulimit -f)", what,
                               bytes, limit.rlim_cur));
}

// vm.overcommit_memory is 2: the kernel promises no memory that it does not have.
bool isCommitStrict() {
  const UniqueFd fd(::open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC));
  char mode = 0;
  return fd && ::read(fd.get(), &mode, 1) == 1 && mode == '2';
}

Result<UniqueMapping> mapShared(const UniqueFd& fd, size_t bytes, SegmentAccess access) {
  const int protection = access == SegmentAccess::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  UniqueMapping memory(::mmap(nullptr, bytes, protection, MAP_SHARED, fd.get(), 0), bytes);
  if (!memory)
    return systemError("mmap", fmt::format("of {} bytes of shared memory", bytes), errno);
  return memory;
}

}  // namespace

Status reserveSegment(const UniqueFd& fd, size_t bytes, const SegmentPurpose& purpose) {
  int failure = 0;
  do {
    failure = ::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (failure == EINTR);
  if (failure == 0 || failure == ENOSYS || failure == EOPNOTSUPP) return {};
  return systemError("fallocate",
                     fmt::format("of {} bytes for {}: the machine has no more memory to promise "
                                 "(CommitLimit in /proc/meminfo); {} helps",
                                 bytes, purpose.what, purpose.instead),
                     failure);
}

Result<Segment> createSegment(size_t bytes, const SegmentPurpose& purpose) {
  TUTTI_TRY(checkFileSizeLimit(bytes, purpose.what));
  UniqueFd fd(::memfd_create(purpose.name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) {
    return systemError("memfd_create",
                       fmt::format("for {} (a sandbox may forbid it; {} does without)",
                                   purpose.what, purpose.instead),
                       errno);
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return systemError("ftruncate", fmt::format("of {} to {} bytes", purpose.what, bytes), errno);
  if (isCommitStrict()) TUTTI_TRY(reserveSegment(fd, bytes, purpose));
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return systemError("fcntl", fmt::format("to seal {}", purpose.what), errno);
  TUTTI_TRY_ASSIGN(UniqueMapping memory, mapShared(fd, bytes, SegmentAccess::kReadWrite));
  return Segment{.memory = std::move(memory), .fd = std::move(fd)};
}

Result<UniqueMapping> mapSegment(const UniqueFd& fd, size_t bytes, SegmentAccess access) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return remoteError(
        "the peer's shared memory is not sealed (seals {:#x}, wanted {:#x}): it could be truncated "
        "under us",
        seals, kSeals);
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0)
    return systemError("fstat", "of the peer's shared memory", errno);
  if (info.st_uid != ::geteuid()) {
    return remoteError("the peer's shared memory belongs to user {}, not to {}", info.st_uid,
                       ::geteuid());
  }
  if (info.st_size < 0 || static_cast<size_t>(info.st_size) != bytes) {
    return remoteError("the peer's shared memory has {} bytes, wanted {}: their settings differ",
                       info.st_size, bytes);
  }
  return mapShared(fd, bytes, access);
}

}  // namespace tutti
