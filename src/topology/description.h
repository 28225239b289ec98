// What a reader found out about a machine, before anything is concluded from it: the tree of
// processors, PCI devices, GPUs and NICs. It is what the topology XML holds (NCCL_TOPO_FILE,
// NCCL_TOPO_DUMP_FILE), so it can be written and read again without loss; discovery, node profiles
// and fusing work on it too. topology.h makes the graph.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::topology {

enum class CpuArch : uint8_t { kUnknown, kX86, kArm64, kPower };
enum class CpuVendor : uint8_t { kUnknown, kIntel, kAmd, kZhaoxin };

// Where in a file something stands; line 0 when it comes from no file.
struct Position {
  int32_t line = 0;
  int32_t column = 0;
  // Two descriptions are the same wherever they were written.
  bool operator==(const Position&) const { return true; }
};

struct NetPort {
  std::string name = {};  // "mlx5_0"
  int32_t device = 0;     // number among the host's ports
  int64_t speedMbps = 0;  // megabits a second; 0: not known
  int32_t port = 0;
  double latencyUs = 0;
  uint64_t guid = 0;
  int32_t maxConnections = 0;
  bool directGpu = false;           // attribute gdr
  bool inNetworkReduction = false;  // attribute coll
  int32_t rail = -1;
  Position position = {};
  bool operator==(const NetPort&) const = default;
};

struct Nic {
  std::vector<NetPort> ports = {};
  Position position = {};
  bool operator==(const Nic&) const = default;
};

enum class NvLinkTarget : uint8_t { kGpu, kSwitch, kCpu };

struct NvLinkBundle {
  std::string targetBusId = {};  // NVSwitches have made-up or shared ones
  NvLinkTarget target = NvLinkTarget::kGpu;
  int32_t count = 1;    // links in the bundle
  bool isXgmi = false;  // AMD's GPU links
  Position position = {};
  bool operator==(const NvLinkBundle&) const = default;
};

struct C2cBundle {
  int32_t count = 1;
  double mbPerSecond = 0;  // of one link, as the XML has it
  Position position = {};
  bool operator==(const C2cBundle&) const = default;
};

struct Gpu {
  int32_t device = 0;
  int32_t rank = -1;  // -1: of no rank
  int32_t smVersion = 0;
  bool directNet = false;    // attribute gdr
  std::string amdName = {};  // attribute gcn: "gfx942"; "" for NVIDIA
  // Whether other GPUs may access its memory over PCI (attribute p2p, ours); nullopt: not known.
  std::optional<bool> peerOverPci = std::nullopt;
  std::vector<NvLinkBundle> nvLinks = {};
  std::optional<C2cBundle> c2c = {};
  Position position = {};
  bool operator==(const Gpu&) const = default;
};

struct PciIds {
  std::string vendor = {}, device = {}, subsystemVendor = {}, subsystemDevice = {};  // "0x10de", ""
                                                                                     // when not
                                                                                     // known
  bool operator==(const PciIds&) const = default;
};

struct PciDevice {
  std::string busId = {};    // "0000:0f:00.0"
  uint32_t deviceClass = 0;  // 0x060400 a bridge, 0x030200 a GPU, 0x020000 or 0x020700 a NIC
  PciIds ids = {};
  std::string linkSpeed = {};  // "16.0 GT/s PCIe"; "" when not known
  int32_t linkWidth = 0;       // lanes; 0 when not known
  std::optional<Gpu> gpu = {};
  std::vector<Nic> nics = {};
  std::vector<std::string> peers = {};  // bus ids of switches joined by a PCI fabric
  std::vector<PciDevice> children = {};
  Position position = {};
  bool operator==(const PciDevice&) const = default;
};

struct CpuNode {
  uint64_t hostHash = 0;
  int32_t numaId = 0;         // -1: the machine does not say
  std::string affinity = {};  // hex mask, 32 bits a word, commas between
  CpuArch arch = CpuArch::kUnknown;
  CpuVendor vendor = CpuVendor::kUnknown;
  int32_t family = 0;
  int32_t model = 0;
  std::vector<PciDevice> devices = {};
  std::vector<Nic> nics = {};  // network devices without a PCI place: bridges, virtual ones
  Position position = {};
  bool operator==(const CpuNode&) const = default;
};

struct Description {
  std::string source = {};  // a file's path, "this machine": for messages
  std::vector<CpuNode> cpus = {};
  std::vector<std::string> assumptions = {};  // one line each; not written to XML

  // Equal machines, whatever they were read from.
  bool operator==(const Description& other) const { return cpus == other.cpus; }
};

}  // namespace tutti::topology
