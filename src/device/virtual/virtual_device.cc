#include "device/virtual/virtual_device.h"

namespace tutti::device::virt {

Result<void*> VirtualDevice::allocate(size_t bytes) {
  TUTTI_TRY_ASSIGN(UniqueMapping memory, reserve(bytes, "of a virtual rank's memory"));
  void* address = memory.get();
  const std::lock_guard lock(mutex_);
  allocations_.emplace(address, std::move(memory));
  return address;
}

Status VirtualDevice::free(void* memory) {
  const std::lock_guard lock(mutex_);
  if (allocations_.erase(memory) == 1) return {};
  return invalidArgument("{} is no memory that ncclMemAlloc gave, or it was freed before", memory);
}

Status VirtualDevice::enqueue(Stream*, std::span<Task* const> tasks) {
  return internalError("{} tasks for virtual device {}, which runs none", tasks.size(),
                       caps_.index);
}

}  // namespace tutti::device::virt
