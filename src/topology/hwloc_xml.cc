#include "topology/hwloc_xml.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "topology/bus_id.h"
#include "topology/simplify.h"

namespace tutti::topology {
namespace {

constexpr int64_t kMaxIndex = 1'000'000;
constexpr uint32_t kClassNetwork = 0x02, kClassDisplay = 0x03, kClassBridge = 0x0604,
                   kClassAccelerator = 0x12;

struct LinkShape {
  std::string_view speed;
  double gigaTransfers;
  double efficiency;  // of the line code
};
constexpr std::array<LinkShape, 6> kShapes = {{{"2.5 GT/s PCIe", 2.5, 0.8},
                                               {"5.0 GT/s PCIe", 5, 0.8},
                                               {"8.0 GT/s PCIe", 8, 128.0 / 130},
                                               {"16.0 GT/s PCIe", 16, 128.0 / 130},
                                               {"32.0 GT/s PCIe", 32, 128.0 / 130},
                                               {"64.0 GT/s PCIe", 64, 1}}};

// hwloc tells a link's GB/s only; the widest link that gives it is taken. Where it is 0, nothing is
// known.
void setLink(PciDevice& device, double gbPerSecond) {
  for (const int lanes : {16, 8, 4, 2, 1}) {
    for (const LinkShape& shape : kShapes) {
      const double width = lanes * shape.gigaTransfers * shape.efficiency / 8;
      if (gbPerSecond <= 0 || std::abs(width - gbPerSecond) > 0.02 * width) continue;
      device.linkSpeed = shape.speed;
      device.linkWidth = lanes;
      return;
    }
  }
}

class Parser {
 public:
  Result<Description> parse(const XmlDocument& document) {
    description_.source = document.source();
    const XmlElement root = document.root();
    TUTTI_TRY_ASSIGN(const std::string version, root.text("version"));
    if (version.find('2') != 0)
      return root.fault(
          fmt::format("hwloc XML of version \"{}\"; 2.x can be read", version.substr(0, 16)));
    for (const XmlElement& child : root.children()) {
      if (child.name() == "object") TUTTI_TRY(parseObject(child, kNone));
    }
    if (description_.cpus.empty()) return root.fault("there is no NUMANode in it");
    for (auto& [cpu, device] : devices_)
      description_.cpus[cpu == kNone ? 0 : cpu].devices.push_back(std::move(device));
    for (CpuNode& cpu : description_.cpus) {
      cpu.arch = arch_, cpu.vendor = vendor_, cpu.family = family_, cpu.model = model_;
    }
    joinBridges(description_);
    return std::move(description_);
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  // Recursion is bounded by XmlLimits::depth. `cpu` is the NUMA node that the ancestors belong to.
  Status parseObject(const XmlElement& element, size_t cpu) {
    const std::vector<XmlElement> children = element.children();
    for (const XmlElement& child : children) {
      if (child.name() == "info") TUTTI_TRY(readInfo(child));
    }
    // Memory comes first: what else hangs here belongs to it. A second one (HBM, CXL) is of the
    // same processors.
    bool isOwn = false;
    for (const XmlElement& child : children) {
      TUTTI_TRY_ASSIGN(const std::string childType, child.text("type"));
      if (child.name() != "object" || childType != "NUMANode" || std::exchange(isOwn, true))
        continue;
      TUTTI_TRY(addCpu(child));
      cpu = description_.cpus.size() - 1;
    }
    for (const XmlElement& child : children) {
      TUTTI_TRY_ASSIGN(const std::string childType, child.text("type"));
      if (child.name() != "object" || childType == "NUMANode") continue;
      if (childType == "Bridge" || childType == "PCIDev") {
        TUTTI_TRY_ASSIGN(std::vector<PciDevice> found, parsePci(child));
        for (PciDevice& device : found) devices_.emplace_back(cpu, std::move(device));
      } else {
        TUTTI_TRY(parseObject(child, cpu));
      }
    }
    return {};
  }

  Status addCpu(const XmlElement& element) {
    CpuNode cpu{.position = element.position()};
    TUTTI_TRY_ASSIGN(const int64_t number,
                     element.integer("os_index", {.low = 0, .high = kMaxIndex, .fallback = 0}));
    cpu.numaId = static_cast<int32_t>(number);
    TUTTI_TRY_ASSIGN(const std::string cpuset, element.text("cpuset"));
    for (size_t begin = 0; begin < cpuset.size();) {  // "0x0000ffff,0xffffffff" without the 0x
      const size_t end = std::min(cpuset.find(',', begin), cpuset.size());
      std::string word = cpuset.substr(begin, end - begin);
      if (word.starts_with("0x")) word.erase(0, 2);
      if (word.find_first_not_of("0123456789abcdef") != std::string::npos)
        return element.faultAt("cpuset", "wanted hexadecimal words");
      cpu.affinity += fmt::format("{}{}", begin > 0 ? "," : "", word.empty() ? "00000000" : word);
      begin = end + 1;
    }
    description_.cpus.push_back(std::move(cpu));
    return {};
  }

  Status readInfo(const XmlElement& element) {
    TUTTI_TRY_ASSIGN(const std::string name, element.text("name"));
    TUTTI_TRY_ASSIGN(const std::string value, element.text("value"));
    if (name == "Architecture") {
      if (value == "x86_64") arch_ = CpuArch::kX86;
      if (value == "aarch64") arch_ = CpuArch::kArm64;
      if (value.starts_with("ppc64")) arch_ = CpuArch::kPower;
    }
    if (name == "CPUVendor") {
      if (value == "GenuineIntel") vendor_ = CpuVendor::kIntel;
      if (value == "AuthenticAMD" || value == "HygonGenuine") vendor_ = CpuVendor::kAmd;
      if (value == "CentaurHauls" || value == "  Shanghai  ") vendor_ = CpuVendor::kZhaoxin;
      if (vendor_ != CpuVendor::kUnknown) arch_ = CpuArch::kX86;
    }
    if (name == "CPUFamilyNumber" || name == "CPUModelNumber") {
      TUTTI_TRY_ASSIGN(const int64_t number,
                       element.integer("value", {.low = 0, .high = kMaxIndex}));
      (name == "CPUFamilyNumber" ? family_ : model_) = static_cast<int32_t>(number);
    }
    return {};
  }

  // A host bridge is no device of its own: what is below it is given back in its place. Only GPUs,
  // NICs and the bridges above them are kept.
  Result<std::vector<PciDevice>> parsePci(const XmlElement& element) {
    std::vector<PciDevice> below;
    Nic nic;
    for (const XmlElement& child : element.children()) {
      TUTTI_TRY_ASSIGN(const std::string type, child.text("type"));
      if (child.name() == "object" && (type == "Bridge" || type == "PCIDev")) {
        TUTTI_TRY_ASSIGN(std::vector<PciDevice> found, parsePci(child));
        std::ranges::move(found, std::back_inserter(below));
      }
      if (child.name() == "object" && type == "OSDev") TUTTI_TRY(addPort(child, nic));
    }
    TUTTI_TRY_ASSIGN(PciDevice device, parseDevice(element));
    if (device.busId.empty()) return below;
    const uint32_t base = device.deviceClass >> 16;
    const bool isNic = base == kClassNetwork && !nic.ports.empty();
    const bool isGpu = base == kClassDisplay || base == kClassAccelerator;
    if (!isNic && !isGpu && below.empty()) return below;
    if (isNic) device.nics.push_back(std::move(nic));
    device.children = std::move(below);
    std::vector<PciDevice> result;
    result.push_back(std::move(device));
    return result;
  }

  static Result<PciDevice> parseDevice(const XmlElement& element) {
    PciDevice device{.position = element.position()};
    if (element.has("pci_busid")) {
      TUTTI_TRY_ASSIGN(const std::string place, element.text("pci_busid"));
      std::optional<std::string> busId = normalBusId(place);
      if (!busId) return element.faultAt("pci_busid", "wanted a bus id like 0000:0f:00.0");
      device.busId = std::move(*busId);
    }
    // "0302 [10de:2330] [10de:16c1] a1"
    TUTTI_TRY_ASSIGN(const std::string type, element.text("pci_type"));
    if (type.size() >= 16) {
      device.deviceClass =
          static_cast<uint32_t>(std::strtoul(type.substr(0, 4).c_str(), nullptr, 16)) << 8;
      device.ids.vendor = fmt::format("0x{}", type.substr(6, 4));
      device.ids.device = fmt::format("0x{}", type.substr(11, 4));
    }
    TUTTI_TRY_ASSIGN(const std::string kind, element.text("type"));
    if (device.deviceClass == 0 && kind == "Bridge") device.deviceClass = kClassBridge << 8;
    TUTTI_TRY_ASSIGN(const double speed, element.real("pci_link_speed", 1e6));
    setLink(device, speed);
    return device;
  }

  // Types 2 and 3 are network interfaces and OpenFabrics adapters; an adapter stands for its
  // interface.
  Status addPort(const XmlElement& element, Nic& nic) {
    TUTTI_TRY_ASSIGN(const int64_t kind,
                     element.integer("osdev_type", {.low = 0, .high = 1000, .fallback = 0}));
    if (kind != 2 && kind != 3) return {};
    NetPort port{.port = 1, .position = element.position()};
    TUTTI_TRY_ASSIGN(port.name, element.text("name"));
    if (kind == 3 && !nic.ports.empty()) {
      nic.ports.front().name = port.name;
      return {};
    }
    if (kind == 2 && !nic.ports.empty()) return {};
    port.device = nextPort_++;
    nic.ports.push_back(std::move(port));
    return {};
  }

  Description description_;
  std::vector<std::pair<size_t, PciDevice>> devices_;
  CpuArch arch_ = CpuArch::kUnknown;
  CpuVendor vendor_ = CpuVendor::kUnknown;
  int32_t family_ = 0;
  int32_t model_ = 0;
  int32_t nextPort_ = 0;
};

}  // namespace

Result<Description> parseHwlocXml(const XmlDocument& document) { return Parser().parse(document); }

}  // namespace tutti::topology
