// A topology as the search sees it: GPUs and ports by small numbers, the routes between them as
// lists of directed links, and what each link can carry. Pure, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "topology/paths.h"
#include "topology/topology.h"

namespace tutti::graph {

struct RouteHop {
  int32_t link = 0;   // into Fabric::capacities()
  double weight = 1;  // of the link's capacity taken for each unit carried
};

struct Route {
  topology::PathKind kind = topology::PathKind::kDis;
  std::vector<RouteHop> hops;
  bool isUsable() const { return topology::isCloser(kind, topology::PathKind::kNet); }
};

class Fabric {
 public:
  // Of one host. Ports are the network ports among which channels may choose; none for a node by
  // itself.
  struct Ends {
    std::vector<topology::NodeId> gpus;
    std::vector<topology::NodeId> ports;
  };
  Fabric(const topology::Topology& topology, const topology::Paths& paths, const Ends& ends);

  int32_t gpuCount() const { return gpuCount_; }
  int32_t portCount() const { return static_cast<int32_t>(ends_.size()) - gpuCount_; }
  // GPUs are ends 0 to gpuCount - 1, ports follow.
  topology::NodeId nodeOf(int32_t end) const { return ends_[static_cast<size_t>(end)]; }
  const Route& route(int32_t from, int32_t to) const {
    return routes_[static_cast<size_t>(from) * ends_.size() + static_cast<size_t>(to)];
  }
  const std::vector<double>& capacities() const { return capacities_; }  // GB/s

  // Links to be swapped for GPU `one` to take the place of `other` and the reverse: with what is
  // left of these the same, whatever goes through the one could go through the other. nullptr: it
  // could not.
  struct Twins {
    std::vector<std::pair<int32_t, int32_t>> links;
  };
  const Twins* twins(int32_t one, int32_t other) const {
    const auto& found = twins_[static_cast<size_t>(one * gpuCount_ + other)];
    return found.has_value() ? &*found : nullptr;
  }

  // The kinds that occur between GPUs, and between GPUs and ports, closest first.
  std::vector<topology::PathKind> kindsBetweenGpus() const;
  std::vector<topology::PathKind> kindsToPorts() const;
  // Whether every GPU reaches every other within the limit, over GPUs if need be.
  bool isConnected(topology::PathKind limit) const;

  // The farthest kind of each that a graph with these limits may use, GB/s out of (into) the GPU
  // over all of its routes within the limits.
  struct Kinds {
    topology::PathKind intra;
    topology::PathKind inter;
  };
  double widthOut(int32_t gpu, const Kinds& limits) const;
  double widthIn(int32_t gpu, const Kinds& limits) const;
  // GB/s that the links allow at most, whatever the order of GPUs: each GPU sends (receives) by one
  // of its routes, and what all of these take of a link is taken. A ring's GPU sends once; a
  // chain's twice half, at its ends once half.
  double widthOfLinks(const Kinds& limits, bool isChain) const;
  // GB/s of all ports together that reach a GPU within the limit.
  double widthOfPorts(topology::PathKind limit) const;

 private:
  std::optional<Twins> findTwins(int32_t one, int32_t other) const;
  bool isApart(const Twins& twins, int32_t one, int32_t other) const;
  Route makeRoute(const topology::Topology& topology, const topology::Path& path);
  void addLeastUse(int32_t gpu, const Kinds& limits, bool isOut, std::vector<double>& use) const;
  double widthOfEnds(int32_t gpu, const Kinds& limits, bool isOut) const;
  std::vector<topology::PathKind> kinds(int32_t firstTarget, int32_t lastTarget) const;

  int32_t gpuCount_ = 0;
  std::vector<topology::NodeId> ends_;
  std::vector<Route> routes_;
  std::vector<double> capacities_;
  std::vector<std::optional<Twins>> twins_;  // [one][other]
  std::vector<int32_t> numberOf_;            // topology link -> link; -1: not used by any route
};

}  // namespace tutti::graph
