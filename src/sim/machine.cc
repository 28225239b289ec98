#include "sim/machine.h"

#include <fmt/core.h>

#include <algorithm>

namespace tutti::sim {
namespace {

using topology::PciDevice;

constexpr uint32_t kClassBridge = 0x060400, kClassGpu = 0x030200, kClassNic = 0x020700;
constexpr int32_t kLanes = 16;
constexpr int64_t kMbpsPerGbps = 1000;

class Maker {
 public:
  explicit Maker(const MachineSpec& spec) : spec_(spec) {}

  topology::Description run() {
    topology::Description made{.source = "machine of a cluster file"};
    for (int32_t socket = 0; socket < spec_.socketCount; ++socket) {
      made.cpus.push_back({.numaId = socket, .arch = spec_.arch, .vendor = spec_.vendor});
    }
    // PCI switches: one for each of what there is fewer of.
    const int32_t fewer = std::min(spec_.gpuCount, spec_.portCount);
    const int32_t places = fewer > 0 ? fewer : std::max(spec_.gpuCount, spec_.portCount);
    int32_t gpu = 0, port = 0;
    for (int32_t place = 0; place < places; ++place) {
      PciDevice bridge = device(kClassBridge);
      for (; gpu * places < (place + 1) * spec_.gpuCount; ++gpu)
        bridge.children.push_back(makeGpu(gpu));
      for (; port * places < (place + 1) * spec_.portCount; ++port)
        bridge.children.push_back(makeNic(port));
      const auto socket = static_cast<size_t>(place * spec_.socketCount / places);
      made.cpus[socket].devices.push_back(std::move(bridge));
    }
    return made;
  }

 private:
  PciDevice device(uint32_t deviceClass) {
    const int32_t number = next_++;
    return {.busId = fmt::format("{:04x}:{:02x}:00.0", number >> 8, number & 0xff),
            .deviceClass = deviceClass,
            .linkSpeed = spec_.pciSpeed,
            .linkWidth = kLanes};
  }

  PciDevice makeGpu(int32_t number) {
    PciDevice made = device(kClassGpu);
    made.gpu = topology::Gpu{.device = number,
                             .rank = number,
                             .smVersion = spec_.smVersion,
                             .directNet = spec_.directGpu};
    if (spec_.switchLinks > 0)
      made.gpu->nvLinks.push_back({.targetBusId = "ffff:ff:ff.0",
                                   .target = topology::NvLinkTarget::kSwitch,
                                   .count = spec_.switchLinks});
    if (spec_.c2cGbPerSecond > 0)
      made.gpu->c2c = topology::C2cBundle{.count = 1, .mbPerSecond = spec_.c2cGbPerSecond * 1e3};
    return made;
  }

  PciDevice makeNic(int32_t number) {
    PciDevice made = device(kClassNic);
    made.nics.push_back(
        {.ports = {{.name = fmt::format("nic{}", number),
                    .device = number,
                    .speedMbps = static_cast<int64_t>(spec_.portGbps * kMbpsPerGbps),
                    .port = 1,
                    .latencyUs = spec_.portLatencyUs,
                    .guid = 0x100 + static_cast<uint64_t>(number),
                    .maxConnections = 1 << 17,
                    .directGpu = spec_.directGpu,
                    .rail = number}}});
    return made;
  }

  MachineSpec spec_;
  int32_t next_ = 1;  // of the made-up bus ids
};

}  // namespace

topology::Description makeMachine(const MachineSpec& spec) { return Maker(spec).run(); }

}  // namespace tutti::sim
