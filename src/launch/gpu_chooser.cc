#include "launch/gpu_chooser.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "base/log.h"
#include "graph/cost_table.h"
#include "sim/estimate_call.h"

namespace tutti::launch {
namespace {

using graph::Protocol;
using kernels::cuda::GpuChoice;
using kernels::cuda::GpuRequest;

constexpr std::array kProtocols = {Protocol::kLl, Protocol::kLl128, Protocol::kSimple};

// The request that the kernels' catalogue answers with that protocol, where the call fits one.
GpuRequest asked(GpuRequest request, Protocol protocol) {
  constexpr int64_t kAlways = std::numeric_limits<int64_t>::max();
  switch (protocol) {
    case Protocol::kLl:
      request.lineBytes = kAlways;
      request.stageBytes = kAlways;
      break;
    case Protocol::kLl128:
      request.lineBytes = kAlways;
      request.stageBytes = 0;
      break;
    case Protocol::kSimple: request.lineBytes = 0; break;
  }
  return request;
}

// All, where none is.
template <typename Ways, typename IsAllowed>
void keepAllowed(Ways& ways, const IsAllowed& isAllowed) {
  if (std::ranges::any_of(ways, isAllowed))
    std::erase_if(ways, [&](const auto& way) { return !isAllowed(way); });
}

bool isSame(const plan::AlgorithmCost& cost, const GpuChoice& choice) {
  return cost.algorithm == choice.algorithm && cost.protocol == protocolOf(choice);
}

}  // namespace

Protocol protocolOf(const GpuChoice& choice) {
  if (choice.protocol == "slots") return Protocol::kSimple;
  return choice.shape == wire::GpuAlgorithm::kTwoShot ? Protocol::kLl128 : Protocol::kLl;
}

GpuChooser::GpuChooser(const GpuLimits& limits)
    : limits_(limits),
      algorithms_(limits.algorithms),
      protocols_(limits.protocols),
      isFree_(limits.tuner == nullptr && algorithms_.allowsEverything() &&
              protocols_.allowsEverything()) {}

GpuRequest GpuChooser::usualRequest(const plan::CallShape& shape) const {
  return {.collective = shape.collective,
          .type = shape.type,
          .op = shape.op,
          .count = shape.count,
          .rankCount = limits_.rankCount,
          .ranksPerDevice = limits_.ranksPerDevice,
          .maxBlocks = limits_.maxBlocks,
          .prefersEngines = limits_.prefersEngines};
}

GpuRequest GpuChooser::requestFor(const plan::CallShape& shape) {
  if (isFree_ || isPointToPoint(shape.collective)) return usualRequest(shape);
  const auto [found, isNew] =
      decided_.try_emplace(Key{shape.collective, shape.type, shape.op, shape.count});
  if (isNew) found->second = decide(shape);
  return found->second;
}

double GpuChooser::predictUs(const plan::CallShape& shape, const GpuChoice& choice) const {
  return sim::gpuCallUs({.rankCount = limits_.rankCount,
                         .algorithm = choice.algorithm,
                         .protocol = protocolOf(choice)},
                        shape);
}

// The usual one first; of one algorithm and protocol one.
std::vector<GpuChooser::Way> GpuChooser::waysFor(const plan::CallShape& shape) const {
  std::vector<Way> ways;
  const auto add = [&](const GpuRequest& request) {
    const std::optional<GpuChoice> choice = kernels::cuda::choose(request);
    if (!choice) return;
    const bool isKnown =
        std::ranges::any_of(ways, [&](const Way& each) { return isSame(each.cost, *choice); });
    if (isKnown) return;
    ways.push_back({.request = request,
                    .cost = {.algorithm = choice->algorithm,
                             .us = predictUs(shape, *choice),
                             .protocol = protocolOf(*choice)}});
  };
  const GpuRequest usual = usualRequest(shape);
  add(usual);
  for (const Protocol protocol : kProtocols) add(asked(usual, protocol));
  // Each setting for itself: "ring" names no kernel, and must not undo what NCCL_PROTO says.
  keepAllowed(ways, [&](const Way& way) {
    return protocols_.allows(shape.collective, graph::nameOf(way.cost.protocol));
  });
  keepAllowed(ways, [&](const Way& way) {
    return algorithms_.allows(shape.collective, way.cost.algorithm);
  });
  return ways;
}

GpuRequest GpuChooser::decide(const plan::CallShape& shape) const {
  const std::vector<Way> ways = waysFor(shape);
  if (ways.empty()) return usualRequest(shape);
  const Way& own = ways.front();
  if (limits_.tuner == nullptr) return own.request;
  std::vector<plan::AlgorithmCost> costs;
  for (const Way& each : ways) costs.push_back(each.cost);
  const plan::Tuner::Advice advice =
      limits_.tuner->advise({.collective = shape.collective,
                             .bytes = plan::vectorBytes(shape, limits_.rankCount),
                             .costs = costs,
                             .chosen = own.cost.algorithm,
                             .chosenProtocol = own.cost.protocol,
                             .areKernels = true});
  const auto isAdvised = [&](const Way& way) {
    return way.cost.algorithm == advice.algorithm && way.cost.protocol == advice.protocol;
  };
  const auto found = std::ranges::find_if(ways, isAdvised);
  const Way& taken = found == ways.end() ? own : *found;
  GpuRequest request = taken.request;
  if (advice.channels > 0) request.maxBlocks = std::min(request.maxBlocks, advice.channels);
  if (&taken != &own || advice.channels > 0) {
    log::info(
        log::Subsystem::kTuning,
        "{}: {} elements of {} -> {} by {} in at most {} blocks (tuner plug-in {}; else {} by "
        "{} in {})",
        name(shape.collective), shape.count, name(shape.type), taken.cost.algorithm,
        graph::nameOf(taken.cost.protocol), request.maxBlocks, limits_.tuner->name(),
        own.cost.algorithm, graph::nameOf(own.cost.protocol), own.request.maxBlocks);
  }
  return request;
}

}  // namespace tutti::launch
