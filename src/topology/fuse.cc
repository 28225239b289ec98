#include "topology/fuse.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tutti::topology {
namespace {

template <typename T>
void takeUnlessKnown(T& known, const T& other, const T& unknown) {
  if (known == unknown) known = other;
}

class Fuser {
 public:
  Result<Description> fuse(const std::vector<Description>& parts) {
    result_.source = parts.front().source;
    // Those that know NUMA nodes first: the others find the places of their devices there.
    for (const bool knowsNuma : {true, false}) {
      for (const Description& part : parts) {
        source_ = part.source;
        for (const CpuNode& cpu : part.cpus) {
          if ((cpu.numaId >= 0) == knowsNuma) TUTTI_TRY(add(cpu));
        }
      }
    }
    for (const Description& part : parts) {
      for (const std::string& line : part.assumptions) {
        if (std::ranges::find(result_.assumptions, line) == result_.assumptions.end())
          result_.assumptions.push_back(line);
      }
    }
    for (CpuNode& cpu : result_.cpus) sortDevices(cpu.devices);
    std::ranges::sort(result_.cpus, {},
                      [](const CpuNode& cpu) { return std::pair(cpu.hostHash, cpu.numaId); });
    for (size_t begin = 0; begin < result_.cpus.size();) {
      size_t end = begin;
      while (end < result_.cpus.size() &&
             result_.cpus[end].hostHash == result_.cpus[begin].hostHash)
        ++end;
      numberPorts(begin, end);
      begin = end;
    }
    return std::move(result_);
  }

 private:
  Status contradiction(std::string_view what) const {
    return invalidArgument("the topologies of {} and {} contradict each other: {}", result_.source,
                           source_, what);
  }

  Status add(const CpuNode& cpu) {
    const auto known = std::ranges::find_if(result_.cpus, [&](const CpuNode& each) {
      return each.hostHash == cpu.hostHash && (each.numaId == cpu.numaId || cpu.numaId < 0);
    });
    if (known == result_.cpus.end()) {
      result_.cpus.push_back(cpu);
      return {};
    }
    takeUnlessKnown(known->arch, cpu.arch, CpuArch::kUnknown);
    takeUnlessKnown(known->vendor, cpu.vendor, CpuVendor::kUnknown);
    takeUnlessKnown(known->family, cpu.family, 0);
    takeUnlessKnown(known->model, cpu.model, 0);
    const bool isOther = (cpu.arch != CpuArch::kUnknown && known->arch != cpu.arch) ||
                         (cpu.vendor != CpuVendor::kUnknown && known->vendor != cpu.vendor) ||
                         (cpu.model != 0 && known->model != cpu.model);
    if (isOther)
      return contradiction(fmt::format("NUMA node {} has two kinds of processor", cpu.numaId));
    if (cpu.numaId >= 0) takeUnlessKnown(known->affinity, cpu.affinity, {});
    for (const Nic& nic : cpu.nics) addNic(known->nics, nic);
    for (const PciDevice& device : cpu.devices) {
      CpuNode& owner = cpu.numaId >= 0 ? *known : ownerOf(device, *known);
      TUTTI_TRY(addDevices(owner.devices, {device}));
    }
    return {};
  }

  // The NUMA node of the host that has this device or one below it already.
  CpuNode& ownerOf(const PciDevice& device, CpuNode& fallback) {
    std::set<std::string> wanted;
    collectBusIds(device, wanted);
    for (CpuNode& cpu : result_.cpus) {
      std::set<std::string> has;
      for (const PciDevice& each : cpu.devices) collectBusIds(each, has);
      const bool isOwner = std::ranges::any_of(
          wanted, [&](const std::string& busId) { return has.contains(busId); });
      if (cpu.hostHash == fallback.hostHash && isOwner) return cpu;
    }
    return fallback;
  }

  static void collectBusIds(const PciDevice& device, std::set<std::string>& busIds) {
    busIds.insert(device.busId);
    for (const PciDevice& child : device.children) collectBusIds(child, busIds);
  }

  Status addDevices(std::vector<PciDevice>& known, const std::vector<PciDevice>& others) {
    for (const PciDevice& other : others) {
      const auto same = std::ranges::find(known, other.busId, &PciDevice::busId);
      if (same == known.end()) {
        known.push_back(other);
        continue;
      }
      takeUnlessKnown(same->linkSpeed, other.linkSpeed, {});
      takeUnlessKnown(same->linkWidth, other.linkWidth, 0);
      takeUnlessKnown(same->deviceClass, other.deviceClass, 0U);
      takeUnlessKnown(same->peers, other.peers, {});
      if (other.gpu) TUTTI_TRY(addGpu(*same, *other.gpu));
      for (const Nic& nic : other.nics) addNic(same->nics, nic);
      TUTTI_TRY(addDevices(same->children, other.children));
    }
    return {};
  }

  Status addGpu(PciDevice& device, const Gpu& other) {
    if (!device.gpu) {
      device.gpu = other;
      return {};
    }
    Gpu& gpu = *device.gpu;
    takeUnlessKnown(gpu.smVersion, other.smVersion, 0);
    takeUnlessKnown(gpu.rank, other.rank, -1);
    takeUnlessKnown(gpu.nvLinks, other.nvLinks, {});
    takeUnlessKnown(gpu.c2c, other.c2c, std::optional<C2cBundle>());
    takeUnlessKnown(gpu.peerOverPci, other.peerOverPci, std::optional<bool>());
    gpu.directNet = gpu.directNet || other.directNet;
    if (other.smVersion != 0 && gpu.smVersion != other.smVersion)
      return contradiction(fmt::format("GPU {} has compute capability {} and {}", device.busId,
                                       gpu.smVersion, other.smVersion));
    if (other.rank != -1 && gpu.rank != other.rank)
      return contradiction(
          fmt::format("GPU {} has rank {} and {}", device.busId, gpu.rank, other.rank));
    return mergeLinks(device.busId, gpu.nvLinks, other.nvLinks);
  }

  // A container shows the links to the GPUs that it may see.
  Status mergeLinks(std::string_view busId, std::vector<NvLinkBundle>& known,
                    const std::vector<NvLinkBundle>& others) const {
    for (const NvLinkBundle& other : others) {
      const auto same = std::ranges::find_if(known, [&](const NvLinkBundle& each) {
        return each.target == other.target && each.targetBusId == other.targetBusId;
      });
      if (same == known.end()) {
        known.push_back(other);
      } else if (same->count != other.count) {
        return contradiction(fmt::format("GPU {} has {} and {} NVLinks to {}", busId, same->count,
                                         other.count, other.targetBusId));
      }
    }
    return {};
  }

  static void addNic(std::vector<Nic>& known, const Nic& other) {
    for (Nic& nic : known) {
      for (const NetPort& port : other.ports) {
        const auto same = std::ranges::find_if(nic.ports, [&](const NetPort& each) {
          return each.name == port.name && each.port == port.port;
        });
        if (same == nic.ports.end()) continue;
        takeUnlessKnown(same->speedMbps, port.speedMbps, int64_t{0});
        same->directGpu = same->directGpu || port.directGpu;
        return;
      }
    }
    known.push_back(other);
  }

  static void sortDevices(std::vector<PciDevice>& devices) {
    std::ranges::sort(devices, {}, &PciDevice::busId);
    for (PciDevice& device : devices) sortDevices(device.children);
  }

  static void collect(std::vector<PciDevice>& devices, std::vector<NetPort*>& ports) {
    for (PciDevice& device : devices) {
      for (Nic& nic : device.nics) {
        for (NetPort& port : nic.ports) ports.push_back(&port);
      }
      collect(device.children, ports);
    }
  }

  // The CPUs from `begin` to `end` are of one host.
  void numberPorts(size_t begin, size_t end) {
    std::vector<NetPort*> ports;
    for (size_t i = begin; i < end; ++i) {
      collect(result_.cpus[i].devices, ports);
      for (Nic& nic : result_.cpus[i].nics) {
        for (NetPort& port : nic.ports) ports.push_back(&port);
      }
    }
    std::set<int32_t> numbers;
    for (const NetPort* port : ports) numbers.insert(port->device);
    if (numbers.size() == ports.size()) return;
    for (size_t i = 0; i < ports.size(); ++i) ports[i]->device = static_cast<int32_t>(i);
  }

  Description result_;
  std::string source_;
};

}  // namespace

Result<Description> fuse(const std::vector<Description>& parts) {
  if (parts.empty()) return invalidArgument("there are no topologies to fuse");
  return Fuser().fuse(parts);
}

}  // namespace tutti::topology
