#include "comm/gpu_direct.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/char_field.h"
#include "launch/device_folder.h"
#include "wire/gpu_fold.h"

namespace tutti::comm {
namespace {

using topology::NodeId;
using topology::PathKind;

constexpr int32_t kFirstSmToRead = 80;

// What the machine's description says of GPUDirect is about other software: the adapters have
// spoken for themselves, and only distances are asked for here.
class Distances {
 public:
  explicit Distances(const GpuPlace& place) {
    if (place.machine == nullptr) return;
    topology_ = *place.machine;
    for (topology::Node& node : topology_.nodes) {
      node.gpu.directNet = true;
      node.net.directGpu = true;
    }
    topology::PathPolicy policy;
    policy.directNetLevel = PathKind::kSys;
    policy.relayToNics = false;
    paths_ = topology::computePaths(topology_, policy);
    gpu_ = place.gpu;
  }

  int32_t smVersion() const {
    return gpu_ == topology::kNoNode ? 0 : topology_[gpu_].gpu.smVersion;
  }

  PathKind to(const net::Adapter& adapter) const {
    if (gpu_ == topology::kNoNode) return PathKind::kPhb;
    const std::string_view place = adapter.place;
    const std::string_view busId = place.substr(place.rfind('/') + 1);
    const int32_t host = topology_[gpu_].host;
    for (const NodeId port : topology::nodesOf(topology_, topology::NodeKind::kNet, host)) {
      if (busId.empty() ? topology_[port].net.device != adapter.name : !isOf(port, busId)) continue;
      return paths_.between(gpu_, port).kind;
    }
    return PathKind::kPhb;
  }

 private:
  bool isOf(NodeId port, std::string_view busId) const {
    for (NodeId node = port; node != topology::kNoNode; node = topology_[node].parent) {
      if (!topology_[node].busId.empty()) return topology_[node].busId == busId;
    }
    return false;
  }

  topology::Topology topology_;
  topology::Paths paths_;
  NodeId gpu_ = topology::kNoNode;
};

std::string obstacleTo(const net::Adapter& adapter, PathKind distance,
                       const GpuDirectRules& rules) {
  if (!adapter.canReachGpus()) return fmt::format("{} moves memory of the host only", adapter.name);
  if (!adapter.takesGpuMemory && !rules.usesDmaBuffers)
    return fmt::format("{} takes DMA buffers only, and NCCL_DMABUF_ENABLE=0", adapter.name);
  const PathKind level = rules.level.value_or(rules.overC2c ? PathKind::kP2c : PathKind::kPxb);
  if (topology::isWithin(distance, level)) return {};
  return fmt::format("{} is {} from the GPU, farther than {} (NCCL_NET_GDR_LEVEL)", adapter.name,
                     topology::nameOf(distance), topology::nameOf(level));
}

// Of those without an obstacle, the nearest.
std::vector<size_t> nearest(const std::vector<std::string>& obstacles,
                            const std::vector<PathKind>& distances) {
  std::vector<size_t> found;
  for (size_t i = 0; i < obstacles.size(); ++i) {
    if (!obstacles[i].empty()) continue;
    if (!found.empty() && topology::isCloser(distances[i], distances[found.front()])) found.clear();
    if (found.empty() || !topology::isCloser(distances[found.front()], distances[i]))
      found.push_back(i);
  }
  return found;
}

struct Offer {
  int32_t canReach = 0;
  int32_t canFold = 0;
  uint64_t fromBytes = 0;
  std::array<char, 240> obstacle{};  // zero-terminated
};

}  // namespace

GpuDirectRules gpuDirectRulesOf(const Settings& settings) {
  Result<std::optional<PathKind>> level =
      topology::parseLevel("NCCL_NET_GDR_LEVEL", settings.text("NCCL_NET_GDR_LEVEL"));
  return {.level = level.ok() ? *level : std::nullopt,  // the table admits levels only
          .overC2c = settings.integer("NCCL_NET_GDR_C2C") != 0,
          .read = settings.integer("NCCL_NET_GDR_READ"),
          .usesDmaBuffers = settings.integer("NCCL_DMABUF_ENABLE") != 0};
}

GpuDirectView judgeGpuDirect(std::span<const net::Adapter> adapters, const GpuPlace& place,
                             const GpuDirectRules& rules) {
  GpuDirectView view;
  view.slots.usesDmaBuffers = rules.usesDmaBuffers;
  if (adapters.empty()) {
    view.obstacle = "the network between the hosts moves memory of the host only";
    return view;
  }
  const Distances distances(place);
  std::string noReads;
  if (rules.read == 0) noReads = "NCCL_NET_GDR_READ=0";
  const int32_t sm = distances.smVersion();
  if (rules.read < 0 && sm != 0 && sm < kFirstSmToRead)
    noReads = fmt::format(
        "adapters are slow to read from a GPU of compute capability {}.{} "
        "(NCCL_NET_GDR_READ=1 lets them)",
        sm / 10, sm % 10);
  for (const net::Adapter& adapter : adapters) {
    const PathKind distance = distances.to(adapter);
    const std::string obstacle = obstacleTo(adapter, distance, rules);
    view.distances.push_back(distance);
    view.slots.receiveObstacles.push_back(obstacle);
    view.slots.sendObstacles.push_back(obstacle.empty() ? noReads : obstacle);
    if (!view.description.empty()) view.description += "; ";
    view.description += obstacle.empty()
                            ? fmt::format("{} ({})", adapter.name, topology::nameOf(distance))
                            : obstacle;
  }
  if (!noReads.empty()) view.description += fmt::format("; sends go through the host: {}", noReads);
  view.slots.receiveAdapters = nearest(view.slots.receiveObstacles, view.distances);
  view.slots.sendAdapters = nearest(view.slots.sendObstacles, view.distances);
  if (view.slots.receiveAdapters.empty()) view.obstacle = view.description;
  return view;
}

Result<GpuDirectAgreement> agreeOnGpuDirect(bootstrap::Bootstrap& bootstrap,
                                            const GpuDirectView& own, uint64_t fromBytes) {
  std::vector<Offer> offers(static_cast<size_t>(bootstrap.rankCount()));
  Offer& mine = offers[static_cast<size_t>(index(bootstrap.rank()))];
  mine.canReach = own.obstacle.empty() ? 1 : 0;
  mine.canFold = launch::DeviceFolder::canFold() ? 1 : 0;
  mine.fromBytes = fromBytes;
  setText(mine.obstacle, own.obstacle);
  TUTTI_TRY(bootstrap.allGather(std::as_writable_bytes(std::span(offers)), sizeof(Offer),
                                "the agreement on GPUDirect"));
  GpuDirectAgreement agreement{.isUsed = true, .foldsOnGpu = true};
  if (offers.size() > static_cast<size_t>(wire::kGpuFoldOperands)) {
    agreement.isUsed = false;
    agreement.reason = fmt::format("{} ranks, of as many as {} of which a GPU folds the parts",
                                   offers.size(), wire::kGpuFoldOperands);
  }
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    Offer& offer = offers[rank];
    offer.obstacle.back() = '\0';
    agreement.foldsOnGpu = agreement.foldsOnGpu && offer.canFold != 0;
    agreement.fromBytes = std::max(agreement.fromBytes, offer.fromBytes);
    if (offer.canReach != 0 || !agreement.isUsed) continue;
    agreement.isUsed = false;
    agreement.reason = fmt::format("rank {}: {}", rank, textOf(offer.obstacle));
  }
  return agreement;
}

}  // namespace tutti::comm
