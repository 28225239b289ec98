#include "api/config.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/block_settings.h"
#include "base/log.h"

namespace tutti::api {
namespace {

constexpr unsigned kMagic = 0xcafebeef;

// What 2.29 appends, of programs that were compiled for it: how calls in graphs and others mix.
// REQUIRES: the config is one.
int graphUsageModeOf(const ncclConfig_t* given) {
  int mode = NCCL_CONFIG_UNDEF_INT;
  if (given == nullptr || given->version < NCCL_VERSION(2, 29, 0)) return mode;
  if (given->size < sizeof *given + sizeof mode) return mode;
  std::memcpy(&mode, reinterpret_cast<const std::byte*>(given) + sizeof *given, sizeof mode);
  return mode;
}

// The caller's fields; those it does not have, or did not set, are undefined.
Result<ncclConfig_t> completed(const ncclConfig_t* given) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (given == nullptr) return config;
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < offsetof(ncclConfig_t, blocking) || size > 4096) {
    return invalidArgument("config.size is {}; initialise the config with NCCL_CONFIG_INITIALIZER",
                           size);
  }
  std::memcpy(&config, given, std::min(size, sizeof config));
  if (config.magic != kMagic) {
    return invalidArgument(
        "config.magic is {:#x} instead of {:#x}; initialise the config with "
        "NCCL_CONFIG_INITIALIZER",
        config.magic, kMagic);
  }
  const ncclConfig_t unset = NCCL_CONFIG_INITIALIZER;
  const auto resetFrom = [&](size_t offset) {
    std::memcpy(reinterpret_cast<char*>(&config) + offset,
                reinterpret_cast<const char*>(&unset) + offset, sizeof config - offset);
  };
  // In the order in which versions appended them.
  if (config.version < NCCL_VERSION(2, 14, 0)) {
    resetFrom(offsetof(ncclConfig_t, blocking));
  } else if (config.version < NCCL_VERSION(2, 17, 0)) {
    resetFrom(offsetof(ncclConfig_t, cgaClusterSize));
  } else if (config.version < NCCL_VERSION(2, 18, 0)) {
    resetFrom(offsetof(ncclConfig_t, splitShare));
  } else if (config.version < NCCL_VERSION(2, 26, 0)) {
    resetFrom(offsetof(ncclConfig_t, trafficClass));
  } else if (config.version < NCCL_VERSION(2, 27, 0)) {
    resetFrom(offsetof(ncclConfig_t, commName));
  } else if (config.version < NCCL_VERSION(2, 28, 0)) {
    resetFrom(offsetof(ncclConfig_t, nChannelsPerNetPeer));
  }
  return config;
}

Status checkRange(const char* field, int value, int least, int most) {
  if (value == NCCL_CONFIG_UNDEF_INT || (value >= least && value <= most)) return {};
  return invalidArgument("config.{} is {}; it must be {} to {}", field, value, least, most);
}

Status checkRanges(const ncclConfig_t& config) {
  constexpr int kMost = 0x7fffffff;
  TUTTI_TRY(checkRange("blocking", config.blocking, 0, 1));
  TUTTI_TRY(checkRange("cgaClusterSize", config.cgaClusterSize, 0, 8));
  TUTTI_TRY(checkRange("minCTAs", config.minCTAs, 1, kMost));
  TUTTI_TRY(checkRange("maxCTAs", config.maxCTAs, 1, kMost));
  TUTTI_TRY(checkRange("splitShare", config.splitShare, 0, 1));
  TUTTI_TRY(checkRange("trafficClass", config.trafficClass, net::kNoTrafficClass, kMost));
  TUTTI_TRY(checkRange("collnetEnable", config.collnetEnable, 0, 1));
  TUTTI_TRY(checkRange("CTAPolicy", config.CTAPolicy, 0, 3));
  TUTTI_TRY(checkRange("shrinkShare", config.shrinkShare, 0, 1));
  TUTTI_TRY(checkRange("nvlsCTAs", config.nvlsCTAs, 1, kMost));
  TUTTI_TRY(checkRange("nChannelsPerNetPeer", config.nChannelsPerNetPeer, 1, 1024));
  TUTTI_TRY(checkRange("nvlinkCentricSched", config.nvlinkCentricSched, 0, 1));
  const bool bothSet =
      config.minCTAs != NCCL_CONFIG_UNDEF_INT && config.maxCTAs != NCCL_CONFIG_UNDEF_INT;
  if (bothSet && config.minCTAs > config.maxCTAs) {
    return invalidArgument("config.minCTAs {} is more than config.maxCTAs {}", config.minCTAs,
                           config.maxCTAs);
  }
  return {};
}

// By the setting, else by the config's field; otherwise where neither is set.
int32_t blocksOf(int64_t setting, int field, int32_t otherwise) {
  if (setting == 0 && field == NCCL_CONFIG_UNDEF_INT) return otherwise;
  const int64_t count = setting != 0 ? setting : field;
  return static_cast<int32_t>(std::min<int64_t>(count, wire::kGpuMaxBlocks));
}

}  // namespace

Result<comm::Config> parseConfig(const ncclConfig_t* given, const Settings& settings) {
  TUTTI_TRY_ASSIGN(const ncclConfig_t config, completed(given));
  TUTTI_TRY(checkRanges(config));
  // 0: none is captured, 1: one graph and nothing beside it, 2: any.
  const int graphs = graphUsageModeOf(given);
  TUTTI_TRY(checkRange("graphUsageMode", graphs, 0, 2));
  comm::Config result;
  const SettingValue& mixing = settings.get("NCCL_GRAPH_MIXING_SUPPORT");
  result.mixesGraphs = mixing.source != "default" ? mixing.integer != 0
                                                  : graphs == NCCL_CONFIG_UNDEF_INT || graphs == 2;
  result.isBlocking = config.blocking != 0;  // undefined counts as blocking
  const SettingValue& override = settings.get("NCCL_COMM_BLOCKING");
  if (override.source != "default") result.isBlocking = override.integer != 0;
  if (config.commName != nullptr) result.name = config.commName;
  if (config.netName != nullptr && settings.text("NCCL_NET").empty())
    result.network.name = config.netName;
  if (config.trafficClass != NCCL_CONFIG_UNDEF_INT)
    result.network.trafficClass = config.trafficClass;
  const SettingValue& collnet = settings.get("NCCL_COLLNET_ENABLE");
  result.reducesInNetwork =
      collnet.source != "default" ? collnet.integer != 0 : config.collnetEnable == 1;
  const BlockSettings blocks = readBlockSettings(settings);
  result.maxBlocks = blocksOf(blocks.most, config.maxCTAs, result.maxBlocks);
  result.minBlocks = blocksOf(blocks.fewest, config.minCTAs, result.minBlocks);
  const SettingValue& policy = settings.get("NCCL_CTA_POLICY");
  const int64_t policies = policy.source != "default" ? policy.integer : config.CTAPolicy;
  if (policies != NCCL_CONFIG_UNDEF_INT) {
    result.prefersEngines = (policies & NCCL_CTA_POLICY_ZERO) != 0;
    result.savesBlocks = (policies & NCCL_CTA_POLICY_EFFICIENCY) != 0;
    result.adaptsBlocks = false;
  }
  return result;
}

}  // namespace tutti::api
