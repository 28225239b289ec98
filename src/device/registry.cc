#include "device/registry.h"

#include "device/host/host_device.h"

namespace tutti::device {

Result<std::unique_ptr<Device>> openDevice(DeviceKind kind, const DeviceOptions& options) {
  std::unique_ptr<Device> device;
  switch (kind) {
    case DeviceKind::kHost: device = std::make_unique<host::HostDevice>(*options.clock); break;
  }
  return device;
}

}  // namespace tutti::device
