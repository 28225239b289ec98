#include "tools/explain_gpu.h"

#include <fmt/core.h>

#include <algorithm>

#include "kernels/gpu_catalog.h"
#include "kernels/gpu_program.h"
#include "plan/plan.h"
#include "schedule/schedule.h"
#include "sim/estimate_call.h"
#include "topology/paths.h"

namespace tutti::tools {
namespace {

// Of a library that was built as the README has it, whatever this tool was.
constexpr std::string_view kUsualArchitectures = "80 90";

// That a block may have: of compute capability 12.0 less than of 9.0 and 10.0.
constexpr uint32_t sharedBytesOf(int32_t capability) {
  return capability >= 90 && capability < 120 ? 227 << 10 : 99 << 10;
}

// Of those that have NVLink: H100 and later; A100.
constexpr int32_t multiprocessorsOf(int32_t capability) {
  return capability >= 100 ? 148 : capability >= 90 ? 132 : 108;
}

// Sends and receives are launched as transfers, and so are a few collectives of two ranks.
kernels::cuda::GpuChoice asTransfers(const kernels::cuda::GpuRequest& request, uint64_t bytes) {
  kernels::cuda::GpuChoice choice = kernels::cuda::transferKernelOf(request);
  const auto shape = kernels::cuda::shapeTransfer(bytes, request);
  choice.blocks = shape.blocks;
  if (shape.messages == wire::GpuMessages::kLines) choice.protocol = "lines";
  if (shape.messages == wire::GpuMessages::kWideLines) choice.protocol = "wide lines";
  return choice;
}

// Of more ranks than kernels know.
std::optional<OwnGpuWay> asProgram(const kernels::cuda::GpuRequest& request) {
  const auto ways = kernels::cuda::programWays(request);
  if (ways.empty()) return std::nullopt;
  const kernels::cuda::GpuChoice choice = kernels::cuda::programKernel(request, ways.front());
  return OwnGpuWay{.algorithm = choice.algorithm,
                   .protocol = choice.protocol,
                   .kernel = choice.kernel,
                   .blocks = choice.blocks,
                   .threads = choice.threads};
}

double timeOf(const GpuCall& call, uint64_t count) {
  const plan::Agreement agreement{
      .rankCount = call.rankCount, .geometry = {}, .algorithms = {}, .isOneHost = true};
  const Result<double> us = sim::estimateCallUs({.agreement = agreement, .areGpus = true},
                                                {.collective = call.collective, .count = count});
  return us.ok() ? us.value() : 0;
}

}  // namespace

std::string pairOutOfReach(const GpuCall& call, const topology::Topology& machine) {
  const topology::Paths paths = topology::computePaths(machine);
  const topology::Paths plain =
      topology::computePaths(machine, {.peerLevel = topology::PathKind::kSys});
  const topology::PathPolicy asked{.peerLevel = call.peerLevel};
  const auto gpus = topology::nodesOf(machine, topology::NodeKind::kGpu);
  for (const topology::NodeId from : gpus) {
    for (const topology::NodeId to : gpus) {
      if (from == to) continue;
      if (call.peerLevel ? topology::mayAccessPeer(machine, asked, plain.between(from, to))
                         : paths.between(from, to).isDirect())
        continue;
      return fmt::format("GPUs {} and {} are {} apart", machine[from].number, machine[to].number,
                         topology::nameOf(plain.between(from, to).kind));
    }
  }
  return {};
}

std::optional<OwnGpuWay> ownGpuWay(const GpuCall& call, const topology::Topology& machine) {
  const auto blocks = static_cast<uint64_t>(schedule::blockCount(call.collective, call.rankCount));
  const uint64_t count = std::max<uint64_t>(call.bytes / sizeof(float) / blocks, 1);
  kernels::cuda::GpuRequest request{
      .collective = call.collective, .count = count, .rankCount = call.rankCount};
  if (call.maxBlocks > 0) request.maxBlocks = std::min(call.maxBlocks, request.maxBlocks);
  request.minBlocks = std::max(call.minBlocks, 1);
  request.prefersEngines = call.prefersEngines;
  request.savesBlocks = call.savesBlocks;
  if (!pairOutOfReach(call, machine).empty()) return std::nullopt;
  const bool isSwitched = !topology::nodesOf(machine, topology::NodeKind::kNvSwitch).empty();
  request.keepsLines = isSwitched;
  const auto gpus = topology::nodesOf(machine, topology::NodeKind::kGpu);
  const auto least = std::ranges::min_element(
      gpus, {}, [&](topology::NodeId gpu) { return machine[gpu].gpu.smVersion; });
  if (least != gpus.end())
    request.multiprocessors = multiprocessorsOf(machine[*least].gpu.smVersion);
  request.hasBulk = std::ranges::all_of(gpus, [&](topology::NodeId gpu) {
    return kernels::cuda::canBulk(kUsualArchitectures, machine[gpu].gpu.smVersion,
                                  sharedBytesOf(machine[gpu].gpu.smVersion));
  });
  std::optional<kernels::cuda::GpuChoice> choice =
      isPointToPoint(call.collective) || kernels::cuda::goesAsTransfers(request)
          ? asTransfers(request, call.bytes / blocks)
          : kernels::cuda::choose(request);
  if (call.rankCount > wire::kGpuMaxRanks) return asProgram(request);
  if (!choice) return std::nullopt;
  return OwnGpuWay{
      .algorithm = choice->algorithm,
      .protocol = choice->protocol,
      .kernel = choice->kernel,
      .blocks =
          kernels::cuda::gridOf(*choice, choice->blocks, call.rankCount, choice->isBulk).blocks,
      .threads = choice->threads,
      .takesEngines = kernels::cuda::goesByEngines(request),
      .us = isSwitched ? timeOf(call, count) : 0};
}

}  // namespace tutti::tools
