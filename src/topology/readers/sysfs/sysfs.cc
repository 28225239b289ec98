#include "topology/readers/sysfs/sysfs.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>

#include "base/fd.h"
#include "base/proc_files.h"
#include "base/read_file.h"

namespace tutti::topology::sysfs {
namespace {

constexpr uint32_t kClassDisplay = 0x03, kClassAccelerator = 0x12;
constexpr size_t kMaxFileBytes = 4096;
constexpr int kMaxPciDepth = 32;
constexpr int64_t kMaxLanes = 32;   // the kernel prints 63 or 255 for a link of which it knows none
constexpr int64_t kLoopback = 772;  // ARPHRD_LOOPBACK

// The first line, without the end; nullopt when there is no such file. One read: a file of sysfs is
// made anew by each.
std::optional<std::string> lineOf(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return std::nullopt;
  std::array<char, kMaxFileBytes> bytes;
  const ssize_t count = ::read(fd.get(), bytes.data(), bytes.size());
  if (count < 0) return std::nullopt;
  std::string text(bytes.data(), static_cast<size_t>(count));
  text.resize(std::min(text.find('\n'), text.size()));
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

int64_t numberOf(const std::optional<std::string>& text, int64_t fallback) {
  if (!text) return fallback;
  std::string_view digits = *text;
  const int base = digits.starts_with("0x") ? 16 : 10;
  if (base == 16) digits.remove_prefix(2);
  int64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  return parsed.ec == std::errc() ? value : fallback;
}

std::string realPath(const std::string& path) {
  std::array<char, PATH_MAX> resolved{};
  return ::realpath(path.c_str(), resolved.data()) == nullptr ? "" : std::string(resolved.data());
}

bool isBusId(std::string_view name) {
  return name.size() >= 12 && name[name.size() - 2] == '.' && name[name.size() - 5] == ':' &&
         name[name.size() - 8] == ':';
}

// "0000:0f:00.0" -> the chain of bus ids from the host bridge down, out of
// ".../pci0000:00/0000:00:01.0/0000:0f:00.0".
std::vector<std::string> chainOf(const std::string& devicePath) {
  std::vector<std::string> chain;
  for (size_t begin = 0; begin < devicePath.size();) {
    const size_t end = std::min(devicePath.find('/', begin), devicePath.size());
    const std::string part = devicePath.substr(begin, end - begin);
    if (isBusId(part)) chain.push_back(part);
    begin = end + 1;
  }
  return chain;
}

struct CpuIdentity {
  CpuArch arch = CpuArch::kUnknown;
  CpuVendor vendor = CpuVendor::kUnknown;
  int32_t family = 0;
  int32_t model = 0;
};

// /proc/cpuinfo of x86 has vendor_id, "cpu family" and model; Arm "CPU implementer"; POWER "cpu :
// POWER9".
CpuIdentity identityOf(const std::string& path) {
  CpuIdentity identity;
  std::istringstream file(readFile(path));
  constexpr int kMaxLines = 64;  // the first processor's
  std::string line;
  for (int i = 0; i < kMaxLines && std::getline(file, line); ++i) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const std::string value = colon + 2 < line.size() ? line.substr(colon + 2) : "";
    if (key == "vendor_id") {
      identity.arch = CpuArch::kX86;
      if (value == "GenuineIntel") identity.vendor = CpuVendor::kIntel;
      if (value == "AuthenticAMD" || value == "HygonGenuine") identity.vendor = CpuVendor::kAmd;
      if (value == "CentaurHauls" || value == "  Shanghai  ") identity.vendor = CpuVendor::kZhaoxin;
    }
    if (key == "cpu family") identity.family = static_cast<int32_t>(numberOf(value, 0));
    if (key == "model") identity.model = static_cast<int32_t>(numberOf(value, 0));
    if (key == "CPU implementer") identity.arch = CpuArch::kArm64;
    if (key == "cpu" && value.starts_with("POWER")) identity.arch = CpuArch::kPower;
  }
  return identity;
}

class Reader {
 public:
  explicit Reader(const Options& options) : options_(options), sys_(options.root + "/sys") {}

  Description read() {
    description_.source = "this machine";
    readCpus();
    findPorts();
    readDevices();
    addVirtualPorts();
    for (auto& [busId, device] : roots_) cpuOf(busId).devices.push_back(std::move(device));
    if (unplaced_ > 0)
      assume(fmt::format("the NUMA node of {} PCI devices is not known: {} assumed", unplaced_,
                         description_.cpus.front().numaId));
    return std::move(description_);
  }

 private:
  // What is behind one PCI device, or behind none.
  struct Behind {
    std::vector<std::string> adapters = {};    // RDMA
    std::vector<std::string> interfaces = {};  // that are up
  };

  void assume(std::string line) { description_.assumptions.push_back(std::move(line)); }

  void readCpus() {
    const CpuIdentity identity = identityOf(options_.root + "/proc/cpuinfo");
    if (identity.arch == CpuArch::kUnknown)
      assume("/proc/cpuinfo names no processor: links between sockets take 6 GB/s");
    const std::string folder = sys_ + "/devices/system/node";
    for (const std::string& name : namesIn(folder)) {
      if (!name.starts_with("node")) continue;
      const int64_t number = numberOf(name.substr(4), -1);
      const std::string affinity = lineOf(folder + "/" + name + "/cpumap").value_or("");
      // Memory without processors (CXL, HBM) is no place for a rank.
      const bool hasProcessors = affinity.find_first_not_of("0,") != std::string::npos;
      if (number >= 0 && hasProcessors) addCpu(static_cast<int32_t>(number), affinity, identity);
    }
    std::ranges::sort(description_.cpus, {}, &CpuNode::numaId);
    if (description_.cpus.empty()) addCpu(-1, "", identity);
  }

  void addCpu(int32_t numaId, std::string affinity, const CpuIdentity& identity) {
    description_.cpus.push_back({.hostHash = options_.hostHash,
                                 .numaId = numaId,
                                 .affinity = std::move(affinity),
                                 .arch = identity.arch,
                                 .vendor = identity.vendor,
                                 .family = identity.family,
                                 .model = identity.model});
  }

  // By where the kernel's classes say their devices are: a virtio interface lies deeper than its
  // PCI device, so the devices' own folders do not name it.
  void findPorts() {
    for (const std::string& name : namesIn(sys_ + "/class/infiniband")) {
      const std::vector<std::string> chain = chainOf(realPath(sys_ + "/class/infiniband/" + name));
      behind_[chain.empty() ? "" : chain.back()].adapters.push_back(name);
    }
    for (const std::string& name : namesIn(sys_ + "/class/net")) {
      const std::string path = sys_ + "/class/net/" + name;
      const std::string state = lineOf(path + "/operstate").value_or("unknown");
      const bool isUp = state == "up" || state == "unknown";
      if (!isUp || numberOf(lineOf(path + "/type"), 0) == kLoopback) continue;
      const std::vector<std::string> chain = chainOf(realPath(path));
      behind_[chain.empty() ? "" : chain.back()].interfaces.push_back(name);
    }
  }

  void readDevices() {
    const std::string folder = sys_ + "/bus/pci/devices";
    const std::vector<std::string> names = namesIn(folder);
    if (names.empty())
      assume(folder +
             " is empty: no PCI devices are known (a container or a small virtual machine)");
    for (const std::string& busId : names) {
      const auto ports = behind_.find(busId);
      const std::string path = folder + "/" + busId;
      const auto deviceClass = static_cast<uint32_t>(numberOf(lineOf(path + "/class"), 0)) >> 16;
      const bool isGpu = deviceClass == kClassDisplay || deviceClass == kClassAccelerator;
      if (!isGpu && ports == behind_.end()) continue;
      PciDevice* device = place(busId, path);
      if (device == nullptr || ports == behind_.end()) continue;
      Nic nic = nicOf(ports->second);
      if (!nic.ports.empty()) device->nics.push_back(std::move(nic));
    }
  }

  // An adapter stands for its interfaces; one without an active port leaves them to speak for
  // themselves.
  Nic nicOf(const Behind& behind) {
    Nic nic;
    for (const std::string& adapter : behind.adapters) addAdapterPorts(adapter, nic);
    if (!nic.ports.empty()) return nic;
    for (const std::string& name : behind.interfaces) nic.ports.push_back(interfacePort(name));
    return nic;
  }

  // Devices of no PCI place: a container's veth, a small virtual machine's. Where there are others,
  // these (bridges, tunnels, bonds) are ways to them.
  void addVirtualPorts() {
    const auto found = behind_.find("");
    if (nextPort_ > 0 || found == behind_.end()) return;
    const Nic nic = nicOf(found->second);
    for (const NetPort& port : nic.ports)
      description_.cpus.front().nics.push_back(Nic{.ports = {port}});
  }

  // The device in its place in the tree, with the bridges above it; those are made as they are met.
  PciDevice* place(const std::string& busId, const std::string& path) {
    std::vector<std::string> chain = chainOf(realPath(path));
    if (chain.empty() || chain.back() != busId)
      chain = {busId};  // a virtual machine may show no tree
    if (chain.size() > kMaxPciDepth) {
      assume(fmt::format("{} hangs more than {} bridges deep: left out", busId, kMaxPciDepth));
      return nullptr;
    }
    PciDevice* at = nullptr;
    for (const std::string& each : chain) {
      if (at == nullptr) {
        const auto [root, isNew] = roots_.try_emplace(each);
        if (isNew) root->second = describe(each);
        at = &root->second;
        continue;
      }
      const auto child = std::ranges::find(at->children, each, &PciDevice::busId);
      if (child != at->children.end()) {
        at = &*child;
      } else {
        at->children.push_back(describe(each));
        at = &at->children.back();
      }
    }
    return at;
  }

  PciDevice describe(const std::string& busId) const {
    const std::string path = sys_ + "/bus/pci/devices/" + busId;
    PciDevice device{.busId = busId};
    device.deviceClass = static_cast<uint32_t>(numberOf(lineOf(path + "/class"), 0));
    device.ids = {lineOf(path + "/vendor").value_or(""), lineOf(path + "/device").value_or(""),
                  lineOf(path + "/subsystem_vendor").value_or(""),
                  lineOf(path + "/subsystem_device").value_or("")};
    // The maximum of the device, not the moment's speed: idle GPUs slow their link down.
    device.linkSpeed = lineOf(path + "/max_link_speed").value_or("");
    if (device.linkSpeed.starts_with("Unknown")) device.linkSpeed.clear();
    const int64_t lanes = numberOf(lineOf(path + "/max_link_width"), 0);
    if (lanes > 0 && lanes <= kMaxLanes) device.linkWidth = static_cast<int32_t>(lanes);
    return device;
  }

  CpuNode& cpuOf(const std::string& busId) {
    const int64_t numa = numberOf(lineOf(sys_ + "/bus/pci/devices/" + busId + "/numa_node"), -1);
    const auto found = std::ranges::find(description_.cpus, numa, &CpuNode::numaId);
    if (found != description_.cpus.end()) return *found;
    if (description_.cpus.size() > 1) ++unplaced_;
    return description_.cpus.front();
  }

  // RDMA ports, of which "rate" says e.g. "200 Gb/sec (4X HDR)".
  void addAdapterPorts(const std::string& name, Nic& nic) {
    const std::string path = sys_ + "/class/infiniband/" + name;
    for (const std::string& number : namesIn(path + "/ports")) {
      const std::string port = path + "/ports/" + number;
      const std::optional<std::string> state = lineOf(port + "/state");
      if (state && !state->starts_with("4:")) continue;  // not ACTIVE
      NetPort entry{
          .name = name, .device = nextPort_++, .port = static_cast<int32_t>(numberOf(number, 1))};
      double gigabits = 0;
      const std::string rate = lineOf(port + "/rate").value_or("");
      std::from_chars(rate.data(), rate.data() + rate.size(), gigabits);
      entry.speedMbps = static_cast<int64_t>(gigabits * 1000);
      entry.guid = guidOf(lineOf(path + "/node_guid").value_or(""));
      nic.ports.push_back(std::move(entry));
    }
  }

  static uint64_t guidOf(std::string text) {
    std::erase(text, ':');
    uint64_t guid = 0;
    std::from_chars(text.data(), text.data() + text.size(), guid, 16);
    return guid;
  }

  NetPort interfacePort(const std::string& name) {
    NetPort port{.name = name, .device = nextPort_++};
    const std::string path = sys_ + "/class/net/" + name + "/speed";
    port.speedMbps = std::clamp<int64_t>(numberOf(lineOf(path), 0), 0, 100'000'000);
    return port;
  }

  const Options& options_;
  const std::string sys_;
  Description description_;
  std::map<std::string, PciDevice> roots_;  // below each host bridge, by bus id
  std::map<std::string, Behind> behind_;    // by bus id; "" is no PCI device
  int32_t nextPort_ = 0;
  int32_t unplaced_ = 0;
};

}  // namespace

Result<Description> read(const Options& options) { return Reader(options).read(); }

}  // namespace tutti::topology::sysfs
