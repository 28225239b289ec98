// Device memory through the driver's virtual memory calls: the only kind that other processes can
// map from a file descriptor and other devices can be let into one by one.
#pragma once

#include <memory>

#include "device/accelerator.h"
#include "device/cuda/driver.h"

namespace tutti::device::cuda {

struct MemoryOwner {
  const Driver& driver;  // lives as long as the process
  Context context;
  DeviceNumber device;
};

// Rounded up to the device's granularity; contents undefined.
Result<std::unique_ptr<DeviceMemory>> createMemory(const MemoryOwner& owner, size_t bytes);
Result<std::unique_ptr<DeviceMemory>> mapMemory(const MemoryOwner& owner, UniqueFd handle,
                                                size_t bytes);
// What cudaMalloc gave in another process.
Result<std::unique_ptr<DeviceMemory>> openLegacy(const MemoryOwner& owner, const IpcHandle& handle,
                                                 size_t bytes);
// A descriptor of memory that cuMemCreate made; kInvalidUsage, not logged, unless it was made for
// that.
Result<UniqueFd> exportMapped(const Driver& driver, const void* address);
// Lets `device` read and write the memory.
Status allowAccess(const Driver& driver, DeviceNumber device, const DeviceMemory& memory);

Result<std::unique_ptr<SharedWords>> createWords(const MemoryOwner& owner, size_t bytes);

}  // namespace tutti::device::cuda
