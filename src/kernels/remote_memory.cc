#include "kernels/remote_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/copy_memory.h"
#include "base/units.h"

namespace tutti::kernels {

Status readProcess(int32_t processId, const void* address, void* to, size_t bytes) {
  auto* from = static_cast<const std::byte*>(address);
  auto* into = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const iovec local{.iov_base = into, .iov_len = bytes};
    const iovec remote{.iov_base = const_cast<std::byte*>(from), .iov_len = bytes};
    const ssize_t done = ::process_vm_readv(processId, &local, 1, &remote, 1, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      return remoteError(
          "cannot read {} bytes of process {}: {}; TUTTI_PROCESS_READ=0 does without", bytes,
          processId, done == 0 ? "nothing there" : std::strerror(errno));
    }
    from += done;
    into += done;
    bytes -= static_cast<size_t>(done);
  }
  return {};
}

Status writeProcess(int32_t processId, const void* from, void* to, size_t bytes) {
  auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const iovec local{.iov_base = const_cast<std::byte*>(source), .iov_len = bytes};
    const iovec remote{.iov_base = target, .iov_len = bytes};
    const ssize_t done = ::process_vm_writev(processId, &local, 1, &remote, 1, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return Status(Code::kRemoteError, "cannot write to the process");
    source += done;
    target += done;
    bytes -= static_cast<size_t>(done);
  }
  return {};
}

bool doesReadFast() {
  static const bool isFast = [] {
    constexpr size_t kBytes = 128_KiB;
    constexpr int kTries = 5;
    std::vector<std::byte> memory(2 * kBytes + kAliasBytes, std::byte{1});
    const std::byte* from = memory.data();
    std::byte* to = placeAlike(memory.data() + kBytes, from);
    Clock& clock = steadyClock();
    Nanoseconds reading = Nanoseconds::max();
    Nanoseconds copying = Nanoseconds::max();
    for (int i = 0; i < kTries; ++i) {
      const Instant began = clock.now();
      if (!readProcess(::getpid(), from, to, kBytes).ok()) return false;
      const Instant between = clock.now();
      copyMemory(to, from, kBytes);
      reading = std::min(reading, between - began);
      copying = std::min(copying, clock.now() - between);
    }
    return reading < 3 * copying;
  }();
  return isFast;
}

bool canReadProcess(int32_t processId, const uint64_t* address, uint64_t expected) {
  uint64_t value = ~expected;
  const iovec local{.iov_base = &value, .iov_len = sizeof value};
  const iovec remote{.iov_base = const_cast<uint64_t*>(address), .iov_len = sizeof value};
  return ::process_vm_readv(processId, &local, 1, &remote, 1, 0) == sizeof value &&
         value == expected;
}

}  // namespace tutti::kernels
