// Memory that an adapter knows, by whole pages and shared: all lanes over an adapter that move the
// same ring's bytes use one registration, which ends with its last user. Nothing is kept beyond
// that: pages may come to hold something else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "net/gpu_memory.h"
#include "net/verbs/library.h"

namespace tutti::net::verbs {

// Thread-safe.
class Registrations {
 public:
  struct Options {
    const Library& library;      // outlives this
    ::ibv_pd* domain;            // likewise
    std::string adapter;         // its name, for messages
    bool isRelaxed = false;      // its writes may pass each other on the way to memory
    bool hasPeerMemory = false;  // the kernel finds a GPU's memory by its address
  };
  explicit Registrations(Options options);

  Result<::ibv_mr*> acquire(std::span<std::byte> memory);
  void release(::ibv_mr* region);
  // Of a GPU's memory, which the adapter may read, too, so that flushes work; by its descriptor
  // where that can be, else by its address. Ordered.
  Result<Owned<::ibv_mr>> registerGpu(const GpuRegion& region) const;
  // Whether it takes descriptors at all; asked of the adapter's driver.
  bool takesDmaBuffers() const;
  bool takesGpuMemory() const { return options_.hasPeerMemory; }
  // A registration of its own, of these bytes, whose writes keep their order.
  Result<Owned<::ibv_mr>> registerOrdered(std::span<std::byte> memory) const;

 private:
  struct Entry {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    size_t userCount = 0;
    Owned<::ibv_mr> region;
  };
  Result<Owned<::ibv_mr>> registerPages(uintptr_t begin, size_t bytes) const;

  const Options options_;
  const uintptr_t pageBytes_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // under mutex_; few, and looked for at set-up only
};

}  // namespace tutti::net::verbs
