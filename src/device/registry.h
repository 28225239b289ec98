// Opens devices by kind: the only place that names the implementations.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "device/device.h"

namespace tutti::device {

enum class DeviceKind : uint8_t { kHost, kCuda, kVirtual };

struct DeviceOptions {
  Clock* clock = &steadyClock();  // measures idle times and events; outlives the device
  int32_t index = 0;              // kCuda: which GPU; kVirtual: which rank of the cluster
};

// The caller owns the device and destroys it after everything that ran on it; one of a kind (and
// index) a process is enough. kInvalidUsage when there is no such device.
Result<std::unique_ptr<Device>> openDevice(DeviceKind kind, const DeviceOptions& options = {});

// The GPUs that this process can use. An error says why there are none; it is not logged.
Result<int32_t> countGpus();
// What they are; as the driver says it, without opening them.
struct GpuFacts {
  std::string name;
  std::string busId;
  int32_t capability = 0;  // 90: 9.0
};
Result<std::vector<GpuFacts>> describeGpus();
// The GPU that the calling thread's CUDA calls go to.
Result<int32_t> currentGpu();

}  // namespace tutti::device
