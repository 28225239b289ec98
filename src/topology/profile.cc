#include "topology/profile.h"

#include <algorithm>
#include <set>

#include "topology/bus_id.h"

namespace tutti::topology {
namespace {

constexpr uint32_t kClassNetwork = 0x02, kClassDisplay = 0x03, kClassAccelerator = 0x12,
                   kClass3d = 0x0302;
constexpr std::string_view kAnySwitch = "ffff:ff:ff.0";  // switches have no place of their own

bool isGpuClass(uint32_t deviceClass) {
  return deviceClass >> 16 == kClassDisplay || deviceClass >> 16 == kClassAccelerator;
}

// A GPU without doubt; what has a display may be a server's plain adapter.
bool isSurelyGpu(const PciDevice& device) {
  return device.gpu || device.deviceClass >> 8 == kClass3d ||
         device.deviceClass >> 16 == kClassAccelerator;
}

Result<std::string> busIdOf(const XmlElement& element, std::string_view attribute) {
  TUTTI_TRY_ASSIGN(const std::string value, element.text(attribute));
  std::optional<std::string> busId = normalBusId(value);
  if (!busId)
    return element.fault(fmt::format("wanted a bus id like 0000:0f:00.0 as {}", attribute));
  return std::move(*busId);
}

Result<int32_t> small(const XmlElement& element, std::string_view attribute, int32_t fallback) {
  TUTTI_TRY_ASSIGN(const int64_t value,
                   element.integer(attribute, {.low = 0, .high = 1'000'000, .fallback = fallback}));
  return static_cast<int32_t>(value);
}

Result<Gpu> parseGpu(const XmlElement& element, const XmlElement& root, int32_t number) {
  Gpu gpu{.position = element.position()};
  TUTTI_TRY_ASSIGN(gpu.device, small(element, "dev", number));
  TUTTI_TRY_ASSIGN(gpu.rank, small(element, "rank", number));
  TUTTI_TRY_ASSIGN(const int32_t sm, small(root, "sm", 0));
  TUTTI_TRY_ASSIGN(gpu.smVersion, small(element, "sm", sm));
  if (gpu.smVersion == 0)
    return element.fault("no compute capability (sm), neither here nor in <profile>");
  TUTTI_TRY_ASSIGN(gpu.directNet, (element.has("gdr") ? element : root).flag("gdr"));
  TUTTI_TRY_ASSIGN(const int32_t links, small(root, "nvswitch", 0));
  TUTTI_TRY_ASSIGN(const int32_t own, small(element, "nvswitch", links));
  if (own > 0)
    gpu.nvLinks.push_back(
        {.targetBusId = std::string(kAnySwitch), .target = NvLinkTarget::kSwitch, .count = own});
  for (const XmlElement& child : element.children()) {
    if (child.name() != "nvlink") return child.fault("wanted <nvlink>");
    NvLinkBundle bundle{.position = child.position()};
    TUTTI_TRY_ASSIGN(bundle.targetBusId, busIdOf(child, "target"));
    TUTTI_TRY_ASSIGN(bundle.count, small(child, "count", 1));
    gpu.nvLinks.push_back(std::move(bundle));
  }
  return gpu;
}

class Completer {
 public:
  Completer(const Description& description, const Profile& profile)
      : result_(description), profile_(profile) {}

  Result<Description> complete() {
    for (CpuNode& cpu : result_.cpus) visit(cpu.devices);
    for (const Profile::GpuEntry& entry : profile_.gpus) {
      if (!met_.contains(entry.busId))
        differ(entry.busId, "the profile has a GPU, the machine nothing");
    }
    for (const Profile::NicEntry& entry : profile_.nics) {
      if (!met_.contains(entry.busId))
        differ(entry.busId, "the profile has a NIC, the machine nothing");
    }
    if (!differences_.empty())
      return invalidArgument("profile {} ({}) does not fit the machine of {}: {}", profile_.name,
                             profile_.source, result_.source, differences_);
    result_.assumptions.push_back(
        fmt::format("completed from profile {} ({})", profile_.name, profile_.source));
    return std::move(result_);
  }

 private:
  void differ(std::string_view busId, std::string_view what) {
    differences_ += fmt::format("{}{}: {}", differences_.empty() ? "" : "; ", busId, what);
  }

  void visit(std::vector<PciDevice>& devices) {
    for (PciDevice& device : devices) {
      const auto gpu = std::ranges::find(profile_.gpus, device.busId, &Profile::GpuEntry::busId);
      const auto nic = std::ranges::find(profile_.nics, device.busId, &Profile::NicEntry::busId);
      if (gpu != profile_.gpus.end()) setGpu(device, gpu->gpu);
      if (nic != profile_.nics.end()) setNic(device, nic->port);
      if (gpu == profile_.gpus.end() && isSurelyGpu(device))
        differ(device.busId, "the machine has a GPU, the profile nothing");
      visit(device.children);
    }
  }

  void setGpu(PciDevice& device, const Gpu& gpu) {
    met_.insert(device.busId);
    if (!device.gpu && !isGpuClass(device.deviceClass))
      return differ(device.busId,
                    fmt::format("the profile has a GPU, the machine a device of class 0x{:06x}",
                                device.deviceClass));
    if (device.gpu && device.gpu->smVersion != 0 && device.gpu->smVersion != gpu.smVersion)
      return differ(device.busId,
                    fmt::format("the profile has compute capability {}, the machine {}",
                                gpu.smVersion, device.gpu->smVersion));
    const std::optional<Gpu> found = device.gpu;
    device.gpu = gpu;
    if (found) {  // its numbers are the machine's own
      device.gpu->device = found->device;
      device.gpu->rank = found->rank;
    }
  }

  void setNic(PciDevice& device, const NetPort& port) {
    met_.insert(device.busId);
    if (device.nics.empty() && device.deviceClass >> 16 != kClassNetwork)
      return differ(device.busId,
                    fmt::format("the profile has a NIC, the machine a device of class 0x{:06x}",
                                device.deviceClass));
    if (device.nics.empty()) {
      device.nics.push_back({.ports = {port}});
      return;
    }
    for (NetPort& each : device.nics.front().ports) {
      if (each.speedMbps == 0) each.speedMbps = port.speedMbps;
      each.directGpu = each.directGpu || port.directGpu;
    }
  }

  Description result_;
  const Profile& profile_;
  std::set<std::string> met_;
  std::string differences_;
};

}  // namespace

Result<Profile> parseProfile(const XmlDocument& document) {
  const XmlElement root = document.root();
  Profile profile{.source = document.source()};
  TUTTI_TRY_ASSIGN(const std::string version, root.text("version"));
  if (root.name() != "profile" || version != "1")
    return root.fault("wanted <profile version=\"1\">");
  TUTTI_TRY_ASSIGN(profile.name, root.text("name"));
  std::set<std::string> seen;
  for (const XmlElement& child : root.children()) {
    TUTTI_TRY_ASSIGN(std::string busId, busIdOf(child, "busid"));
    if (!seen.insert(busId).second)
      return child.faultAt("busid", fmt::format("{} is there twice", busId));
    if (child.name() == "gpu") {
      TUTTI_TRY_ASSIGN(Gpu gpu, parseGpu(child, root, static_cast<int32_t>(profile.gpus.size())));
      profile.gpus.push_back({.busId = std::move(busId), .gpu = std::move(gpu)});
    } else if (child.name() == "nic") {
      NetPort port{.device = static_cast<int32_t>(profile.nics.size()),
                   .port = 1,
                   .position = child.position()};
      TUTTI_TRY_ASSIGN(port.name, child.text("name"));
      TUTTI_TRY_ASSIGN(port.speedMbps, child.integer("speed", {.low = 1, .high = 100'000'000}));
      TUTTI_TRY_ASSIGN(port.directGpu, child.flag("gdr"));
      profile.nics.push_back({.busId = std::move(busId), .port = std::move(port)});
    } else {
      return child.fault("wanted <gpu> or <nic>");
    }
  }
  return profile;
}

Result<Description> complete(const Description& description, const Profile& profile) {
  return Completer(description, profile).complete();
}

}  // namespace tutti::topology
