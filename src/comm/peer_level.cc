#include "comm/peer_level.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/char_field.h"
#include "base/log.h"

namespace tutti::comm {
namespace {

using topology::NodeId;
using topology::PathKind;

// Ways as they are: what may be mapped is asked of them afterwards.
topology::Paths plainPaths(topology::Topology& machine) {
  for (topology::Node& node : machine.nodes) node.gpu.peerOverPci = true;
  return topology::computePaths(machine, {.peerLevel = PathKind::kSys});
}

struct Obstacle {
  std::array<char, 240> text{};  // zero-terminated
};

}  // namespace

GpuDistances::GpuDistances(topology::Topology machine)
    : machine_(std::move(machine)), paths_(plainPaths(machine_)) {}

std::shared_ptr<const GpuDistances> GpuDistances::open(const topology::Description& machine) {
  Result<topology::Topology> built = topology::buildTopology(machine);
  if (built.ok())
    return std::shared_ptr<const GpuDistances>(new GpuDistances(std::move(built).value()));
  log::warn("NCCL_P2P_LEVEL: {}", built.status().message());
  return nullptr;
}

std::optional<PathKind> GpuDistances::between(std::string_view one, std::string_view other) const {
  if (one == other && !one.empty()) return PathKind::kLoc;
  const NodeId from = topology::findByBusId(machine_, one);
  const NodeId to = topology::findByBusId(machine_, other);
  for (const NodeId gpu : {from, to}) {
    if (gpu == topology::kNoNode || machine_[gpu].kind != topology::NodeKind::kGpu)
      return std::nullopt;
  }
  return paths_.between(from, to).kind;
}

void notePeerLevel(InitRecord& own, const Settings& settings) {
  constexpr std::string_view kName = "NCCL_P2P_LEVEL";
  if (own.gpuHash == 0) return;
  Result<std::optional<PathKind>> level = topology::parseLevel(kName, settings.text(kName));
  if (!level.ok() || !*level) return;  // the table admits levels only
  own.peerLevel = static_cast<int32_t>(**level);
  own.wantsMachine = 1;
}

std::optional<PeerLevel> closestLevel(std::span<const InitRecord> records) {
  std::optional<PeerLevel> closest;
  for (const InitRecord& record : records) {
    if (record.peerLevel < 0 || record.peerLevel > static_cast<int32_t>(PathKind::kDis)) continue;
    const auto kind = static_cast<PathKind>(record.peerLevel);
    if (!closest || topology::isCloser(kind, closest->kind))
      closest = PeerLevel{.kind = kind, .rank = record.peer.rank};
  }
  return closest;
}

PeerView judgePeers(std::span<const HostMember> host, Rank self, const PeerLevel& level,
                    const GpuDistances* distances) {
  PeerView view;
  const auto own = std::ranges::find(host, self, &HostMember::rank);
  for (const HostMember& peer : host) {
    if (peer.rank == self || (peer.busId == own->busId && !peer.busId.empty())) continue;
    const auto kind =
        distances == nullptr ? std::nullopt : distances->between(own->busId, peer.busId);
    const bool isNever = level.kind == PathKind::kLoc;
    if (!kind && !isNever) {
      view.lines.push_back(fmt::format(
          "how far GPU {} of rank {} is from GPU {} of rank {} is not known: not NCCL_P2P_LEVEL, "
          "the driver decides whether they map each other's memory",
          own->busId, index(self), peer.busId, index(peer.rank)));
    }
    if (kind ? topology::isWithin(*kind, level.kind) : !isNever) continue;
    view.farPeers.push_back(index(peer.rank));
    view.lines.push_back(fmt::format(
        "GPU {} of rank {} and GPU {} of rank {} do not use each other's memory: {}, where rank {} "
        "wants {} or closer (NCCL_P2P_LEVEL)",
        own->busId, index(self), peer.busId, index(peer.rank),
        kind ? topology::nameOf(*kind) : "two GPUs", level.rank, topology::nameOf(level.kind)));
    if (view.obstacle.empty()) view.obstacle = view.lines.back();
  }
  return view;
}

Result<std::string> agreeOnPeers(bootstrap::Bootstrap& bootstrap, const std::string& own) {
  std::vector<Obstacle> obstacles(static_cast<size_t>(bootstrap.rankCount()));
  setText(obstacles[static_cast<size_t>(index(bootstrap.rank()))].text, own);
  TUTTI_TRY(bootstrap.allGather(std::as_writable_bytes(std::span(obstacles)), sizeof(Obstacle),
                                "the agreement on NCCL_P2P_LEVEL"));
  for (const Obstacle& obstacle : obstacles) {
    if (obstacle.text.front() != '\0') return std::string(textOf(obstacle.text));
  }
  return std::string();
}

}  // namespace tutti::comm
