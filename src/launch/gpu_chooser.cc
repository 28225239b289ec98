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
      request.wideBytes = 0;
      break;
    case Protocol::kLl128:  // where links take wide lines apart, lines in two stages
      request.lineBytes = kAlways;
      request.stageBytes = 0;
      request.wideBytes = kAlways;
      break;
    case Protocol::kSimple: request.lineBytes = request.wideBytes = 0; break;
  }
  return request;
}

// The same of sends, with all that are allowed; of receives, too, since both ends have to agree.
GpuRequest askedOfTransfers(const graph::NameFilter& protocols) {
  const auto allows = [&](Protocol protocol) {
    return protocols.allows(Collective::kSend, graph::nameOf(protocol));
  };
  const bool hasLines = allows(Protocol::kLl);
  const bool hasRows = allows(Protocol::kLl128);
  const bool hasSlots = allows(Protocol::kSimple);
  if (hasRows && !hasLines && !hasSlots) return asked({}, Protocol::kLl128);
  GpuRequest request;
  if (!hasLines && (hasRows || hasSlots)) request.lineBytes = 0;
  if (!hasRows && (hasLines || hasSlots)) request.wideBytes = 0;
  return request;
}

// All, where none is.
template <typename Ways, typename IsAllowed>
void keepAllowed(Ways& ways, const IsAllowed& isAllowed) {
  if (std::ranges::any_of(ways, isAllowed))
    std::erase_if(ways, [&](const auto& way) { return !isAllowed(way); });
}

Protocol protocolBy(wire::GpuMessages messages) {
  switch (messages) {
    case wire::GpuMessages::kLines: return Protocol::kLl;
    case wire::GpuMessages::kWideLines: return Protocol::kLl128;
    case wire::GpuMessages::kSlots: break;
  }
  return Protocol::kSimple;
}

bool isSame(const plan::AlgorithmCost& cost, const GpuChoice& choice) {
  return cost.algorithm == choice.algorithm && cost.protocol == protocolOf(choice);
}

}  // namespace

Protocol protocolOf(const GpuChoice& choice) {
  if (choice.protocol == "slots") return Protocol::kSimple;
  if (choice.protocol == "wide lines") return Protocol::kLl128;
  return choice.shape == wire::GpuAlgorithm::kTwoShot ? Protocol::kLl128 : Protocol::kLl;
}

// By the collectives' shortest and longest calls, whose kernels are all that there are.
bool needsPrograms(const GpuLimits& limits) {
  if (limits.rankCount > wire::kGpuMaxRanks) return limits.rankCount <= wire::kGpuProgramRanks;
  const GpuChooser chooser(limits);
  if (limits.rankCount < 2 || chooser.algorithms_.allowsEverything()) return false;
  for (int32_t i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    const auto allows = [&](const plan::CallShape& shape,
                            const std::vector<GpuChooser::Way>& ways) {
      return std::ranges::any_of(ways,
                                 [&](const auto& way) { return chooser.isAllowed(shape, way); });
    };
    for (const uint64_t count : {uint64_t{1}, uint64_t{1} << 28}) {
      const plan::CallShape shape{.collective = collective, .count = count};
      if (isPointToPoint(collective) || allows(shape, chooser.kernelWays(shape))) continue;
      if (allows(shape, chooser.programWays(shape))) return true;
    }
  }
  return false;
}

GpuChooser::GpuChooser(const GpuLimits& limits)
    : limits_(limits),
      algorithms_(limits.algorithms),
      protocols_(limits.protocols),
      isFree_(limits.tuner == nullptr && algorithms_.allowsEverything() &&
              protocols_.allowsEverything() && limits.rankCount <= wire::kGpuMaxRanks),
      transfers_(askedOfTransfers(protocols_)) {}

GpuRequest GpuChooser::usualRequest(const plan::CallShape& shape) const {
  return {.collective = shape.collective,
          .type = shape.type,
          .op = shape.op,
          .count = shape.count,
          .rankCount = limits_.rankCount,
          .ranksPerDevice = limits_.ranksPerDevice,
          .multiprocessors = limits_.multiprocessors,
          .maxBlocks = limits_.maxBlocks,
          .minBlocks = limits_.minBlocks,
          .prefersEngines = limits_.prefersEngines,
          .keepsLines = limits_.keepsLines,
          .savesBlocks = limits_.savesBlocks,
          .hasBulk = limits_.hasBulk};
}

GpuChooser::Decision GpuChooser::decisionFor(const plan::CallShape& shape) {
  if (isFree_) return {.request = usualRequest(shape)};
  if (isPointToPoint(shape.collective)) {
    GpuRequest request = usualRequest(shape);
    request.lineBytes = transfers_.lineBytes;
    request.wideBytes = transfers_.wideBytes;
    return {.request = request};
  }
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
std::vector<GpuChooser::Way> GpuChooser::kernelWays(const plan::CallShape& shape) const {
  std::vector<Way> ways;
  const auto add = [&](const GpuRequest& request) {
    const std::optional<GpuChoice> choice = kernels::cuda::choose(request);
    if (!choice) return;
    const bool isKnown =
        std::ranges::any_of(ways, [&](const Way& each) { return isSame(each.cost, *choice); });
    if (isKnown) return;
    ways.push_back({.decision = {.request = request},
                    .cost = {.algorithm = choice->algorithm,
                             .us = predictUs(shape, *choice),
                             .protocol = protocolOf(*choice)}});
  };
  const GpuRequest usual = usualRequest(shape);
  add(usual);
  for (const Protocol protocol : kProtocols) add(asked(usual, protocol));
  return ways;
}

std::vector<GpuChooser::Way> GpuChooser::programWays(const plan::CallShape& shape) const {
  std::vector<Way> ways;
  const GpuRequest request = usualRequest(shape);
  for (const kernels::cuda::GpuProgramWay& way : kernels::cuda::programWays(request)) {
    ways.push_back({.decision = {.request = request, .program = way},
                    .cost = {.algorithm = way.algorithm->name,
                             .us = way.us,
                             .protocol = protocolBy(way.messages)}});
  }
  return ways;
}

// A kernel of its own is faster than a program, so programs are for what has none.
std::vector<GpuChooser::Way> GpuChooser::waysFor(const plan::CallShape& shape) const {
  const auto isNamed = [&](const Way& way) { return isAllowed(shape, way); };
  std::vector<Way> ways = kernelWays(shape);
  if (limits_.hasPrograms && std::ranges::none_of(ways, isNamed)) {
    std::vector<Way> programs = programWays(shape);
    if (ways.empty() || std::ranges::any_of(programs, isNamed)) ways = std::move(programs);
  }
  // Each setting for itself: what names no way must not undo what the other says.
  keepAllowed(ways, [&](const Way& way) {
    return protocols_.allows(shape.collective, graph::nameOf(way.cost.protocol));
  });
  keepAllowed(ways, isNamed);
  return ways;
}

GpuChooser::Decision GpuChooser::decide(const plan::CallShape& shape) const {
  const std::vector<Way> ways = waysFor(shape);
  if (ways.empty()) return {.request = usualRequest(shape)};
  const Way& own = ways.front();
  if (limits_.tuner == nullptr) return own.decision;
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
  Decision decision = taken.decision;
  if (advice.channels > 0) {
    GpuRequest& request = decision.request;
    request.maxBlocks = std::min(request.maxBlocks, advice.channels);
    if (decision.program)
      decision.program->blocks = std::min(decision.program->blocks, advice.channels);
  }
  if (&taken != &own || advice.channels > 0) {
    log::info(
        log::Subsystem::kTuning,
        "{}: {} elements of {} -> {} by {} in at most {} blocks (tuner plug-in {}; else {} by "
        "{} in {})",
        name(shape.collective), shape.count, name(shape.type), taken.cost.algorithm,
        graph::nameOf(taken.cost.protocol), decision.request.maxBlocks, limits_.tuner->name(),
        own.cost.algorithm, graph::nameOf(own.cost.protocol), own.decision.request.maxBlocks);
  }
  return decision;
}

}  // namespace tutti::launch
