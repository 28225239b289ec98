// Opens devices by kind: the only file that names the implementations.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "device/device.h"

namespace tutti::device {

enum class DeviceKind : uint8_t { kHost };

struct DeviceOptions {
  Clock* clock = &steadyClock();  // measures idle times and events; outlives the device
};

// The caller owns the device and destroys it after everything that ran on it; one of a kind a
// process is enough.
Result<std::unique_ptr<Device>> openDevice(DeviceKind kind, const DeviceOptions& options = {});

}  // namespace tutti::device
