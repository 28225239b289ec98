#include "device/host/shared_allocations.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.h"
#include "base/mapping.h"
#include "base/rng.h"
#include "base/segment.h"
#include "base/units.h"

namespace tutti::device::host {
namespace {

constexpr SegmentPurpose kPurpose{.name = "tutti-memory",
                                  .what = "shared memory of ncclMemAlloc",
                                  .instead = "private memory, used now,"};

// Descriptors are the program's first of all: segments take at most this part of what it may open.
constexpr uint64_t kDescriptorShare = 4;

bool mayOpenAnother(size_t segmentCount) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
         segmentCount < limit.rlim_cur / kDescriptorShare;
}

// In constant time, so that the time tells nothing about a token.
bool isSame(const wire::SegmentToken& a, const wire::SegmentToken& b) {
  std::byte difference{0};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

}  // namespace

bool SharedAllocations::tryShare(Allocation& allocation, size_t bytes) {
  if (!mayOpenAnother(segmentCount_)) {
    log::info(log::Subsystem::kShm,
              "{} segments of ncclMemAlloc hold a quarter of the descriptors that this process may "
              "open (ulimit -n): {} bytes of private memory instead",
              segmentCount_, bytes);
    return false;
  }
  Result<Segment> made = createSegment(bytes, kPurpose);
  if (!made.ok()) return false;
  allocation.memory = std::move(made->memory);
  allocation.fd = std::move(made->fd);
  allocation.segment = {.serial = ++lastSerial_,
                        .start = static_cast<const std::byte*>(allocation.memory.get()),
                        .bytes = bytes,
                        .token = {}};
  systemRng().fill(allocation.segment.token);
  ++segmentCount_;
  return true;
}

SharedAllocations::Allocation SharedAllocations::take(Allocations::iterator found) {
  Allocation allocation = std::move(found->second);
  allocations_.erase(found);
  if (allocation.fd) --segmentCount_;
  return allocation;
}

Result<void*> SharedAllocations::allocate(size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes == 0 || bytes > SIZE_MAX - page) {
    return invalidArgument("an allocation of {} bytes", bytes);
  }
  const size_t mapped = roundUp(bytes, page);
  std::lock_guard lock(mutex_);
  Allocation allocation;
  if (!tryShare(allocation, mapped)) {
    TUTTI_TRY_ASSIGN(allocation.memory, mapPrivate(mapped, fmt::format("of {} bytes", mapped)));
  }
  nodes_.keepNear(allocation.memory.get(), mapped);
  void* start = allocation.memory.get();
  allocations_.emplace(start, std::move(allocation));
  generation_.fetch_add(1, std::memory_order_release);
  return start;
}

Status SharedAllocations::free(void* memory) {
  Allocation allocation;  // unmapped at the end, without the lock
  {
    std::lock_guard lock(mutex_);
    const auto found = allocations_.find(memory);
    if (found == allocations_.end() || found->second.isOwn) {
      return invalidArgument("{} was not allocated here, or was freed before", memory);
    }
    allocation = take(found);
    generation_.fetch_add(1, std::memory_order_release);
    if (allocation.holders > 0) {
      giveBackPages(allocation);
      freed_.emplace(allocation.segment.serial, std::move(allocation));
      return {};
    }
  }
  if (allocation.wasOpened) giveBackPages(allocation);
  return {};
}

// Whoever maps them keeps the mapping until the place is needed; empty pages cost nothing.
void SharedAllocations::giveBackPages(const Allocation& allocation) {
  ::fallocate(allocation.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
              static_cast<off_t>(allocation.segment.bytes));
}

wire::SharedSegment SharedAllocations::allocateOwn(size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::lock_guard lock(mutex_);
  Allocation allocation;
  if (!tryShare(allocation, roundUp(bytes, page))) return {};
  nodes_.keepNear(allocation.memory.get(), allocation.segment.bytes);
  allocation.isOwn = true;
  const wire::SharedSegment segment = allocation.segment;
  allocations_.emplace(allocation.memory.get(), std::move(allocation));
  return segment;
}

void SharedAllocations::freeOwn(const wire::SharedSegment& segment) {
  Allocation allocation;  // unmapped at the end, without the lock
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(segment.start);
  if (found == allocations_.end()) return;
  allocation = take(found);
}

wire::SharedSegment SharedAllocations::find(const void* memory, size_t bytes) {
  std::lock_guard lock(mutex_);
  return findLocked(memory, bytes);
}

wire::SharedSegment SharedAllocations::hold(const void* memory, size_t bytes) {
  std::lock_guard lock(mutex_);
  const wire::SharedSegment segment = findLocked(memory, bytes);
  if (segment.serial != 0) ++allocations_.at(segment.start).holders;
  return segment;
}

void SharedAllocations::drop(const wire::SharedSegment& segment) {
  Allocation last;  // unmapped at the end, without the lock
  std::lock_guard lock(mutex_);
  const auto living = allocations_.find(segment.start);
  if (living != allocations_.end() && living->second.segment.serial == segment.serial) {
    --living->second.holders;
    return;
  }
  const auto freed = freed_.find(segment.serial);
  if (freed == freed_.end() || --freed->second.holders > 0) return;
  last = std::move(freed->second);
  freed_.erase(freed);
}

wire::SharedSegment SharedAllocations::findLocked(const void* memory, size_t bytes) {
  auto after = allocations_.upper_bound(memory);
  if (after == allocations_.begin()) return {};
  const Allocation& allocation = std::prev(after)->second;
  const wire::SharedSegment& segment = allocation.segment;
  return !allocation.isOwn && segment.contains(memory, bytes) ? segment : wire::SharedSegment{};
}

UniqueFd SharedAllocations::open(const wire::SegmentToken& token) {
  std::lock_guard lock(mutex_);
  Allocation* found = nullptr;
  for (auto& [start, allocation] : allocations_) {
    if (allocation.fd && isSame(allocation.segment.token, token)) found = &allocation;
  }
  if (found == nullptr) return UniqueFd();
  found->wasOpened = true;
  return UniqueFd(::fcntl(found->fd.get(), F_DUPFD_CLOEXEC, 0));
}

}  // namespace tutti::device::host
