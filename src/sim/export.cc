#include "sim/export.h"

#include <algorithm>

#include "sim/export_internal.h"
#include "sim/time_constants.h"

namespace tutti::sim {

std::string_view nameOf(Format format) {
  switch (format) {
    case Format::kJsonLines: return "jsonl";
    case Format::kSimai: return "simai";
    case Format::kGoal: return "goal";
    case Format::kGoalBinary: return "goalbin";
    case Format::kChakra: return "chakra";
    case Format::kMsccl: return "msccl";
    case Format::kHtsim: return "htsim";
    case Format::kSimaiTopology: return "topology";
    case Format::kHtsimTopology: return "htsim_topology";
  }
  return "?";
}

Status writeFlows(Format format, const FlowTable& table, const Sink& sink) {
  switch (format) {
    case Format::kJsonLines: return writeJsonLines(table, sink);
    case Format::kSimai: return writeSimai(table, sink);
    case Format::kGoal: return writeGoal(table, sink);
    case Format::kGoalBinary: return writeGoalBinary(table, sink);
    case Format::kChakra: return writeChakra(table, sink);
    case Format::kMsccl: return writeMsccl(table, sink);
    case Format::kHtsim: return writeHtsim(table, sink);
    case Format::kSimaiTopology: return writeTopology(table.traffic().cluster(), sink);
    case Format::kHtsimTopology: return writeHtsimTopology(table.traffic().cluster(), sink);
  }
  return {};
}

Result<uint32_t> tagOf(int32_t channel, int64_t place) {
  if (place >= int64_t{1} << kPlaceBits)
    return invalidArgument("more than {} messages between two ranks on a channel: tags are 32 bits",
                           int64_t{1} << kPlaceBits);
  return (static_cast<uint32_t>(channel) << kPlaceBits) | static_cast<uint32_t>(place);
}

uint64_t calcNanoseconds(const FlowTable& table, const FlowStep& step) {
  const Traffic& traffic = table.traffic();
  const CallPrices prices =
      traffic.cluster().hasGpus()
          ? pricesFor({System::kTutti, traffic.call().collective, traffic.method().algorithm,
                       traffic.method().protocol, traffic.cluster().mostRanksPerNode()})
          : cpuPrices(traffic.call().collective, traffic.method().algorithm);
  const double lane = prices.gbPerSecond / traffic.channelCount();  // bytes a nanosecond
  return std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(step.bytes) / lane));
}

namespace {

std::string joined(const std::vector<int64_t>& numbers, std::string_view between) {
  std::string text;
  for (const int64_t number : numbers)
    text += fmt::format("{}{}", text.empty() ? "" : between, number);
  return text;
}

}  // namespace

Status writeJsonLines(const FlowTable& table, const Sink& sink) {
  const Traffic& traffic = table.traffic();
  const Cluster& cluster = traffic.cluster();
  TUTTI_TRY(sink(
      "",
      fmt::format("{{\"schema\":\"tutti.flows/1\",\"collective\":\"{}\",\"bytes\":{},"
                  "\"algorithm\":\"{}\",\"protocol\":\"{}\",\"ranks\":{},\"channels\":"
                  "{},\"slots\":{},\"flows\":{}}}\n",
                  name(traffic.call().collective), traffic.call().bytes, traffic.method().algorithm,
                  graph::nameOf(traffic.method().protocol), traffic.rankCount(),
                  traffic.channelCount(), traffic.method().slotCount, table.count())));
  std::vector<bool> isNamed(static_cast<size_t>(cluster.linkCount()));
  return table.forFlows([&](const Flow& flow) -> Status {
    TUTTI_TRY_ASSIGN(const FlowRoute route, traffic.route(flow.channel, flow.from, flow.to));
    std::string text, links;
    for (const int32_t link : route.links) {
      links += fmt::format("{}{}", links.empty() ? "" : ",", link);
      if (isNamed[static_cast<size_t>(link)]) continue;
      // A link is described before the first flow that takes it.
      isNamed[static_cast<size_t>(link)] = true;
      text += fmt::format("{{\"link\":{},\"name\":\"{}\",\"gb_s\":{}}}\n", link,
                          cluster.nameOfLink(link), cluster.gbPerSecond(link));
    }
    text += fmt::format(
        "{{\"flow\":{},\"channel\":{},\"from\":{},\"to\":{},\"piece\":{},\"step\":{},\"chunk\":{},"
        "\"bytes\":{},\"wire\":{},\"route\":[{}],\"data\":[{}],\"previous\":{},\"slot\":{}}}\n",
        flow.id, flow.channel, index(flow.from), index(flow.to), flow.piece, flow.step, flow.chunk,
        flow.bytes, flow.wireBytes, links, joined(flow.waitsFor, ","), flow.previous, flow.slot);
    return sink("", text);
  });
}

Status writeSimai(const FlowTable& table, const Sink& sink) {
  TUTTI_TRY(sink("",
                 "collective,op,data_size,algorithm,protocol,channel_id,flow_id,src,dest,flow_size,"
                 "chunk_id,chunk_count,conn_type,parent_flow_ids,prev_flow_ids\n"));
  const Traffic& traffic = table.traffic();
  const auto upper = [](std::string text) {
    for (char& letter : text) letter = static_cast<char>(std::toupper(letter));
    return text;
  };
  const std::string algorithm = upper(traffic.method().algorithm);
  const std::string protocol = upper(std::string(graph::nameOf(traffic.method().protocol)));
  return table.forFlows([&](const Flow& flow) -> Status {
    const std::string previous = flow.previous == kNoFlow ? "" : fmt::format("{}", flow.previous);
    return sink("", fmt::format("{},TP,{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                                name(traffic.call().collective), traffic.call().bytes, algorithm,
                                protocol, flow.channel, flow.id, index(flow.from), index(flow.to),
                                flow.bytes, flow.chunk, traffic.chunkCount(), algorithm,
                                joined(flow.waitsFor, ";"), previous));
  });
}

// A flow has one trigger: flows with several reasons to wait get a barrier.
Status writeHtsim(const FlowTable& table, const Sink& sink) {
  constexpr uint64_t kMostBytes = (uint64_t{1} << 31) - 1;
  std::string lines;
  std::vector<std::vector<int64_t>> fires(static_cast<size_t>(table.count()));
  std::vector<int32_t> waits(static_cast<size_t>(table.count()));
  TUTTI_TRY(table.forFlows([&](const Flow& flow) -> Status {
    if (flow.wireBytes > kMostBytes)
      return invalidArgument("htsim: flow {} has {} bytes, a flow holds {}", flow.id,
                             flow.wireBytes, kMostBytes);
    std::vector<int64_t> reasons = flow.waitsFor;
    if (reasons.empty() && flow.previous != kNoFlow) reasons.push_back(flow.previous);
    std::ranges::sort(reasons);
    reasons.erase(std::ranges::unique(reasons).begin(), reasons.end());
    for (const int64_t reason : reasons) fires[static_cast<size_t>(reason)].push_back(flow.id);
    waits[static_cast<size_t>(flow.id)] = static_cast<int32_t>(reasons.size());
    return {};
  }));
  // A finished flow pulls one trigger, so there is one for each set of flows that it starts.
  int64_t triggerCount = 0;
  std::vector<int64_t> pulls(static_cast<size_t>(table.count()));   // 0: none
  std::vector<int64_t> starts(static_cast<size_t>(table.count()));  // 0: at time 0
  std::string triggers;
  for (size_t flow = 0; flow < fires.size(); ++flow) {
    for (const int64_t next : fires[flow]) {
      const auto at = static_cast<size_t>(next);
      if (waits[at] == 1) {
        if (pulls[flow] == 0) {
          pulls[flow] = ++triggerCount;
          triggers += fmt::format("trigger id {} oneshot\n", triggerCount);
        }
        starts[at] = pulls[flow];
      } else if (starts[at] == 0) {
        starts[at] = ++triggerCount;
        triggers += fmt::format("trigger id {} barrier count {}\n", triggerCount, waits[at]);
      }
    }
  }
  for (size_t flow = 0; flow < fires.size(); ++flow) {
    for (const int64_t next : fires[flow]) {
      if (waits[static_cast<size_t>(next)] == 1) continue;
      if (pulls[flow] != 0 && pulls[flow] != starts[static_cast<size_t>(next)])
        return invalidArgument(
            "htsim: flow {} would have to start several others in different ways, "
            "and can pull one trigger",
            flow);
      pulls[flow] = starts[static_cast<size_t>(next)];
    }
  }
  TUTTI_TRY(sink("", fmt::format("Nodes {}\nConnections {}\nTriggers {}\n",
                                 table.traffic().rankCount(), table.count(), triggerCount)));
  TUTTI_TRY(table.forFlows([&](const Flow& flow) -> Status {
    const auto at = static_cast<size_t>(flow.id);
    const std::string start = starts[at] == 0 ? "start 0" : fmt::format("trigger {}", starts[at]);
    const std::string pull = pulls[at] == 0 ? "" : fmt::format(" recv_done_trigger {}", pulls[at]);
    return sink("", fmt::format("{}->{} id {} {} size {}{}\n", index(flow.from), index(flow.to),
                                flow.id + 1, start, flow.wireBytes, pull));
  }));
  return sink("", triggers);
}

std::string chromeTrace(std::span<const Span> spans, Rank rank) {
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  bool isFirst = true;
  for (const Span& span : spans) {
    text += fmt::format(
        "{}{{\"name\":\"step {}\",\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},"
        "\"args\":{{\"piece\":{},\"chunk\":{},\"bytes\":{},\"from\":{},\"to\":{}}}}}",
        isFirst ? "" : ",\n", span.step, index(rank), span.channel, span.startUs,
        span.endUs - span.startUs, span.piece, span.chunk, span.bytes, index(span.from),
        index(span.to));
    isFirst = false;
  }
  return text + "\n]}\n";
}

}  // namespace tutti::sim
