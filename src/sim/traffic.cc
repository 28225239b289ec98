#include "sim/traffic.h"

#include <algorithm>

#include "base/fnv.h"
#include "base/units.h"
#include "plan/plan.h"
#include "schedule/catalog.h"
#include "schedule/linked_tree.h"
#include "sim/hops.h"

namespace tutti::sim {
namespace {

using graph::Protocol;
using schedule::Place;
using schedule::Program;

// LL128 carries 120 bytes of data in a line of 128, LL 4 in 8.
constexpr uint64_t kLl128Line = 128, kLl128Data = 120;
// What a slot of each protocol holds.
constexpr size_t kLlSlotBytes = 32_KiB, kLl128SlotBytes = 75_KiB * 8, kSimpleSlotBytes = 512_KiB;
// NCCL's trees cut no shorter messages, so that each is worth its flags.
constexpr size_t kLeastPipelinedBytes = 32_KiB;

bool isCircle(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kAllGather ||
         collective == Collective::kReduceScatter;
}

// The length of messages that the library's own planner gives CPU ranks for this algorithm.
Result<size_t> plannedPieceBytes(const Cluster& cluster, const VirtualPlan& graphs,
                                 const SimCall& call, std::string_view algorithm) {
  const auto blocks =
      static_cast<uint64_t>(schedule::blockCount(call.collective, cluster.rankCount()));
  plan::Planner planner(agreementOf(cluster, graphs, algorithm));
  TUTTI_TRY_ASSIGN(
      const plan::Plan plan,
      planner.make(
          {.collective = call.collective,
           .type = call.type,
           .peer = call.collective == Collective::kSend ? Rank{1 % cluster.rankCount()} : call.root,
           .count = divideUp(call.bytes / blocks, sizeOf(call.type))}));
  return plan.layout.pieceElements * sizeOf(call.type);
}

}  // namespace

plan::Agreement agreementOf(const Cluster& cluster, const VirtualPlan& plan,
                            std::string_view algorithms) {
  constexpr size_t kUsualBufferBytes = 512_KiB;  // NCCL_BUFFSIZE
  const bool isOneHost = cluster.nodeCount() == 1;
  const wire::LinkGeometry geometry = plan::linkGeometry(kUsualBufferBytes);
  return {.rankCount = cluster.rankCount(),
          .geometry = isOneHost ? geometry : plan::acrossHosts(geometry),
          .algorithms = std::string(algorithms),
          .isOneHost = isOneHost,
          .hostOf = plan.hostOf,
          .order = plan.order};
}

uint64_t wireBytes(Protocol protocol, uint64_t bytes) {
  switch (protocol) {
    case Protocol::kLl: return 2 * roundUp(bytes, sizeof(uint32_t));
    case Protocol::kLl128: return divideUp(bytes, kLl128Data) * kLl128Line;
    case Protocol::kSimple: return bytes;
  }
  return bytes;
}

double wireFactor(Protocol protocol) {
  constexpr uint64_t kWhole = 120'000;  // whole lines of any protocol
  return static_cast<double>(wireBytes(protocol, kWhole)) / static_cast<double>(kWhole);
}

size_t slotBytes(Protocol protocol) {
  switch (protocol) {
    case Protocol::kLl: return kLlSlotBytes;
    case Protocol::kLl128: return kLl128SlotBytes;
    case Protocol::kSimple: return kSimpleSlotBytes;
  }
  return kSimpleSlotBytes;
}

size_t pipelinedPieceBytes(Protocol protocol, uint64_t chunkBytes, int64_t hops) {
  size_t bytes = slotBytes(protocol);
  while (bytes >= 2 * kLeastPipelinedBytes && chunkBytes < bytes * static_cast<uint64_t>(hops))
    bytes /= 2;
  return bytes;
}

uint64_t Lane::bytesOf(int32_t chunk, size_t piece) const {
  const auto position = static_cast<size_t>(chunk % layout.chunksPerBlock);
  const size_t start = position * layout.chunkElements + piece * layout.pieceElements;
  const size_t chunkEnd = std::min(layout.blockElements, (position + 1) * layout.chunkElements);
  if (start >= chunkEnd) return 0;
  return std::min(layout.pieceElements, chunkEnd - start) * elementBytes;
}

Result<Traffic> Traffic::make(const Cluster& cluster, const VirtualPlan& plan, const SimCall& call,
                              const Method& method) {
  Traffic traffic;
  traffic.cluster_ = &cluster;
  traffic.plan_ = &plan;
  traffic.call_ = call;
  traffic.method_ = method;
  traffic.algorithm_ = schedule::findAlgorithm(call.collective, method.algorithm);
  if (traffic.algorithm_ == nullptr)
    return invalidArgument("{} has no algorithm {}", name(call.collective), method.algorithm);
  if (index(call.root) < 0 || index(call.root) >= cluster.rankCount() || index(call.sender) < 0 ||
      index(call.sender) >= cluster.rankCount())
    return invalidArgument("root {} or sender {} is none of the ranks 0 to {}", index(call.root),
                           index(call.sender), cluster.rankCount() - 1);
  const bool isAllReduceTree =
      call.collective == Collective::kAllReduce && traffic.algorithm_->name == "tree";
  // CPU ranks follow the catalogue's trees, in the order of their places.
  traffic.followsLinks_ =
      isAllReduceTree && cluster.hasGpus() && plan.merged.treeChannelCount() > 0;
  traffic.isRing_ = traffic.algorithm_->name == "ring" && isCircle(call.collective);
  const int32_t most =
      traffic.followsLinks_ ? plan.merged.treeChannelCount() : std::max(plan.merged.ringCount(), 1);
  traffic.method_.channelCount = std::clamp(method.channelCount, 1, cluster.hasGpus() ? 64 : 1);
  if (traffic.followsLinks_ || traffic.isRing_)
    traffic.method_.channelCount = std::min(traffic.method_.channelCount, 4 * most);
  traffic.chunkCount_ = traffic.followsLinks_
                            ? (cluster.rankCount() == 1 ? 1 : plan.merged.treesPerChannel())
                            : traffic.algorithm_->chunkCount(cluster.rankCount());
  if (method.pieceBytes > 0) return traffic;
  if (!cluster.hasGpus()) {
    TUTTI_TRY_ASSIGN(traffic.method_.pieceBytes,
                     plannedPieceBytes(cluster, plan, call, traffic.algorithm_->name));
  } else {
    traffic.method_.pieceBytes =
        traffic.isPipeline()
            ? pipelinedPieceBytes(method.protocol, traffic.chunkBytes(), hopsOf(traffic).all())
            : slotBytes(method.protocol);
  }
  return traffic;
}

bool Traffic::isPipeline() const {
  if (!cluster_->hasGpus() || cluster_->nodeCount() == 1 || isRing_) return false;
  return algorithm_->name == "tree" || algorithm_->name == "ring";
}

uint64_t Traffic::chunkBytes() const {
  return divideUp(blockElements(0), static_cast<uint64_t>(chunkCount_)) * sizeOf(call_.type);
}

// Channels share each block evenly, in whole elements; the first ones take what is left over.
size_t Traffic::blockElements(int32_t channel) const {
  const auto blocks =
      static_cast<uint64_t>(schedule::blockCount(call_.collective, cluster_->rankCount()));
  const uint64_t all = divideUp(call_.bytes / blocks, sizeOf(call_.type));
  const auto channels = static_cast<uint64_t>(method_.channelCount);
  const auto number = static_cast<uint64_t>(channel);
  return all / channels + (number < all % channels ? 1 : 0);
}

std::span<const Rank> Traffic::order(int32_t channel) const {
  const int32_t rings = plan_->merged.ringCount();
  if (rings == 0) return plan_->order;
  return plan_->merged.ring(channel % rings);
}

// CPU ranks take places, and shares of one vector belong to those; blocks belong to ranks.
int32_t Traffic::ringChunkOf(int32_t channel, int32_t place) const {
  const auto ring = order(channel);
  const bool isOfPlace =
      ring.empty() || (!cluster_->hasGpus() && call_.collective == Collective::kAllReduce);
  return isOfPlace ? place : index(ring[static_cast<size_t>(place)]);
}

Program Traffic::build(int32_t channel, Rank rank) const {
  const int32_t ranks = cluster_->rankCount();
  if (!cluster_->hasGpus())
    return schedule::buildProgram(*algorithm_,
                                  {.rankCount = ranks,
                                   .root = call_.root,
                                   .sender = call_.sender,
                                   .order = order(channel),
                                   .hostCount = plan_->evenHostCount},
                                  rank);
  if (!followsLinks_)
    return algorithm_->build(
        {.rankCount = ranks, .root = call_.root, .sender = call_.sender, .order = order(channel)},
        rank);
  std::vector<schedule::TreeLinks> trees;
  const int32_t tree = channel % plan_->merged.treeChannelCount();
  for (int32_t i = 0; i < chunkCount_; ++i) trees.push_back(plan_->merged.treeLinks(tree, i, rank));
  return schedule::linkedTreeAllReduce(trees, ranks);
}

Lane Traffic::lane(int32_t channel, Rank rank) const {
  Lane lane{.program = std::make_shared<Program>(build(channel, rank)),
            .layout = schedule::makeLayout({.collective = call_.collective,
                                            .rank = rank,
                                            .rankCount = cluster_->rankCount(),
                                            .chunkCount = chunkCount_,
                                            .blockElements = blockElements(channel),
                                            .elementBytes = sizeOf(call_.type),
                                            .pieceBytes = method_.pieceBytes}),
            .elementBytes = sizeOf(call_.type)};
  return lane;
}

Traffic::Shape Traffic::shapeOf(int32_t channel, Rank rank) const {
  Fnv hash;
  hash.add(blockElements(channel));
  const Lane lane = this->lane(channel, rank);
  for (const schedule::Step& step : lane.program->steps) {
    hash.add(lane.bytesOf(step.chunk, 0));
    hash.add((uint64_t{step.sourceCount} << 32) | (uint64_t{step.destinationCount} << 1) |
             (step.post ? 1 : 0));
    for (const schedule::Operand& operand : lane.program->allOperands(step)) {
      const bool isLink = operand.place == Place::kLink;
      hash.add(isLink ? static_cast<uint64_t>(operand.index) + 2
                      : static_cast<uint64_t>(operand.place == Place::kInput));
    }
  }
  return {.form = hash.value(),
          .sendsTo = lane.program->sendsTo,
          .receivesFrom = lane.program->receivesFrom};
}

std::vector<Traffic::Shape> Traffic::shapesOf(int32_t channel) const {
  const int32_t ranks = cluster_->rankCount();
  std::vector<Shape> shapes(static_cast<size_t>(ranks));
  if (!isRing_) {
    for (int32_t rank = 0; rank < ranks; ++rank)
      shapes[static_cast<size_t>(rank)] = shapeOf(channel, Rank{rank});
    return shapes;
  }
  Fnv hash;
  hash.add(blockElements(channel));
  const auto ring = order(channel);
  const auto at = [&](int32_t place) {
    return ring.empty() ? Rank{place % ranks} : ring[static_cast<size_t>(place % ranks)];
  };
  for (int32_t place = 0; place < ranks; ++place) {
    Shape& shape = shapes[static_cast<size_t>(index(at(place)))];
    shape.form = hash.value();
    if (ranks == 1) continue;
    shape.sendsTo = {at(place + 1)};
    shape.receivesFrom = {at(place + ranks - 1)};
  }
  return shapes;
}

Result<FlowRoute> Traffic::route(int32_t channel, Rank from, Rank to) const {
  if (algorithm_->name == "ring")
    return cluster_->route(endsOf(*cluster_, *plan_, channel, {from, to}));
  return cluster_->route({.from = from, .to = to, .flow = static_cast<uint64_t>(channel)});
}

schedule::Schedule Traffic::schedule(int32_t channel) const {
  schedule::Schedule made{
      .algorithm = algorithm_->name,
      .collective = call_.collective,
      .rankCount = cluster_->rankCount(),
      .root = call_.root,
      .sender = call_.sender,
      .blockCount = schedule::blockCount(call_.collective, cluster_->rankCount()),
      .chunkCount = chunkCount_};
  for (int32_t rank = 0; rank < cluster_->rankCount(); ++rank)
    made.programs.push_back(build(channel, Rank{rank}));
  return made;
}

}  // namespace tutti::sim
