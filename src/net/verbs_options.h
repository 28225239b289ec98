// How verbs (InfiniBand and RoCE) are to be used: the settings NCCL_IB_* as values.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/settings.h"
#include "base/status.h"

namespace tutti::net {

struct VerbsOptions {
  bool isDisabled = false;                       // NCCL_IB_DISABLE
  std::string library = "libibverbs.so.1";       // what is opened
  std::string adapters{};                        // NCCL_IB_HCA
  int gidIndex = -1;                             // NCCL_IB_GID_INDEX; -1: chosen
  int addressFamily = 0;                         // NCCL_IB_ADDR_FAMILY; 0: IPv4 if there is one
  std::string addressRange{};                    // NCCL_IB_ADDR_RANGE
  int roceVersion = 0;                           // NCCL_IB_ROCE_VERSION_NUM; 0: 2 if there is one
  uint8_t timeout = 20;                          // NCCL_IB_TIMEOUT: 4.096 us * 2^timeout
  uint8_t retryCount = 7;                        // NCCL_IB_RETRY_CNT
  uint16_t partitionKeyIndex = 0;                // NCCL_IB_PKEY
  std::optional<uint8_t> serviceLevel{};         // NCCL_IB_SL
  std::optional<uint8_t> trafficClass{};         // NCCL_IB_TC
  std::optional<uint8_t> controlTrafficClass{};  // NCCL_IB_FIFO_TC; else as payloads
  uint32_t queuePairs = 1;                       // NCCL_IB_QPS_PER_CONNECTION, a port
  bool splitsData = false;                       // NCCL_IB_SPLIT_DATA_ON_QPS
  bool usesInline = true;                        // NCCL_IB_USE_INLINE
  int adaptiveRouting = -1;                      // NCCL_IB_ADAPTIVE_ROUTING; -1: on InfiniBand
  uint64_t adaptiveRoutingBytes = 8192;          // NCCL_IB_AR_THRESHOLD
  bool ordersRelaxed = true;                     // NCCL_IB_PCI_RELAXED_ORDERING
  bool mergesPorts = true;                       // NCCL_IB_MERGE_NICS, NCCL_NET_MERGE_LEVEL
  bool mergesVirtualFunctions = true;            // NCCL_IB_MERGE_VFS
  bool endsOnEvents = true;                      // NCCL_IB_RETURN_ASYNC_EVENTS
  // Files of which one is there where the kernel finds GPUs' memory by its address.
  std::vector<std::string> peerMemoryMarks = {"/sys/module/nvidia_peermem/version",
                                              "/sys/kernel/mm/memory_peers/nv_mem/version",
                                              "/sys/kernel/mm/memory_peers/nv_mem_nc/version"};
  std::chrono::milliseconds patience{10'000};  // with a port that is down: TUTTI_TIMEOUT_MS
  Clock* clock = &steadyClock();
};

VerbsOptions verbsOptions(const Settings& settings);

// What a lane's packets carry.
struct PacketMarks {
  uint8_t serviceLevel = 0;         // on InfiniBand; RoCE has NCCL_IB_SL's only
  uint8_t trafficClass = 0;         // of payloads
  uint8_t controlTrafficClass = 0;  // of what receivers say
};
// Of a communicator that wants this traffic class, -1 for none, where no setting says otherwise.
// kInvalidUsage, not logged: there is no such class.
Result<PacketMarks> packetMarks(const VerbsOptions& options, int trafficClass);

}  // namespace tutti::net
