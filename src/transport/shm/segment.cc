#include "transport/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti::transport::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Growing a file beyond this limit would be answered by a signal that ends the process.
Status checkFileSizeLimit(size_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur >= bytes)
    return {};
  return makeError(
      Code::kSystemError,
      fmt::format("a shared-memory link needs {} bytes, the limit on file size is {} (ulimit -f)",
                  bytes, limit.rlim_cur));
}

Result<UniqueMapping> mapShared(const UniqueFd& fd, size_t bytes) {
  UniqueMapping memory(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0),
                       bytes);
  if (!memory)
    return systemError("mmap", fmt::format("of a shared link of {} bytes", bytes), errno);
  return memory;
}

}  // namespace

Result<Segment> createSegment(size_t bytes) {
  TUTTI_TRY(checkFileSizeLimit(bytes));
  UniqueFd fd(::memfd_create("tutti-link", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) {
    return systemError(
        "memfd_create",
        "for a shared-memory link (a sandbox may forbid it; NCCL_SHM_DISABLE=1 does without)",
        errno);
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return systemError("ftruncate", fmt::format("of a shared link to {} bytes", bytes), errno);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return systemError("fcntl", "to seal a shared link", errno);
  TUTTI_TRY_ASSIGN(UniqueMapping memory, mapShared(fd, bytes));
  return Segment{.memory = std::move(memory), .fd = std::move(fd)};
}

Result<UniqueMapping> mapSegment(const UniqueFd& fd, size_t bytes) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return remoteError(
        "the peer's link memory is not sealed (seals {:#x}, wanted {:#x}): it could be truncated "
        "under us",
        seals, kSeals);
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0)
    return systemError("fstat", "of the peer's link memory", errno);
  if (info.st_uid != ::geteuid()) {
    return remoteError("the peer's link memory belongs to user {}, not to {}", info.st_uid,
                       ::geteuid());
  }
  if (info.st_size < 0 || static_cast<size_t>(info.st_size) != bytes) {
    return remoteError("the peer's link memory has {} bytes, wanted {}: their settings differ",
                       info.st_size, bytes);
  }
  return mapShared(fd, bytes);
}

}  // namespace tutti::transport::shm
