#include "device/registry.h"

#include "device/cuda/cuda_device.h"
#include "device/cuda/driver.h"
#include "device/host/host_device.h"
#include "device/virtual/virtual_device.h"

namespace tutti::device {
namespace {

// Loaded at first need; the driver's own state is one a process, and never goes away.
const Result<cuda::Driver>& driver() {
  static const Result<cuda::Driver> loaded = cuda::loadDriver();
  return loaded;
}

}  // namespace

Result<std::unique_ptr<Device>> openDevice(DeviceKind kind, const DeviceOptions& options) {
  std::unique_ptr<Device> device;
  switch (kind) {
    case DeviceKind::kHost: device = std::make_unique<host::HostDevice>(*options.clock); break;
    case DeviceKind::kCuda: {
      if (!driver().ok()) return driver().status().clone();
      TUTTI_TRY_ASSIGN(device, cuda::CudaDevice::open(driver().value(), options.index));
      break;
    }
    case DeviceKind::kVirtual: device = std::make_unique<virt::VirtualDevice>(options.index); break;
  }
  return device;
}

Result<int32_t> countGpus() {
  if (!driver().ok()) return driver().status().clone();
  TUTTI_TRY_ASSIGN(const int32_t count, cuda::deviceCount(driver().value()));
  if (count == 0) return Status(Code::kInvalidUsage, "the CUDA driver finds no GPU");
  return count;
}

Result<std::vector<GpuFacts>> describeGpus() {
  TUTTI_TRY_ASSIGN(const int32_t count, countGpus());
  std::vector<GpuFacts> gpus;
  for (int32_t index = 0; index < count; ++index) {
    TUTTI_TRY_ASSIGN(cuda::DeviceFacts facts, cuda::factsOf(driver().value(), index));
    gpus.push_back({.name = std::move(facts.name),
                    .busId = std::move(facts.busId),
                    .capability = facts.capability});
  }
  return gpus;
}

Result<int32_t> currentGpu() {
  if (!driver().ok()) return driver().status().clone();
  return cuda::currentDevice(driver().value());
}

}  // namespace tutti::device
