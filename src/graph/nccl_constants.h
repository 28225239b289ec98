// The constants of NCCL's choice model, a set a version, as data. Sources: published facts about
// 2.28-2.30 (latencies, factors, caps) and, for the older set, what follows from the times that
// NCCL 2.12.12 printed for 4 nodes x 8 RTX 3090.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tutti::graph {

// The algorithms and protocols of the reference system's tables, in the tables' order.
enum class Method : uint8_t { kTree, kRing, kCollnetDirect, kCollnetChain, kNvls, kNvlsTree, kPat };
inline constexpr size_t kMethodCount = 7;
enum class Protocol : uint8_t { kLl, kLl128, kSimple };
inline constexpr size_t kProtocolCount = 3;

using ByProtocol = std::array<double, kProtocolCount>;  // LL, LL128, Simple
using ByMethod = std::array<ByProtocol, kMethodCount>;
using ByNodes = std::array<double, 3>;  // one node, two, more
inline constexpr double kUncapped = 1e9;

// By the oldest GPU's generation.
struct GenerationCaps {
  int32_t fromSmVersion;
  ByNodes llGbPerSecond;              // of a whole ring with LL
  ByNodes treeGbPerSecondPerChannel;  // of a tree's channel
  double switchEfficiency;            // of NVLS; 0: none
};
inline constexpr size_t kGenerationCount = 4;
inline constexpr size_t kTreeSizes = 24;  // 64 bytes, 128, 256, ...

struct NcclConstants {
  std::string_view version;
  ByMethod baseUs;
  ByMethod nvLinkUs;                                         // a hop inside a node
  ByMethod pciUs;                                            // a hop inside a node
  ByMethod networkUs;                                        // a hop between nodes
  std::array<GenerationCaps, kGenerationCount> generations;  // oldest first
  double ringLlShare;          // of the Simple bandwidth: all-reduce, reduce, and between nodes
  double ringLlShareInside;    // other collectives on one node
  double networkSimpleFactor;  // Simple's network overhead over the others'
  double plateauFactor;        // on the latency of long ring all-reduces between nodes
  double plateauFactorOld;     // the same before compute capability 8.0
  std::array<std::array<double, kTreeSizes>, kProtocolCount> treeShare;  // of a tree's bandwidth
};

// The version that libnccl.so.2 stands in for, and the one that the published predictions are of.
const NcclConstants& nccl229();
const NcclConstants& nccl212();

}  // namespace tutti::graph
