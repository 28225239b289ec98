#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "graph/print.h"
#include "schedule/schedule.h"
#include "tools/byte_size.h"
#include "tools/explain_cluster.h"
#include "tools/terminal.h"
#include "wire/gpu_program.h"

namespace tutti::tools {
namespace {

using graph::HostGraphs;
using graph::MethodChoice;
using nlohmann::ordered_json;

constexpr size_t kMostSteps = 64;  // of a program, as text

std::string nameOf(const MethodChoice& choice) {
  return fmt::format("{} {}", graph::nameOf(choice.method), graph::nameOf(choice.protocol));
}

void printChoices(const ClusterExplanation& explanation) {
  const Terminal terminal;
  fmt::print("\n  {:<22}  {:>8}  {:>10}  {:>8}\n", "ALGORITHM, PROTOCOL", "CHANNELS", "TIME us",
             "TO BEST");
  const double best = explanation.choices.front().timeUs;
  for (const MethodChoice& each : explanation.choices) {
    const bool isBest = &each == explanation.choices.data();
    const std::string line =
        fmt::format("{} {:<22}  {:>8}  {:>10.1f}  {:>7.2f}x", isBest ? '*' : ' ', nameOf(each),
                    each.channelCount, each.timeUs, each.timeUs / best);
    fmt::print("{}\n", isBest ? terminal.paint(Colour::kBold, line) : line);
  }
}

void printGraphs(const ClusterExplanation& explanation) {
  const graph::ClusterPlan& plan = explanation.plan;
  for (const HostGraphs& host : plan.hosts) {
    fmt::print("\n  Host {}: {}", host.host, graph::print(plan.topology, host.ring));
    fmt::print("  Host {}: {}", host.host, graph::print(plan.topology, host.tree));
    if (!host.switched.graph.channels.empty())
      fmt::print("  Host {}: {}", host.host, graph::print(plan.topology, host.switched));
    if (!host.direct.graph.channels.empty())
      fmt::print("  Host {}: {}", host.host, graph::print(plan.topology, host.direct));
  }
}

void printMerged(const graph::MergedGraph& merged) {
  fmt::print("\n  Ring of channel 0 of {} over all ranks\n    {}\n", merged.ringCount(),
             graph::drawRing(merged, 0));
  if (merged.treeChannelCount() == 0) return;
  for (int32_t tree = 0; tree < merged.treesPerChannel(); ++tree) {
    fmt::print("\n  Tree {} of {} of channel 0 of {}\n{}", tree, merged.treesPerChannel(),
               merged.treeChannelCount(), graph::drawTree(merged, {.tree = tree}));
  }
}

const schedule::Program* programOf(const ClusterExplanation& explanation) {
  if (explanation.schedule.programs.empty()) return nullptr;
  return &explanation.schedule.programs[static_cast<size_t>(index(explanation.call.rank))];
}

std::string proofText(const ClusterExplanation& explanation) {
  if (!explanation.isProved) return "not tried";
  return explanation.refusal.empty() ? "right on all ranks, in place, no deadlock"
                                     : "refused: " + explanation.refusal;
}

void printProgram(const ClusterExplanation& explanation) {
  const schedule::Program* program = programOf(explanation);
  if (program == nullptr) {
    fmt::print("\n  No schedule of {} is at hand\n", nameOf(explanation.choices.front()));
    return;
  }
  fmt::print("\n  Rank {}'s {} program on channel 0, run once a piece; proof: {}\n",
             index(explanation.call.rank), explanation.schedule.algorithm, proofText(explanation));
  const size_t shown = std::min(program->steps.size(), kMostSteps);
  for (size_t i = 0; i < shown; ++i)
    fmt::print("  {:>4}  {}\n", i, schedule::describe(*program, program->steps[i]));
  if (shown < program->steps.size())
    fmt::print("        ... {} more steps\n", program->steps.size() - shown);
}

// The kernels reach every peer's memory, so no ring or tree of the graphs is theirs.
void printOwn(const ClusterExplanation& explanation) {
  if (!explanation.own) {
    fmt::print(
        "  tutti    through host memory, as CPU ranks do: its kernels take up to {} GPUs of one "
        "node that reach each other's memory\n",
        wire::kGpuProgramRanks);
    if (!explanation.outOfReach.empty())
      fmt::print("           {} (NCCL_P2P_LEVEL, NCCL_P2P_DISABLE)\n", explanation.outOfReach);
    if (!explanation.direct.empty()) {
      fmt::print("           GPUDirect of rank {}, if the network has it: {}\n",
                 index(explanation.call.rank), explanation.direct);
    }
    return;
  }
  const OwnGpuWay& own = *explanation.own;
  fmt::print("  tutti    {} by {}, {} block{} of {} threads ({}): {}\n", own.algorithm,
             own.protocol, own.blocks, own.blocks == 1 ? "" : "s", own.threads, own.kernel,
             own.us > 0 ? fmt::format("{:.1f} us by the times of H200s", own.us)
                        : "times of such a machine are not known");
  if (own.takesEngines)
    fmt::print(
        "           into symmetric windows by copy engines, which take no blocks meanwhile\n");
}

ordered_json jsonOf(const OwnGpuWay& own) {
  ordered_json output{{"algorithm", own.algorithm},
                      {"protocol", own.protocol},
                      {"kernel", own.kernel},
                      {"blocks", own.blocks},
                      {"threads", own.threads}};
  if (own.takesEngines) output["copy_engines_into_windows"] = true;
  if (own.us > 0) output["time_us"] = own.us;
  return output;
}

ordered_json jsonOf(const MethodChoice& choice) {
  return {{"algorithm", graph::nameOf(choice.method)},
          {"protocol", graph::nameOf(choice.protocol)},
          {"channels", choice.channelCount},
          {"time_us", choice.timeUs}};
}

ordered_json jsonOf(const topology::Topology& topology, const graph::FoundGraph& found) {
  const graph::NodeGraph& graph = found.graph;
  ordered_json channels = ordered_json::array();
  for (const graph::Channel& each : graph.channels) {
    ordered_json channel{{"gpus", ordered_json::array()}};
    for (const topology::NodeId gpu : each.gpus) channel["gpus"].push_back(topology[gpu].gpu.rank);
    if (each.entry != topology::kNoNode) {
      channel["entry"] = topology[each.entry].name;
      channel["exit"] = topology[each.exit].name;
    }
    channels.push_back(std::move(channel));
  }
  return {{"pattern", graph::nameOf(graph.pattern)},
          {"gb_per_second_per_channel", graph.intraGbPerSecond},
          {"gb_per_second", graph.totalGbPerSecond()},
          {"at_most_gb_per_second", found.boundGbPerSecond},
          {"between_gpus", topology::nameOf(graph.intraKind)},
          {"to_ports", topology::nameOf(graph.interKind)},
          {"cross_nic", graph.crossNic},
          {"search_steps", found.steps},
          {"channels", channels}};
}

ordered_json ringsOf(const graph::MergedGraph& merged) {
  ordered_json rings = ordered_json::array();
  for (int32_t channel = 0; channel < merged.ringCount(); ++channel) {
    ordered_json ring = ordered_json::array();
    for (const Rank rank : merged.ring(channel)) ring.push_back(index(rank));
    rings.push_back(std::move(ring));
  }
  return rings;
}

// By channel, tree and rank: the parent, -1 for the root.
ordered_json treesOf(const graph::MergedGraph& merged) {
  ordered_json channels = ordered_json::array();
  for (int32_t channel = 0; channel < merged.treeChannelCount(); ++channel) {
    ordered_json trees = ordered_json::array();
    for (int32_t tree = 0; tree < merged.treesPerChannel(); ++tree) {
      ordered_json parents = ordered_json::array();
      for (int32_t rank = 0; rank < merged.rankCount(); ++rank)
        parents.push_back(index(merged.treeLinks(channel, tree, Rank{rank}).up));
      trees.push_back(std::move(parents));
    }
    channels.push_back(std::move(trees));
  }
  return channels;
}

}  // namespace

void printText(const ClusterExplanation& explanation) {
  const ClusterCall& call = explanation.call;
  const graph::ClusterGraphs& graphs = explanation.plan.graphs;
  fmt::print("{} of {} bytes on {} GPUs of {} node{}\n", name(call.collective), call.bytes,
             graphs.rankCount, graphs.nodeCount, graphs.nodeCount > 1 ? "s" : "");
  for (const std::string& line : explanation.plan.topology.assumptions)
    fmt::print("  assumed {}\n", line);
  if (explanation.choices.empty()) {
    fmt::print("  takes    the only way there is\n");
  } else {
    const MethodChoice& best = explanation.choices.front();
    fmt::print("  takes    {}, {} channel{}: {:.1f} us by NCCL {}'s choice model\n", nameOf(best),
               best.channelCount, best.channelCount > 1 ? "s" : "", best.timeUs, call.constants);
    std::string from;
    for (const auto& [bytes, choice] : explanation.switches)
      from +=
          fmt::format("{}{} from {}", from.empty() ? "" : ", ", nameOf(choice), shortText(bytes));
    fmt::print("  switches {}\n", from);
    printChoices(explanation);
  }
  if (graphs.rankCount > 1) printOwn(explanation);
  printGraphs(explanation);
  printMerged(explanation.plan.merged);
  if (!explanation.choices.empty()) printProgram(explanation);
}

void printJson(const ClusterExplanation& explanation) {
  const ClusterCall& call = explanation.call;
  const graph::ClusterPlan& plan = explanation.plan;
  ordered_json output{{"collective", name(call.collective)},
                      {"bytes", call.bytes},
                      {"ranks", plan.graphs.rankCount},
                      {"nodes", plan.graphs.nodeCount},
                      {"constants", "nccl-" + call.constants}};
  if (explanation.own) output["tutti"] = jsonOf(*explanation.own);
  if (!explanation.direct.empty()) output["gpudirect"] = explanation.direct;
  for (const MethodChoice& each : explanation.choices) output["choices"].push_back(jsonOf(each));
  for (const auto& [bytes, choice] : explanation.switches) {
    ordered_json each = jsonOf(choice);
    each["from_bytes"] = bytes;
    output["switches"].push_back(std::move(each));
  }
  for (const HostGraphs& host : plan.hosts) {
    ordered_json graphs = ordered_json::array();
    for (const graph::FoundGraph* each : {&host.ring, &host.tree, &host.switched, &host.direct}) {
      if (!each->graph.channels.empty()) graphs.push_back(jsonOf(plan.topology, *each));
    }
    output["hosts"].push_back({{"host", host.host}, {"graphs", graphs}});
  }
  output["rings"] = ringsOf(plan.merged);
  output["tree_parents"] = treesOf(plan.merged);
  if (const schedule::Program* program = programOf(explanation)) {
    ordered_json steps = ordered_json::array();
    for (const schedule::Step& step : program->steps)
      steps.push_back(schedule::describe(*program, step));
    output["program"] = {{"rank", index(call.rank)}, {"steps", steps}};
    output["proof"] = {{"tried", explanation.isProved},
                       {"ok", explanation.isProved && explanation.refusal.empty()}};
  }
  output["assumed"] = plan.topology.assumptions;
  fmt::print("{}\n", output.dump(2));
}

}  // namespace tutti::tools
