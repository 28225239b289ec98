#include "comm/agree_gpus.h"

#include <algorithm>
#include <optional>

#include "base/char_field.h"
#include "base/log.h"
#include "base/proc_files.h"
#include "comm/hash.h"
#include "comm/process.h"
#include "kernels/gpu_catalog.h"

namespace tutti::comm {
namespace {

// What streams of ranks that share a GPU wait on: a queue for each rank's stream, its own and two
// for copies. The driver gives a process eight by itself, and 32 at most.
constexpr int32_t kQueuesOfRank = 4;
constexpr int32_t kMostQueues = 32;

}  // namespace

Avoidance avoidanceOf(const Settings& settings) {
  if (!kernels::cuda::hasImages()) return Avoidance::kWithoutKernels;
  return settings.integer("NCCL_P2P_DISABLE") != 0 ? Avoidance::kBySetting : Avoidance::kNo;
}

void nameAccelerator(InitRecord& own, device::Device& device) {
  device::Accelerator* accelerator = device.accelerator();
  if (accelerator == nullptr) return;
  own.peer.deviceIndex = device.caps().index;
  setText(own.gpuBusId, accelerator->busId());
  own.hasBulk = kernels::cuda::canBulk(kernels::cuda::architectures(), accelerator->capability(),
                                       accelerator->sharedBytesPerBlock())
                    ? 1
                    : 0;
  own.multiprocessors = static_cast<int32_t>(accelerator->multiprocessors());
  own.gpuHash = hashOf(fmt::format("{:x} {}", own.peer.hostHash, accelerator->busId()));
}

launch::GpuBatcher::Limits limitsOf(const std::vector<InitRecord>& records) {
  launch::GpuBatcher::Limits limits{.rankCount = static_cast<int32_t>(records.size())};
  limits.prefersEngines = std::ranges::all_of(
      records, [](const InitRecord& record) { return record.prefersEngines != 0; });
  limits.savesBlocks = std::ranges::all_of(
      records, [](const InitRecord& record) { return record.savesBlocks != 0; });
  if (!records.empty()) {
    limits.multiprocessors =
        std::ranges::min(records, {}, &InitRecord::multiprocessors).multiprocessors;
  }
  for (const InitRecord& record : records) {
    const auto sharing = std::ranges::count(records, record.gpuHash, &InitRecord::gpuHash);
    limits.ranksPerDevice = std::max(limits.ranksPerDevice, static_cast<int32_t>(sharing));
    limits.maxBlocks = std::min(limits.maxBlocks, std::max(1, record.maxBlocks));
    limits.minBlocks = std::max(limits.minBlocks, record.minBlocks);
  }
  limits.minBlocks = std::min(limits.minBlocks, limits.maxBlocks);
  limits.hasBulk =
      std::ranges::all_of(records, [](const InitRecord& record) { return record.hasBulk != 0; });
  // Calls of two ranks, and those whose blocks are limited, are shaped by that alone.
  limits.adaptsBlocks = limits.hasBulk && limits.rankCount > 2 && limits.ranksPerDevice == 1 &&
                        limits.maxBlocks == wire::kGpuMaxBlocks && !limits.savesBlocks &&
                        std::ranges::all_of(records, [](const InitRecord& record) {
                          return record.adaptsBlocks != 0;
                        });
  return limits;
}

bool ownsGpu(const std::vector<InitRecord>& records, const InitRecord& own) {
  return std::ranges::none_of(records, [&own](const InitRecord& other) {
    return other.peer.rank != own.peer.rank && other.gpuBusId == own.gpuBusId &&
           other.peer.hostName == own.peer.hostName;
  });
}

bool keepsLines(const launch::GpuLimits& limits, const device::Accelerator* accelerator,
                const std::vector<InitRecord>& records) {
  const bool hasWideLines = limits.hasPrograms || limits.rankCount <= wire::kGpuRowRanks;
  return hasWideLines && accelerator != nullptr &&
         std::ranges::all_of(records, [accelerator](const InitRecord& record) {
           return accelerator->keepsLinesTo(textOf(record.gpuBusId));
         });
}

void addWishes(launch::GpuLimits& limits, const GpuWishes& wishes) {
  limits.algorithms = wishes.algorithms;
  limits.protocols = wishes.protocols;
  limits.tuner = wishes.tuner;
  limits.hasPrograms = launch::needsPrograms(limits);
}

std::string obstacleToPeers(const std::vector<InitRecord>& records) {
  if (records.size() > static_cast<size_t>(wire::kGpuProgramRanks))
    return fmt::format("{} ranks, of which kernels take {}", records.size(),
                       wire::kGpuProgramRanks);
  const auto rankCount = static_cast<int32_t>(records.size());
  const launch::GpuLimits limits = limitsOf(records);
  const int32_t most = kernels::cuda::mostSharers(rankCount, limits.multiprocessors);
  if (limits.ranksPerDevice > most) {
    return fmt::format("{} ranks share a GPU; of {} ranks {} can, with {} multiprocessors",
                       limits.ranksPerDevice, rankCount, most, limits.multiprocessors);
  }
  for (const InitRecord& record : records) {
    if (record.peer.hostHash != records.front().peer.hostHash) {
      return fmt::format("rank 0 is on host {}, rank {} on host {}",
                         textOf(records.front().peer.hostName), record.peer.rank,
                         textOf(record.peer.hostName));
    }
    if (record.avoidsPeers == Avoidance::kWithoutKernels)
      return fmt::format("rank {}'s library was built without GPU kernels", record.peer.rank);
    if (record.avoidsPeers == Avoidance::kBySetting)
      return fmt::format("NCCL_P2P_DISABLE=1 on rank {}", record.peer.rank);
  }
  return {};
}

void warnOfFewQueues(Process& process, const std::vector<InitRecord>& records,
                     const InitRecord& own) {
  const auto sharers =
      static_cast<int32_t>(std::ranges::count(records, own.gpuHash, &InitRecord::gpuHash));
  if (sharers < 2) return;
  const int32_t wanted = std::min(kMostQueues, kQueuesOfRank * sharers);
  const std::optional<std::string> set = environmentVariable("CUDA_DEVICE_MAX_CONNECTIONS");
  if (set && numberOf<int32_t>(*set).value_or(0) >= wanted) return;
  if (!process.isFirstToWarnOfQueues()) return;
  log::warn(
      "{} ranks share the GPU of rank {}, and CUDA_DEVICE_MAX_CONNECTIONS is {}: a rank's stream "
      "may "
      "wait behind another's in one hardware queue, for good; set it to {} before the program "
      "starts, as tutti run does",
      sharers, own.peer.rank, set ? *set : "not set", kMostQueues);
}

}  // namespace tutti::comm
