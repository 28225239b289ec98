// What the ranks' records say of their GPUs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/settings.h"
#include "comm/init_record.h"
#include "device/accelerator.h"
#include "device/device.h"
#include "launch/gpu_batch.h"

namespace tutti::comm {

class Process;

Avoidance avoidanceOf(const Settings& settings);
// Which GPU the rank is on, and what that can; nothing for a CPU rank.
void nameAccelerator(InitRecord& own, device::Device& device);

// All ranks find the same: kernels of different shapes would wait for each other.
launch::GpuBatcher::Limits limitsOf(const std::vector<InitRecord>& records);
// What users have to say of kernels.
struct GpuWishes {
  const std::string& algorithms;
  const std::string& protocols;
  std::shared_ptr<plan::Tuner> tuner;  // shared by all that choose
};
void addWishes(launch::GpuLimits& limits, const GpuWishes& wishes);

// Whether no other rank is on its GPU, whatever host it says that it is on.
bool ownsGpu(const std::vector<InitRecord>& records, const InitRecord& own);
// As far as this rank sees; what all say comes with their segments. Asked where wide lines are
// used.
bool keepsLines(const launch::GpuLimits& limits, const device::Accelerator* accelerator,
                const std::vector<InitRecord>& records);
// Why GPU ranks cannot write into each other's memory; empty where they may try to. All ranks find
// the same.
std::string obstacleToPeers(const std::vector<InitRecord>& records);
// Where ranks share a GPU.
void warnOfFewQueues(Process& process, const std::vector<InitRecord>& records,
                     const InitRecord& own);

}  // namespace tutti::comm
