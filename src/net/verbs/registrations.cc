#include "net/verbs/registrations.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tutti::net::verbs {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

Status refusal(int error, const std::string& adapter, size_t bytes) {
  Status status = check(error, "ibv_reg_mr", fmt::format("{} bytes for {}", bytes, adapter));
  if (error != ENOMEM && error != EPERM && error != EAGAIN) return status;
  return Status(status.code(), fmt::format("{}; memory for adapters counts against the limit of "
                                           "locked memory (ulimit -l)",
                                           status.message()));
}

}  // namespace

Registrations::Registrations(Options options)
    : options_(std::move(options)), pageBytes_(static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE))) {}

Result<::ibv_mr*> Registrations::acquire(std::span<std::byte> memory) {
  const auto first = reinterpret_cast<uintptr_t>(memory.data());
  const uintptr_t begin = first & ~(pageBytes_ - 1);
  const uintptr_t end = (first + memory.size() + pageBytes_ - 1) & ~(pageBytes_ - 1);
  std::lock_guard lock(mutex_);
  const auto known = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.begin <= begin && end <= entry.end; });
  if (known != entries_.end()) {
    ++known->userCount;
    return known->region.get();
  }
  TUTTI_TRY_ASSIGN(Owned<::ibv_mr> region, registerPages(begin, end - begin));
  ::ibv_mr* const result = region.get();
  entries_.push_back({.begin = begin, .end = end, .userCount = 1, .region = std::move(region)});
  return result;
}

void Registrations::release(::ibv_mr* region) {
  std::lock_guard lock(mutex_);
  const auto known = std::ranges::find_if(
      entries_, [region](const Entry& entry) { return entry.region.get() == region; });
  if (known != entries_.end() && --known->userCount == 0) entries_.erase(known);
}

Result<Owned<::ibv_mr>> Registrations::registerPages(uintptr_t begin, size_t bytes) const {
  void* const data = reinterpret_cast<void*>(begin);
  ::ibv_mr* region = options_.isRelaxed
                         ? options_.library.registerRelaxed(options_.domain, data, bytes, begin,
                                                            kAccess | IBV_ACCESS_RELAXED_ORDERING)
                         : options_.library.registerMemory(options_.domain, data, bytes, kAccess);
  if (region == nullptr) return refusal(errno, options_.adapter, bytes);
  return Owned<::ibv_mr>(region, {options_.library.deregisterMemory});
}

Result<Owned<::ibv_mr>> Registrations::registerGpu(const GpuRegion& region) const {
  constexpr int kGpuAccess = kAccess | IBV_ACCESS_REMOTE_READ;
  void* const data = region.bytes.data();
  ::ibv_mr* known = nullptr;
  int error = EOPNOTSUPP;
  if (region.dmaBuffer >= 0 && options_.library.registerDmaBuffer != nullptr) {
    known = options_.library.registerDmaBuffer(options_.domain, 0, region.bytes.size(),
                                               reinterpret_cast<uintptr_t>(data), region.dmaBuffer,
                                               kGpuAccess);
    error = errno;
  }
  if (known == nullptr && options_.hasPeerMemory) {
    known = options_.library.registerMemory(options_.domain, data, region.bytes.size(), kGpuAccess);
    error = errno;
  }
  if (known == nullptr) {
    return check(error, "registration of a GPU's memory",
                 fmt::format("{} bytes for {}", region.bytes.size(), options_.adapter));
  }
  return Owned<::ibv_mr>(known, {options_.library.deregisterMemory});
}

// A driver that could says that the descriptor is none.
bool Registrations::takesDmaBuffers() const {
  if (options_.library.registerDmaBuffer == nullptr) return false;
  ::ibv_mr* none = options_.library.registerDmaBuffer(options_.domain, 0, 0, 0, -1, 0);
  if (none == nullptr) return errno != EOPNOTSUPP && errno != EPROTONOSUPPORT;
  options_.library.deregisterMemory(none);
  return true;
}

Result<Owned<::ibv_mr>> Registrations::registerOrdered(std::span<std::byte> memory) const {
  ::ibv_mr* region =
      options_.library.registerMemory(options_.domain, memory.data(), memory.size(), kAccess);
  if (region == nullptr) return refusal(errno, options_.adapter, memory.size());
  return Owned<::ibv_mr>(region, {options_.library.deregisterMemory});
}

}  // namespace tutti::net::verbs
