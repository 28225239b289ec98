#include "topology/xml.h"

#include <algorithm>
#include <set>

#include "base/markup.h"
#include "topology/bus_id.h"

namespace tutti::topology {
namespace {

constexpr int64_t kMaxDevice = 1'000'000;
constexpr int64_t kMaxRank = 1 << 30;
constexpr int64_t kMaxLinks = 1024;  // NVLinks of one bundle, PCI lanes
constexpr int64_t kMaxSpeedMbps = 100'000'000;
constexpr double kMaxLatencyUs = 1e9;
constexpr double kMaxC2cMbPerSecond = 1e9;

// What NVLinks and xGMI links lead to, by the class of the device there.
constexpr int64_t kClassSwitch = 0x068000, kClassCpu = 0x068001;

struct ArchName {
  CpuArch arch;
  std::string_view name;
};
constexpr ArchName kArchNames[] = {
    {CpuArch::kX86, "x86_64"}, {CpuArch::kArm64, "arm64"}, {CpuArch::kPower, "ppc64"}};
struct VendorName {
  CpuVendor vendor;
  std::string_view name;
};
constexpr VendorName kVendorNames[] = {{CpuVendor::kIntel, "GenuineIntel"},
                                       {CpuVendor::kAmd, "AuthenticAMD"},
                                       {CpuVendor::kZhaoxin, "CentaurHauls"},
                                       {CpuVendor::kZhaoxin, "  Shanghai  "}};

bool isHex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

class Parser {
 public:
  Result<Description> parse(const XmlElement& root, const std::string& source) {
    description_.source = source;
    if (root.name() != "system") return root.fault("wanted <system>");
    TUTTI_TRY_ASSIGN(const std::string version, root.text("version"));
    const std::string_view number = version;  // GCC 12 at -O2 takes the string for uninitialised
    if (number != "1" && number != "2")
      return root.fault(fmt::format("version \"{}\" of the topology XML; 1 and 2 can be read",
                                    version.substr(0, 16)));
    for (const XmlElement& child : root.children()) {
      if (child.name() != "cpu") {
        skip(child);
        continue;
      }
      TUTTI_TRY_ASSIGN(CpuNode cpu, parseCpu(child));
      description_.cpus.push_back(std::move(cpu));
    }
    if (description_.cpus.empty()) return root.fault("there is no <cpu> in it");
    return std::move(description_);
  }

 private:
  void skip(const XmlElement& element) {
    const std::string name(element.name().substr(0, 32));
    if (!skipped_.insert(name).second) return;
    description_.assumptions.push_back(fmt::format(
        "{}:{}: <{}> is not known: left out", description_.source, element.position().line, name));
  }

  Result<std::string> busId(const XmlElement& element, std::string_view attribute) {
    TUTTI_TRY_ASSIGN(const std::string value, element.text(attribute));
    if (value.empty()) return element.fault(fmt::format("attribute {} is missing", attribute));
    std::optional<std::string> busId = normalBusId(value);
    if (!busId)
      return element.faultAt(
          attribute, fmt::format("\"{}\": wanted a bus id like 0000:0f:00.0", value.substr(0, 32)));
    return std::move(*busId);
  }

  Result<CpuNode> parseCpu(const XmlElement& element) {
    CpuNode cpu;
    cpu.position = element.position();
    TUTTI_TRY_ASSIGN(cpu.hostHash, element.hex64("host_hash"));
    TUTTI_TRY_ASSIGN(const int64_t numaId,
                     element.integer("numaid", {.low = -1, .high = kMaxDevice}));
    cpu.numaId = static_cast<int32_t>(numaId);
    TUTTI_TRY_ASSIGN(cpu.affinity, element.text("affinity"));
    if (!std::ranges::all_of(cpu.affinity,
                             [](char c) { return isHex(c) || c == ',' || (c >= 'A' && c <= 'F'); }))
      return element.faultAt("affinity", "wanted hexadecimal words with commas between");
    TUTTI_TRY_ASSIGN(const std::string arch, element.text("arch"));
    for (const ArchName& each : kArchNames) cpu.arch = arch == each.name ? each.arch : cpu.arch;
    TUTTI_TRY_ASSIGN(const std::string vendor, element.text("vendor"));
    for (const VendorName& each : kVendorNames)
      cpu.vendor = vendor == each.name ? each.vendor : cpu.vendor;
    TUTTI_TRY_ASSIGN(const int64_t family,
                     element.integer("familyid", {.low = 0, .high = kMaxDevice, .fallback = 0}));
    cpu.family = static_cast<int32_t>(family);
    TUTTI_TRY_ASSIGN(const int64_t model,
                     element.integer("modelid", {.low = 0, .high = kMaxDevice, .fallback = 0}));
    cpu.model = static_cast<int32_t>(model);
    for (const XmlElement& child : element.children()) {
      if (child.name() == "pci") {
        TUTTI_TRY_ASSIGN(PciDevice device, parsePci(child));
        cpu.devices.push_back(std::move(device));
      } else if (child.name() == "nic") {
        TUTTI_TRY_ASSIGN(Nic nic, parseNic(child));
        cpu.nics.push_back(std::move(nic));
      } else {
        skip(child);
      }
    }
    return cpu;
  }

  // Recursion is bounded by XmlLimits::depth.
  Result<PciDevice> parsePci(const XmlElement& element) {
    PciDevice device;
    device.position = element.position();
    TUTTI_TRY_ASSIGN(device.busId, busId(element, "busid"));
    TUTTI_TRY_ASSIGN(const int64_t deviceClass,
                     element.integer("class", {.low = 0, .high = 0xffffff, .fallback = 0}));
    device.deviceClass = static_cast<uint32_t>(deviceClass);
    TUTTI_TRY_ASSIGN(device.ids.vendor, element.text("vendor"));
    TUTTI_TRY_ASSIGN(device.ids.device, element.text("device"));
    TUTTI_TRY_ASSIGN(device.ids.subsystemVendor, element.text("subsystem_vendor"));
    TUTTI_TRY_ASSIGN(device.ids.subsystemDevice, element.text("subsystem_device"));
    TUTTI_TRY_ASSIGN(device.linkSpeed, element.text("link_speed"));
    TUTTI_TRY_ASSIGN(const int64_t width,
                     element.integer("link_width", {.low = 0, .high = kMaxLinks, .fallback = 0}));
    device.linkWidth = static_cast<int32_t>(width);
    for (const XmlElement& child : element.children()) TUTTI_TRY(parseUnderPci(child, device));
    return device;
  }

  Status parseUnderPci(const XmlElement& child, PciDevice& device) {
    if (child.name() == "pci") {
      TUTTI_TRY_ASSIGN(PciDevice inner, parsePci(child));
      device.children.push_back(std::move(inner));
    } else if (child.name() == "gpu") {
      if (device.gpu) return child.fault("a second GPU in one PCI device");
      TUTTI_TRY_ASSIGN(Gpu gpu, parseGpu(child));
      device.gpu = std::move(gpu);
    } else if (child.name() == "nic") {
      TUTTI_TRY_ASSIGN(Nic nic, parseNic(child));
      device.nics.push_back(std::move(nic));
    } else if (child.name() == "pcilink") {
      TUTTI_TRY_ASSIGN(std::string target, busId(child, "target"));
      device.peers.push_back(std::move(target));
    } else {
      skip(child);
    }
    return {};
  }

  Result<Gpu> parseGpu(const XmlElement& element) {
    Gpu gpu;
    gpu.position = element.position();
    TUTTI_TRY_ASSIGN(const int64_t device, element.integer("dev", {.low = 0, .high = kMaxDevice}));
    gpu.device = static_cast<int32_t>(device);
    TUTTI_TRY_ASSIGN(const int64_t sm,
                     element.integer("sm", {.low = 0, .high = 999, .fallback = 0}));
    gpu.smVersion = static_cast<int32_t>(sm);
    TUTTI_TRY_ASSIGN(const int64_t rank,
                     element.integer("rank", {.low = -1, .high = kMaxRank, .fallback = -1}));
    gpu.rank = static_cast<int32_t>(rank);
    TUTTI_TRY_ASSIGN(gpu.directNet, element.flag("gdr"));
    TUTTI_TRY_ASSIGN(gpu.amdName, element.text("gcn"));
    if (element.has("p2p")) {
      TUTTI_TRY_ASSIGN(gpu.peerOverPci, element.flag("p2p"));
    }
    for (const XmlElement& child : element.children()) {
      if (child.name() == "nvlink" || child.name() == "xgmi") {
        TUTTI_TRY_ASSIGN(NvLinkBundle bundle, parseNvLink(child));
        gpu.nvLinks.push_back(std::move(bundle));
      } else if (child.name() == "c2c") {
        if (gpu.c2c) return child.fault("a second <c2c> of one GPU");
        C2cBundle bundle{.position = child.position()};
        TUTTI_TRY_ASSIGN(const int64_t count,
                         child.integer("count", {.low = 1, .high = kMaxLinks, .fallback = 1}));
        bundle.count = static_cast<int32_t>(count);
        TUTTI_TRY_ASSIGN(bundle.mbPerSecond, child.real("bw", kMaxC2cMbPerSecond));
        if (bundle.mbPerSecond <= 0) return child.fault("no bandwidth (bw, in MB/s)");
        gpu.c2c = bundle;
      } else {
        skip(child);
      }
    }
    return gpu;
  }

  Result<NvLinkBundle> parseNvLink(const XmlElement& element) {
    NvLinkBundle bundle;
    bundle.position = element.position();
    bundle.isXgmi = element.name() == "xgmi";
    TUTTI_TRY_ASSIGN(bundle.targetBusId, busId(element, "target"));
    TUTTI_TRY_ASSIGN(const int64_t count, element.integer("count", {.low = 1, .high = kMaxLinks}));
    bundle.count = static_cast<int32_t>(count);
    TUTTI_TRY_ASSIGN(const int64_t target, element.integer("tclass", {.low = 0, .high = 0xffffff}));
    const int64_t base = target & 0xff0000;
    if (target == kClassSwitch) {
      bundle.target = NvLinkTarget::kSwitch;
    } else if (target == kClassCpu) {
      bundle.target = NvLinkTarget::kCpu;
    } else if (base != 0x030000 && base != 0x120000) {
      return element.faultAt(
          "tclass",
          fmt::format("0x{:06x} is no GPU (0x0302xx), switch (0x068000) or CPU (0x068001)",
                      target));
    }
    return bundle;
  }

  Result<Nic> parseNic(const XmlElement& element) {
    Nic nic;
    nic.position = element.position();
    for (const XmlElement& child : element.children()) {
      if (child.name() != "net") {
        skip(child);
        continue;
      }
      TUTTI_TRY_ASSIGN(NetPort port, parsePort(child));
      nic.ports.push_back(std::move(port));
    }
    return nic;
  }

  Result<NetPort> parsePort(const XmlElement& element) {
    NetPort port;
    port.position = element.position();
    TUTTI_TRY_ASSIGN(port.name, element.text("name"));
    TUTTI_TRY_ASSIGN(const int64_t device, element.integer("dev", {.low = 0, .high = kMaxDevice}));
    port.device = static_cast<int32_t>(device);
    TUTTI_TRY_ASSIGN(port.speedMbps,
                     element.integer("speed", {.low = 0, .high = kMaxSpeedMbps, .fallback = 0}));
    TUTTI_TRY_ASSIGN(const int64_t number,
                     element.integer("port", {.low = 0, .high = kMaxDevice, .fallback = 0}));
    port.port = static_cast<int32_t>(number);
    TUTTI_TRY_ASSIGN(port.latencyUs, element.real("latency", kMaxLatencyUs));
    TUTTI_TRY_ASSIGN(port.guid, element.hex64("guid"));
    TUTTI_TRY_ASSIGN(const int64_t connections,
                     element.integer("maxconn", {.low = 0, .high = INT32_MAX, .fallback = 0}));
    port.maxConnections = static_cast<int32_t>(connections);
    TUTTI_TRY_ASSIGN(port.directGpu, element.flag("gdr"));
    TUTTI_TRY_ASSIGN(port.inNetworkReduction, element.flag("coll"));
    TUTTI_TRY_ASSIGN(const int64_t rail,
                     element.integer("rail", {.low = -1, .high = kMaxDevice, .fallback = -1}));
    port.rail = static_cast<int32_t>(rail);
    return port;
  }

  Description description_;
  std::set<std::string> skipped_;
};

class Writer {
 public:
  std::string write(const Description& description) {
    const bool isAmd = std::ranges::any_of(description.cpus,
                                           [](const CpuNode& cpu) { return hasXgmi(cpu.devices); });
    open("system", attribute("version", isAmd ? "2" : "1"));
    for (const CpuNode& cpu : description.cpus) writeCpu(cpu);
    close("system");
    return std::move(text_);
  }

 private:
  static bool hasXgmi(const std::vector<PciDevice>& devices) {
    return std::ranges::any_of(devices, [](const PciDevice& device) {
      return hasXgmi(device.children) ||
             (device.gpu && std::ranges::any_of(device.gpu->nvLinks, &NvLinkBundle::isXgmi));
    });
  }

  static std::string attribute(std::string_view name, std::string_view value) {
    return fmt::format(" {}=\"{}\"", name, escapeMarkup(value));
  }
  static std::string attribute(std::string_view name, int64_t value) {
    return fmt::format(" {}=\"{}\"", name, value);
  }
  static std::string unlessEmpty(std::string_view name, std::string_view value) {
    return value.empty() ? "" : attribute(name, value);
  }

  void line(std::string_view what) { text_ += fmt::format("{:{}}{}\n", "", 2 * depth_, what); }
  void leaf(std::string_view name, std::string_view attributes) {
    line(fmt::format("<{}{}/>", name, attributes));
  }
  void open(std::string_view name, std::string_view attributes) {
    line(fmt::format("<{}{}>", name, attributes));
    ++depth_;
  }
  void close(std::string_view name) {
    --depth_;
    line(fmt::format("</{}>", name));
  }

  void writeCpu(const CpuNode& cpu) {
    std::string attributes =
        cpu.hostHash == 0 ? "" : fmt::format(" host_hash=\"0x{:x}\"", cpu.hostHash);
    attributes += attribute("numaid", cpu.numaId) + unlessEmpty("affinity", cpu.affinity);
    for (const ArchName& each : kArchNames) {
      if (each.arch == cpu.arch) attributes += attribute("arch", each.name);
    }
    const auto vendor = std::ranges::find(kVendorNames, cpu.vendor, &VendorName::vendor);
    if (vendor != std::end(kVendorNames)) attributes += attribute("vendor", vendor->name);
    open("cpu", attributes + attribute("familyid", cpu.family) + attribute("modelid", cpu.model));
    for (const PciDevice& device : cpu.devices) writePci(device);
    for (const Nic& nic : cpu.nics) writeNic(nic);
    close("cpu");
  }

  void writePci(const PciDevice& device) {
    open("pci",
         attribute("busid", device.busId) + fmt::format(" class=\"0x{:06x}\"", device.deviceClass) +
             unlessEmpty("vendor", device.ids.vendor) + unlessEmpty("device", device.ids.device) +
             unlessEmpty("subsystem_vendor", device.ids.subsystemVendor) +
             unlessEmpty("subsystem_device", device.ids.subsystemDevice) +
             attribute("link_speed", device.linkSpeed) + attribute("link_width", device.linkWidth));
    if (device.gpu) writeGpu(*device.gpu);
    for (const Nic& nic : device.nics) writeNic(nic);
    for (const std::string& peer : device.peers) leaf("pcilink", attribute("target", peer));
    for (const PciDevice& child : device.children) writePci(child);
    close("pci");
  }

  void writeGpu(const Gpu& gpu) {
    open("gpu", attribute("dev", gpu.device) + attribute("sm", gpu.smVersion) +
                    unlessEmpty("gcn", gpu.amdName) + attribute("rank", gpu.rank) +
                    attribute("gdr", gpu.directNet) +
                    (gpu.peerOverPci ? attribute("p2p", *gpu.peerOverPci) : ""));
    for (const NvLinkBundle& bundle : gpu.nvLinks) {
      leaf(bundle.isXgmi ? "xgmi" : "nvlink",
           attribute("target", bundle.targetBusId) + attribute("count", bundle.count) +
               fmt::format(" tclass=\"0x{:06x}\"", classOf(bundle)));
    }
    if (gpu.c2c)
      leaf("c2c",
           fmt::format(" bw=\"{}\"", gpu.c2c->mbPerSecond) + attribute("count", gpu.c2c->count));
    close("gpu");
  }

  static int64_t classOf(const NvLinkBundle& bundle) {
    switch (bundle.target) {
      case NvLinkTarget::kSwitch: return kClassSwitch;
      case NvLinkTarget::kCpu: return kClassCpu;
      case NvLinkTarget::kGpu: break;
    }
    return bundle.isXgmi ? 0x120000 : 0x030200;
  }

  void writeNic(const Nic& nic) {
    open("nic", "");
    for (const NetPort& port : nic.ports) {
      leaf("net", attribute("name", port.name) + attribute("dev", port.device) +
                      attribute("speed", port.speedMbps) + attribute("port", port.port) +
                      fmt::format(" latency=\"{}\" guid=\"0x{:x}\"", port.latencyUs, port.guid) +
                      attribute("maxconn", port.maxConnections) + attribute("gdr", port.directGpu) +
                      (port.inNetworkReduction ? attribute("coll", 1) : "") +
                      (port.rail >= 0 ? attribute("rail", port.rail) : ""));
    }
    close("nic");
  }

  std::string text_;
  int depth_ = 0;
};

}  // namespace

Result<Description> parseXml(const XmlDocument& document) {
  return Parser().parse(document.root(), document.source());
}

Result<Description> parseXml(std::string_view text, const std::string& source,
                             const XmlLimits& limits) {
  TUTTI_TRY_ASSIGN(const std::unique_ptr<XmlDocument> document,
                   XmlDocument::parse(text, source, limits));
  return parseXml(*document);
}

std::string writeXml(const Description& description) { return Writer().write(description); }

}  // namespace tutti::topology
