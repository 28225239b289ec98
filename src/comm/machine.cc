#include "comm/machine.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "base/log.h"
#include "topology/fuse.h"
#include "topology/print.h"
#include "topology/registry.h"
#include "topology/topology.h"
#include "topology/xml.h"

namespace tutti::comm {
namespace {

using topology::Description;

constexpr bootstrap::Tag kMachineTag{uint64_t{0x4d'41'43'48} << 32};
constexpr std::string_view kProvidedFile = "/var/run/nvidia-topologyd/virtualTopology.xml";

// The first byte of a message: a machine follows; it is not known; each shall send its own.
constexpr char kMachine = 'M', kNothing = '-', kAsk = '?';

Status send(const MachineParts& parts, Rank to, char kind, std::string_view text) {
  std::string message(1, kind);
  message += text;
  return parts.bootstrap.send(to, kMachineTag, std::as_bytes(std::span(message)));
}

struct Message {
  char kind = kNothing;
  std::string text = {};
};

Result<Message> receive(const MachineParts& parts, Rank from) {
  std::vector<std::byte> bytes;
  TUTTI_TRY(parts.bootstrap.receive(from, kMachineTag,
                                    {parts.timeout, parts.abort, "sharing the topology"}, bytes));
  if (bytes.empty()) return Message{};
  Message message{.kind = static_cast<char>(bytes[0])};
  message.text.assign(reinterpret_cast<const char*>(bytes.data()) + 1, bytes.size() - 1);
  return message;
}

// The machine as text with what does not stand in XML behind it, a line each.
std::string packed(const Description& machine) {
  std::string text = topology::writeXml(machine);
  for (const std::string& line : machine.assumptions) text += fmt::format("<!--{}-->\n", line);
  return text;
}

// Nothing where it would not fit a message.
Message messageOf(const Result<Description>& machine) {
  if (!machine.ok()) return {};
  Message message{.kind = kMachine, .text = packed(machine.value())};
  if (message.text.size() < bootstrap::Bootstrap::kMaxMessageBytes) return message;
  log::warn("the topology takes {} bytes: too much to tell the other ranks of the host",
            message.text.size());
  return {};
}

Result<Description> unpacked(std::string_view text, Rank from) {
  constexpr std::string_view kBegin = "<!--", kEnd = "-->\n";
  TUTTI_TRY_ASSIGN(Description machine,
                   topology::parseXml(text, fmt::format("rank {}", index(from))));
  machine.assumptions.clear();
  for (size_t at = text.rfind("</system>"); (at = text.find(kBegin, at)) != text.npos;) {
    const size_t begin = at + kBegin.size();
    at = std::min(text.find(kEnd, begin), text.size());
    machine.assumptions.emplace_back(text.substr(begin, at - begin));
  }
  return machine;
}

topology::PciDevice* find(std::vector<topology::PciDevice>& devices, std::string_view busId) {
  for (topology::PciDevice& device : devices) {
    if (device.busId == busId) return &device;
    if (topology::PciDevice* found = find(device.children, busId)) return found;
  }
  return nullptr;
}

topology::Gpu* findGpu(Description& machine, std::string_view busId) {
  for (topology::CpuNode& cpu : machine.cpus) {
    if (topology::PciDevice* device = find(cpu.devices, busId))
      return device->gpu ? &*device->gpu : nullptr;
  }
  return nullptr;
}

bool knowsAllGpus(const MachineParts& parts, Description& machine) {
  return std::ranges::all_of(parts.host, [&](const MachineParts::Member& member) {
    return member.busId.empty() || findGpu(machine, member.busId) != nullptr;
  });
}

void forgetRanks(std::vector<topology::PciDevice>& devices) {
  for (topology::PciDevice& device : devices) {
    if (device.gpu) device.gpu->rank = -1;
    forgetRanks(device.children);
  }
}

// What the other ranks see, of whom each is asked.
Result<std::vector<Description>> askOthers(const MachineParts& parts) {
  const std::span others = std::span(parts.host).subspan(1);
  for (const MachineParts::Member& member : others) TUTTI_TRY(send(parts, member.rank, kAsk, ""));
  std::vector<Description> found;
  for (const MachineParts::Member& member : others) {
    TUTTI_TRY_ASSIGN(const Message message, receive(parts, member.rank));
    if (message.kind != kMachine) continue;
    Result<Description> part = unpacked(message.text, member.rank);
    if (part.ok()) found.push_back(std::move(part).value());
  }
  return found;
}

Result<std::optional<Description>> tell(const MachineParts& parts) {
  Result<Description> machine = parts.find();
  if (machine.ok() && parts.host.size() > 1 && !knowsAllGpus(parts, machine.value())) {
    TUTTI_TRY_ASSIGN(std::vector<Description> seen, askOthers(parts));
    seen.insert(seen.begin(), std::move(machine).value());
    machine = topology::fuse(seen);
  }
  if (machine.ok()) setRanks(parts.host, machine.value());
  const Message message = messageOf(machine);
  for (const MachineParts::Member& member : std::span(parts.host).subspan(1))
    TUTTI_TRY(send(parts, member.rank, message.kind, message.text));
  if (!machine.ok()) {
    log::warn("the topology is not known: {}", machine.status().message());
    return std::optional<Description>();
  }
  return std::optional(std::move(machine).value());
}

Result<std::optional<Description>> hear(const MachineParts& parts) {
  const Rank first = parts.host.front().rank;
  TUTTI_TRY_ASSIGN(Message message, receive(parts, first));
  if (message.kind == kAsk) {
    const Result<Description> own = parts.find();
    if (!own.ok()) log::warn("this rank's part of the topology: {}", own.status().message());
    const Message answer = messageOf(own);
    TUTTI_TRY(send(parts, first, answer.kind, answer.text));
    TUTTI_TRY_ASSIGN(message, receive(parts, first));
  }
  if (message.kind != kMachine) return std::optional<Description>();
  Result<Description> machine = unpacked(message.text, first);
  if (!machine.ok()) return std::optional<Description>();
  return std::optional(std::move(machine).value());
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

}  // namespace

void setRanks(std::span<const HostMember> host, Description& machine) {
  for (topology::CpuNode& cpu : machine.cpus) forgetRanks(cpu.devices);
  for (const HostMember& member : host) {
    topology::Gpu* gpu = member.busId.empty() ? nullptr : findGpu(machine, member.busId);
    if (gpu != nullptr && gpu->rank < 0) gpu->rank = index(member.rank);
  }
}

Result<std::optional<Description>> shareMachine(const MachineParts& parts) {
  return parts.bootstrap.rank() == parts.host.front().rank ? tell(parts) : hear(parts);
}

Result<Description> findMachine(const Settings& settings, bool hasGpus, uint64_t hostHash) {
  topology::DiscoverOptions options{.file = settings.text("NCCL_TOPO_FILE"), .hostHash = hostHash};
  if (!hasGpus) options.nvmlLibrary.clear();
  const bool isNamed = !options.file.empty();
  if (!isNamed && hasGpus && topology::isThere(std::string(kProvidedFile)))
    options.file = kProvidedFile;
  if (!options.file.empty()) {
    Result<Description> found = topology::discover(options);
    if (found.ok() && topology::buildTopology(*found).ok()) return found;
    log::warn("{}{} is not used: this machine's own topology is taken instead",
              isNamed ? "NCCL_TOPO_FILE=" : "", options.file);
    options.file.clear();
  }
  return topology::discover(options);
}

bool wantsMachine(const Settings& settings) {
  return !settings.text("NCCL_TOPO_FILE").empty() ||
         !settings.text("NCCL_TOPO_DUMP_FILE").empty() ||
         !settings.text("NCCL_GRAPH_FILE").empty() ||
         !settings.text("NCCL_GRAPH_DUMP_FILE").empty() ||
         log::isEnabled(log::Level::kInfo, log::Subsystem::kInit);
}

void showMachine(const Settings& settings, const Description& machine, bool isFirst, Rank self) {
  const std::string& path = settings.text("NCCL_TOPO_DUMP_FILE");
  if (!path.empty() && settings.integer("NCCL_TOPO_DUMP_FILE_RANK") == index(self)) {
    const Status status = topology::writeDescription(machine, path);
    if (!status.ok()) log::warn("NCCL_TOPO_DUMP_FILE={}: {}", path, status.message());
  }
  if (!isFirst || !log::isEnabled(log::Level::kInfo, log::Subsystem::kInit)) return;
  const Result<topology::Topology> built = topology::buildTopology(machine);
  if (!built.ok()) {
    log::warn("topology: {}", built.status().message());
    return;
  }
  const std::vector<std::string>& assumed = built.value().assumptions;
  log::info(log::Subsystem::kInit, "topology from {}: {}; assumed: {}", machine.source,
            topology::summaryOf(built.value(), 0), assumed.empty() ? "nothing" : joined(assumed));
}

}  // namespace tutti::comm
