// The memory of ncclMemAlloc on the host: sealed segments, so that other processes can map it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/fd.h"
#include "base/mapping.h"
#include "base/status.h"
#include "device/host/cpu_nodes.h"
#include "device/shared_memory.h"

namespace tutti::device::host {

// Each allocation is a segment of its own, with an open descriptor. Where a segment cannot be had
// (descriptors run short, a sandbox forbids it) it is private memory instead, which works the same
// but is copied.
class SharedAllocations final : public SharedMemory {
 public:
  // Memory comes to lie on the node that the allocating thread is bound to: a peer may well be the
  // first that writes there, as results in place are.
  explicit SharedAllocations(const CpuNodes& nodes) : nodes_(nodes) {}

  // Page-aligned and zeroed. kInvalidArgument for 0 bytes or more than there are addresses.
  Result<void*> allocate(size_t bytes);
  // The pages are given back at once, also while peers have them mapped or somebody holds them.
  Status free(void* memory);

  wire::SharedSegment allocateOwn(size_t bytes) override;
  void freeOwn(const wire::SharedSegment& segment) override;
  wire::SharedSegment find(const void* memory, size_t bytes) override;
  wire::SharedSegment hold(const void* memory, size_t bytes) override;
  void drop(const wire::SharedSegment& segment) override;
  uint64_t generation() const override { return generation_.load(std::memory_order_acquire); }
  UniqueFd open(const wire::SegmentToken& token) override;

 private:
  struct Allocation {
    UniqueMapping memory;
    UniqueFd fd;  // empty: private memory
    wire::SharedSegment segment;
    bool wasOpened = false;
    bool isOwn = false;
    size_t holders = 0;
  };
  using Allocations = std::map<const void*, Allocation>;
  wire::SharedSegment findLocked(const void* memory, size_t bytes);
  bool tryShare(Allocation& allocation, size_t bytes);
  Allocation take(Allocations::iterator found);
  static void giveBackPages(const Allocation& allocation);

  const CpuNodes& nodes_;

  // Changed under mutex_ with release, after the table.
  std::atomic<uint64_t> generation_{0};

  std::mutex mutex_;  // guards the rest
  Allocations allocations_;
  std::map<uint64_t, Allocation> freed_;  // by serial: those that somebody holds
  uint64_t lastSerial_ = 0;
  size_t segmentCount_ = 0;
};

}  // namespace tutti::device::host
