#include "topology/readers/nvml/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace tutti::topology::nvml {
namespace {

// The part of NVML's stable C interface that is used; numbers as its reference manual has them.
constexpr int kSuccess = 0;
constexpr unsigned kMaxNvLinks = 36;  // more than any GPU has; links that are not there answer with
                                      // an error
constexpr uint32_t kMaxC2cLinks = 64;
constexpr unsigned kRemoteGpu = 0, kRemoteCpu = 1, kRemoteSwitch = 2;
constexpr unsigned kP2pRead = 0;  // NVML_P2P_CAPS_INDEX_READ
constexpr unsigned kEnabled = 1;

using Device = void*;
struct PciInfo {
  std::array<char, 16> busIdLegacy;
  unsigned domain, bus, device, deviceId, subsystemId;
  std::array<char, 32> busId;
};
static_assert(sizeof(PciInfo) == 68);

// One answer of nvmlDeviceGetFieldValues.
struct FieldValue {
  unsigned fieldId, scopeId;
  long long timestamp, latencyUs;
  int valueType, code;
  uint64_t value;  // a union; the numbers asked for here are 32-bit
};
static_assert(sizeof(FieldValue) == 40);
constexpr unsigned kC2cCount = 170, kC2cState = 171, kC2cMbPerSecond = 172;

struct Library {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Device*) = nullptr;
  int (*pciInfo)(Device, PciInfo*) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
  int (*linkState)(Device, unsigned, unsigned*) = nullptr;
  int (*linkRemote)(Device, unsigned, PciInfo*) = nullptr;
  int (*linkRemoteType)(Device, unsigned, unsigned*) = nullptr;  // may be missing in old drivers
  int (*p2pStatus)(Device, Device, unsigned, unsigned*) = nullptr;
  int (*migMode)(Device, unsigned*, unsigned*) = nullptr;  // the same
  int (*fieldValues)(Device, int, FieldValue*) = nullptr;  // the same
};

template <typename Function>
bool load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

bool loadAll(void* handle, Library& nvml) {
  load(handle, "nvmlDeviceGetNvLinkRemoteDeviceType", nvml.linkRemoteType);
  load(handle, "nvmlDeviceGetMigMode", nvml.migMode);
  load(handle, "nvmlDeviceGetFieldValues", nvml.fieldValues);
  return load(handle, "nvmlInit_v2", nvml.init) && load(handle, "nvmlShutdown", nvml.shutdown) &&
         load(handle, "nvmlDeviceGetCount_v2", nvml.count) &&
         load(handle, "nvmlDeviceGetHandleByIndex_v2", nvml.handle) &&
         load(handle, "nvmlDeviceGetPciInfo_v3", nvml.pciInfo) &&
         load(handle, "nvmlDeviceGetCudaComputeCapability", nvml.capability) &&
         load(handle, "nvmlDeviceGetNvLinkState", nvml.linkState) &&
         load(handle, "nvmlDeviceGetNvLinkRemotePciInfo_v2", nvml.linkRemote) &&
         load(handle, "nvmlDeviceGetP2PStatus", nvml.p2pStatus);
}

// "00000000:0F:00.0" as NVML writes it -> "0000:0f:00.0" as the kernel does.
std::string busIdOf(const PciInfo& info) {
  std::string text(info.busId.data(), std::find(info.busId.begin(), info.busId.end(), '\0'));
  for (char& c : text) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  if (text.find(':') == 8 && text.starts_with("0000")) text.erase(0, 4);
  return text;
}

PciDevice* find(std::vector<PciDevice>& devices, std::string_view busId) {
  for (PciDevice& device : devices) {
    if (device.busId == busId) return &device;
    if (PciDevice* found = find(device.children, busId)) return found;
  }
  return nullptr;
}

class Reader {
 public:
  Reader(const Library& nvml, Description& description) : nvml_(nvml), description_(description) {}

  Status read() {
    unsigned count = 0;
    TUTTI_TRY(check("nvmlDeviceGetCount_v2", nvml_.count(&count)));
    for (unsigned i = 0; i < count; ++i) {
      Device device = nullptr;
      // A GPU that another user has exclusively or that fell off the bus: the others are still
      // there.
      if (const int code = nvml_.handle(i, &device); code != kSuccess) {
        assume(fmt::format("GPU {}: NVML gives no access to it (error {}): left out", i, code));
        continue;
      }
      PciInfo info{};
      TUTTI_TRY(check("nvmlDeviceGetPciInfo_v3", nvml_.pciInfo(device, &info)));
      gpus_.push_back({.number = static_cast<int32_t>(i),
                       .handle = device,
                       .info = info,
                       .busId = busIdOf(info)});
    }
    for (const Entry& entry : gpus_) TUTTI_TRY(add(entry));
    return {};
  }

 private:
  struct Entry {
    int32_t number = 0;
    Device handle = nullptr;
    PciInfo info = {};
    std::string busId = {};
  };

  static Status check(std::string_view call, int code) {
    if (code == kSuccess) return {};
    return makeError(Code::kSystemError, fmt::format("{}: NVML error {}", call, code));
  }

  void assume(std::string line) { description_.assumptions.push_back(std::move(line)); }

  Status add(const Entry& entry) {
    PciDevice* device = nullptr;
    for (CpuNode& cpu : description_.cpus) {
      if (device == nullptr) device = find(cpu.devices, entry.busId);
    }
    if (device == nullptr) {
      assume(fmt::format("{}: GPU {} has no place in the PCI tree: put below the first CPU",
                         entry.busId, entry.number));
      std::vector<PciDevice>& devices = description_.cpus.front().devices;
      devices.push_back({.busId = entry.busId, .deviceClass = 0x030200});
      device = &devices.back();
    }
    Gpu gpu{.device = entry.number};
    int major = 0;
    int minor = 0;
    TUTTI_TRY(check("nvmlDeviceGetCudaComputeCapability",
                    nvml_.capability(entry.handle, &major, &minor)));
    gpu.smVersion = 10 * major + minor;
    // NVML does not say; boards with a display (GeForce) have no GPUDirect, those without do.
    gpu.directNet = (device->deviceClass & 0xffff00) == 0x030200;
    if (isSplit(entry)) {
      assume(fmt::format(
          "GPU {} is split into instances (MIG): no NVLink and no peer access between them assumed",
          entry.number));
      gpu.peerOverPci = false;
    } else {
      addLinks(entry, gpu);
      gpu.c2c = c2cOf(entry);
      gpu.peerOverPci = mayAccessPeers(entry);
    }
    device->gpu = std::move(gpu);
    return {};
  }

  bool isSplit(const Entry& entry) const {
    unsigned current = 0;
    unsigned pending = 0;
    return nvml_.migMode != nullptr &&
           nvml_.migMode(entry.handle, &current, &pending) == kSuccess && current == kEnabled;
  }

  // Of any other; without others it stays unknown. A pair that the chipset keeps apart is far apart
  // anyway, a GPU that the driver keeps to itself (GeForce) has no pair at all.
  std::optional<bool> mayAccessPeers(const Entry& entry) const {
    std::optional<bool> may;
    for (const Entry& other : gpus_) {
      unsigned status = 0;
      if (other.number == entry.number) continue;
      if (nvml_.p2pStatus(entry.handle, other.handle, kP2pRead, &status) != kSuccess) continue;
      may = may.value_or(false) || status == 0;
    }
    return may;
  }

  void addLinks(const Entry& entry, Gpu& gpu) {
    for (unsigned link = 0; link < kMaxNvLinks; ++link) {
      unsigned state = 0;
      PciInfo remote{};
      if (nvml_.linkState(entry.handle, link, &state) != kSuccess || state != kEnabled) continue;
      if (nvml_.linkRemote(entry.handle, link, &remote) != kSuccess) continue;
      const std::string target = busIdOf(remote);
      const bool isGpu =
          std::ranges::any_of(gpus_, [&](const Entry& each) { return each.busId == target; });
      unsigned type = isGpu ? kRemoteGpu : kRemoteSwitch;
      if (nvml_.linkRemoteType != nullptr)
        static_cast<void>(nvml_.linkRemoteType(entry.handle, link, &type));
      if (isGpu) type = kRemoteGpu;
      if (type == kRemoteGpu && !isGpu) continue;  // a GPU that this process may not use
      count(gpu, target,
            type == kRemoteGpu   ? NvLinkTarget::kGpu
            : type == kRemoteCpu ? NvLinkTarget::kCpu
                                 : NvLinkTarget::kSwitch);
    }
  }

  // 32 bits, and nothing where the driver or the GPU does not know the field.
  std::optional<uint32_t> field(const Entry& entry, unsigned id, unsigned link) const {
    FieldValue value{};
    value.fieldId = id, value.scopeId = link;
    if (nvml_.fieldValues == nullptr) return std::nullopt;
    if (nvml_.fieldValues(entry.handle, 1, &value) != kSuccess || value.code != kSuccess)
      return std::nullopt;
    return static_cast<uint32_t>(value.value);
  }

  // Links to the GPU's own CPU: those that are up, with the speed of the slowest.
  std::optional<C2cBundle> c2cOf(const Entry& entry) const {
    C2cBundle bundle{.count = 0};
    const uint32_t count = std::min(field(entry, kC2cCount, 0).value_or(0), kMaxC2cLinks);
    for (uint32_t link = 0; link < count; ++link) {
      const double speed = field(entry, kC2cMbPerSecond, link).value_or(0);
      if (field(entry, kC2cState, link) != 1U || speed <= 0) continue;
      bundle.mbPerSecond = bundle.count == 0 ? speed : std::min(bundle.mbPerSecond, speed);
      ++bundle.count;
    }
    if (bundle.count == 0) return std::nullopt;
    return bundle;
  }

  // All links to switches are one bundle: the switches are one for the model.
  static void count(Gpu& gpu, const std::string& target, NvLinkTarget kind) {
    const auto known = std::ranges::find_if(gpu.nvLinks, [&](const NvLinkBundle& each) {
      return each.target == kind && (kind != NvLinkTarget::kGpu || each.targetBusId == target);
    });
    if (known != gpu.nvLinks.end()) {
      ++known->count;
    } else {
      gpu.nvLinks.push_back({.targetBusId = target, .target = kind, .count = 1});
    }
  }

  const Library& nvml_;
  Description& description_;
  std::vector<Entry> gpus_;
};

}  // namespace

Status addGpus(const Options& options, Description& description) {
  struct Close {
    void operator()(void* library) const { ::dlclose(library); }
  };
  const std::unique_ptr<void, Close> handle(
      ::dlopen(options.library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (handle == nullptr) {
    description.assumptions.push_back(
        fmt::format("{} cannot be opened: no NVIDIA GPUs are known", options.library));
    return {};
  }
  Library nvml;
  if (!loadAll(handle.get(), nvml)) {
    description.assumptions.push_back(
        fmt::format("{} is too old: no NVIDIA GPUs are known", options.library));
    return {};
  }
  if (const int code = nvml.init(); code != kSuccess) {
    description.assumptions.push_back(
        fmt::format("NVML does not start (error {}): no NVIDIA GPUs are known", code));
    return {};
  }
  Status status = Reader(nvml, description).read();
  nvml.shutdown();
  return status;
}

}  // namespace tutti::topology::nvml
