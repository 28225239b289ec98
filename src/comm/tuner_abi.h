// The binary interface of tuner plug-ins, versions 2 to 5: which struct of functions a plug-in
// exports under which name, and the numbers that travel. Facts of the interface; a plug-in compiled
// against its own declarations of them must find these.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>

namespace tutti::comm::tuner_abi {

// Collectives, as a plug-in numbers them.
enum Function : int { kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };

// Rows and columns of cost tables.
enum AlgorithmRow : int { kTree, kRing, kCollnetDirect, kCollnetChain, kNvls, kNvlsTree, kPat };
inline constexpr int kAlgorithmRows = 7;
enum ProtocolColumn : int { kLl, kLl128, kSimple };
inline constexpr int kProtocolColumns = 3;
inline constexpr int kUndefined = -1;     // version 2: no algorithm, no protocol
inline constexpr float kIgnored = -1.0F;  // a cost: not to be taken

using CostTable = float[kAlgorithmRows][kProtocolColumns];

// printf-like; the level and subsystem numbers are those of NCCL_DEBUG and NCCL_DEBUG_SUBSYS.
using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);

// Exported as ncclTunerPlugin_v2: answers with one algorithm and protocol.
struct V2 {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  ncclResult_t (*getCollInfo)(void* context, int function, size_t bytes, int collnetSupport,
                              int nvlsSupport, int pipelinedOperations, int* algorithm,
                              int* protocol, int* channels);
  ncclResult_t (*destroy)(void* context);
};

// ncclTunerPlugin_v3: changes a table of costs.
struct V3 {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  ncclResult_t (*getCollInfo)(void* context, int function, size_t bytes, int pipelinedOperations,
                              float** costs, int algorithms, int protocols, int* channels);
  ncclResult_t (*destroy)(void* context);
};

// ncclTunerPlugin_v4: is told whether buffers are registered.
struct V4 {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  ncclResult_t (*getCollInfo)(void* context, int function, size_t bytes, int pipelinedOperations,
                              float** costs, int algorithms, int protocols, int isRegistered,
                              int* channels);
  ncclResult_t (*destroy)(void* context);
};

struct NvlDomains {
  int count;
  int fewestRanks;
  int mostRanks;
};

// Latencies in us, bandwidths in GB/s; by hardware link (NVLink, PCI, network), by GPU generation
// (Volta, Ampere, Hopper, Blackwell), by nodes (one, two, more). A plug-in may read and write all
// of it, and one of a later minor version more, for which there is room.
struct Constants {
  double baseLatencies[kAlgorithmRows][kProtocolColumns];
  double linkLatencies[3][kAlgorithmRows][kProtocolColumns];
  double llBandwidths[4][3];
  double ringLl128Bandwidths[4][3];
  double treeLl128Bandwidths[4][3];
  double treeBandwidths[4][3];
  double nvlsTreeBandwidths[4][3];
  double room[64];
};

// ncclTunerPlugin_v5: is told the communicator's id, NVLink domains and constants.
struct V5 {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t communicator, size_t ranks, size_t nodes,
                       Logger logger, NvlDomains* domains, Constants* constants);
  ncclResult_t (*getCollInfo)(void* context, int function, size_t bytes, int pipelinedOperations,
                              float** costs, int algorithms, int protocols, int isRegistered,
                              int* channels);
  ncclResult_t (*finalize)(void* context);
};

}  // namespace tutti::comm::tuner_abi
