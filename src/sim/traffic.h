// What one collective call puts on the cluster's links, in implicit form: the program of any rank
// on any channel, made when it is asked for, and the flows that follow from it. Nothing is stored
// per rank, so 100,000 ranks fit; flows.h writes them out where somebody wants them all.
//
// A *lane* is one rank on one channel. It walks its program once a piece (schedule.h); each message
// that it sends is a flow. So a flow is named by channel, sender, piece, step and destination, and
// everything else follows: its bytes from the layout, its receiver from the program's links, what
// it waits for from the step's sources, and its route from the cluster. Pure, any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "graph/nccl_constants.h"
#include "plan/plan.h"
#include "schedule/catalog.h"
#include "schedule/layout.h"
#include "schedule/schedule.h"
#include "sim/cluster.h"
#include "sim/planning.h"
#include "wire/types.h"

namespace tutti::sim {

// One call, as the application makes it.
struct SimCall {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  uint64_t bytes = 0;  // of the whole vector, all ranks' blocks together
  Rank root{0};        // of a send the receiver
  Rank sender{0};
};

// How it is done. What the planner's choice or --algorithm says.
struct Method {
  std::string algorithm;  // of the catalogue: "ring", "tree", ...
  graph::Protocol protocol = graph::Protocol::kSimple;
  int32_t channelCount = 1;
  size_t pieceBytes = 0;  // most that one message carries; 0: what the protocol's slots hold, or
                          // less where it passes through many ranks between nodes; of CPU ranks
                          // what the library's planner says
  int32_t slotCount = 8;  // slots of a link
  bool operator==(const Method&) const = default;
};

// What the CPU ranks of a cluster would agree on, with all settings at their defaults but
// NCCL_ALGO.
plan::Agreement agreementOf(const Cluster& cluster, const VirtualPlan& plan,
                            std::string_view algorithms);

// Bytes on the wire for so many of data: flags of LL (8 for 8) and LL128 (8 for 120) ride along.
uint64_t wireBytes(graph::Protocol protocol, uint64_t bytes);
// The same for each byte of a long message.
double wireFactor(graph::Protocol protocol);
size_t slotBytes(graph::Protocol protocol);
// Of messages that follow each other through so many GPU ranks, between nodes: enough of them that
// all are busy, none shorter than what NCCL's trees take.
size_t pipelinedPieceBytes(graph::Protocol protocol, uint64_t chunkBytes, int64_t hops);

// One rank on one channel.
struct Lane {
  std::shared_ptr<const schedule::Program> program;
  schedule::Layout layout;
  size_t elementBytes = 1;

  // Bytes of a chunk's piece; 0: the message is left out on both sides.
  uint64_t bytesOf(int32_t chunk, size_t piece) const;
  // Of the longest chunk that lanes of this layout have; pieces of it.
  uint64_t chunkBytes() const { return layout.chunkElements * elementBytes; }
};

class Traffic {
 public:
  // Borrows cluster and plan. kInvalidArgument when the catalogue has no such algorithm for the
  // collective.
  static Result<Traffic> make(const Cluster& cluster, const VirtualPlan& plan, const SimCall& call,
                              const Method& method);

  const Cluster& cluster() const { return *cluster_; }
  const VirtualPlan& plan() const { return *plan_; }
  const SimCall& call() const { return call_; }
  const Method& method() const { return method_; }
  int32_t rankCount() const { return cluster_->rankCount(); }
  int32_t channelCount() const { return method_.channelCount; }
  int32_t chunkCount() const { return chunkCount_; }

  Lane lane(int32_t channel, Rank rank) const;
  // Lanes of equal form have programs alike: the same steps, lengths and positions of links,
  // whoever the peers are, by position. For rings, where all lanes of a channel are alike, it is
  // known without their programs, but for the lengths of the last chunks.
  struct Shape {
    uint64_t form = 0;
    std::vector<Rank> sendsTo;
    std::vector<Rank> receivesFrom;
  };
  Shape shapeOf(int32_t channel, Rank rank) const;
  // Of all ranks on a channel.
  std::vector<Shape> shapesOf(int32_t channel) const;
  // Whether lanes are a circle of equals: all-reduce, all-gather, reduce-scatter by ring.
  bool isRing() const { return isRing_; }
  // Whether each message passes through rank after rank, on several nodes of GPUs.
  bool isPipeline() const;
  // Of the longest of the parts into which channels and chunks cut the vector.
  uint64_t chunkBytes() const;
  // Whether it is the all-reduce over the cluster's trees.
  bool followsTrees() const { return followsLinks_; }
  // The ring's order on a channel; empty: 0, 1, 2, ...
  std::span<const Rank> order(int32_t channel) const;
  // The chunk of a ring that the rank at a place of that order finishes or brings.
  int32_t ringChunkOf(int32_t channel, int32_t place) const;

  Result<FlowRoute> route(int32_t channel, Rank from, Rank to) const;

  // All ranks' programs on a channel, for the prover and for exports. Memory by ranks x steps.
  schedule::Schedule schedule(int32_t channel) const;

 private:
  schedule::Program build(int32_t channel, Rank rank) const;
  size_t blockElements(int32_t channel) const;

  const Cluster* cluster_ = nullptr;
  const VirtualPlan* plan_ = nullptr;
  SimCall call_;
  Method method_;
  const schedule::Algorithm* algorithm_ = nullptr;  // null: the cluster's linked trees
  int32_t chunkCount_ = 1;
  bool isRing_ = false;
  bool followsLinks_ = false;  // trees of the merged graph
};

}  // namespace tutti::sim
