#include "tools/sim_trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/units.h"
#include "base/whole_file.h"
#include "sim/chakra_file.h"
#include "sim/trace_file.h"
#include "tools/sim_report.h"

namespace tutti::tools {
namespace {

// Rows of the table of calls, beyond which groups that do the same are one row.
constexpr size_t kMostRows = 24;
constexpr size_t kMostTraceBytes = 1024_MiB;
constexpr std::string_view kFirstChakra = ".0.et";

Result<std::string> readText(const std::string& path) {
  return readFileOrPipe(path, kMostTraceBytes);
}

Result<sim::Trace> readChakra(const std::string& first, const std::string& groups,
                              int32_t rankCount) {
  // The group of all ranks is there in any case.
  std::string declared = R"({"compute_us":0,"rank":0})";
  if (!groups.empty()) {
    TUTTI_TRY_ASSIGN(declared, readText(groups));
  }
  TUTTI_TRY_ASSIGN(sim::Trace trace, sim::parseTrace(declared, groups, rankCount));
  trace.steps.clear();
  const std::string prefix = first.substr(0, first.size() - kFirstChakra.size());
  std::vector<std::string> texts(static_cast<size_t>(rankCount));
  std::vector<sim::ChakraFile> files;
  for (int32_t rank = 0; rank < rankCount; ++rank) {
    const std::string path = fmt::format("{}.{}.et", prefix, rank);
    std::string& text = texts[static_cast<size_t>(rank)];
    TUTTI_TRY_ASSIGN(text, readText(path));
    files.push_back({.rank = Rank{rank}, .source = path, .text = text});
  }
  return sim::parseChakra(files, std::move(trace));
}

Result<sim::Trace> readTrace(const std::string& file, const std::string& groups,
                             int32_t rankCount) {
  if (file.ends_with(kFirstChakra)) return readChakra(file, groups, rankCount);
  TUTTI_TRY_ASSIGN(const std::string text, readText(file));
  return sim::parseTrace(text, file, rankCount);
}

// Programs make communicators by the hundred, with numbers for names.
std::vector<TraceReport::Calls> folded(const std::vector<TraceReport::Calls>& rows) {
  using Key = std::tuple<int32_t, std::string, std::string, uint64_t>;
  std::map<Key, std::pair<TraceReport::Calls, int32_t>> sums;
  for (const TraceReport::Calls& row : rows) {
    const auto [at, isFirst] =
        sums.try_emplace({row.groupSize, row.call, row.way, row.bytes}, row, 0);
    if (isFirst) continue;
    auto& [sum, others] = at->second;
    ++others;
    sum.count += row.count;
    sum.us += row.us;
    sum.aloneUs += row.aloneUs;
    sum.waitUs += row.waitUs;
  }
  std::vector<TraceReport::Calls> made;
  for (auto& [key, entry] : sums) {
    if (entry.second > 0) entry.first.group += fmt::format(" +{}", entry.second);
    made.push_back(std::move(entry.first));
  }
  return made;
}

void sumUp(TraceReport& report) {
  using Key = std::tuple<std::string, std::string, std::string, uint64_t>;
  std::map<Key, TraceReport::Calls> sums;
  for (size_t i = 0; i < report.trace.steps.size(); ++i) {
    const sim::TraceStep& step = report.trace.steps[i];
    if (step.calls.empty()) continue;
    const sim::TraceCall& call = step.calls.front();
    const sim::TraceGroup& group = report.trace.groups[static_cast<size_t>(call.group)];
    const uint64_t bytes = plan::vectorBytes(call.shape, static_cast<int32_t>(group.ranks.size()));
    const std::string what = step.calls.size() > 1
                                 ? fmt::format("{} sends, receives", step.calls.size())
                                 : std::string(name(call.shape.collective));
    const sim::TraceTimes::Span& span = report.times.spans[i];
    TraceReport::Calls& sum = sums[{group.name, what, report.times.ways[i], bytes}];
    sum.groupSize = static_cast<int32_t>(group.ranks.size());
    sum.count += 1;
    sum.us += span.endUs - span.startUs;
    sum.aloneUs += span.aloneUs;
    sum.waitUs += span.startUs - span.readyUs;
  }
  for (auto& [key, sum] : sums) {
    std::tie(sum.group, sum.call, sum.way, sum.bytes) = key;
    report.calls.push_back(sum);
  }
  if (report.calls.size() > kMostRows) report.calls = folded(report.calls);
  std::ranges::stable_sort(report.calls, std::greater<>(), &TraceReport::Calls::us);
  for (TraceReport::Calls& each : report.calls) {
    each.us /= static_cast<double>(each.count);
    each.aloneUs /= static_cast<double>(each.count);
    each.waitUs /= static_cast<double>(each.count);
  }
}

void findBusiest(TraceReport& report, const sim::Cluster& cluster) {
  if (report.times.us <= 0) return;
  const sim::BusiestLink busiest = sim::busiestOf(cluster, {.wireBytes = report.times.linkBytes});
  if (busiest.link < 0) return;
  report.busiestLink = cluster.nameOfLink(busiest.link);
  report.busiestShare = busiest.us / report.times.us;
}

}  // namespace

Result<TraceReport> runTrace(const SimSweep& sweep, const std::string& file,
                             const std::string& groups) {
  TUTTI_TRY_ASSIGN(const sim::Cluster cluster, readCluster(sweep, sweep.nodeCounts.front()));
  TraceReport report{.source = file,
                     .clusterFile = sweep.clusterFile,
                     .timing = sweep.timing,
                     .rankCount = cluster.rankCount(),
                     .trace = {},
                     .times = {},
                     .calls = {},
                     .ranks = {},
                     .busiestLink = {}};
  TUTTI_TRY_ASSIGN(report.trace, readTrace(file, groups, cluster.rankCount()));
  TUTTI_TRY_ASSIGN(report.times, sim::simulateTrace(cluster, report.trace, sweep.timing));
  sumUp(report);
  findBusiest(report, cluster);
  report.ranks = sim::timesOfAll(report.trace, report.times, report.rankCount);
  return report;
}

void printTrace(const TraceReport& report) {
  fmt::print("{} on {}, {} launched {}: {} ranks, {} steps of ranks\n", report.source,
             report.clusterFile, nameOf(report.timing.system), nameOf(report.timing.launch),
             report.rankCount, report.trace.steps.size());
  fmt::print("  {:.1f} us in all\n\n", report.times.us);
  fmt::print("{:>10} {:>14} {:>14} {:>14} {:>14}\n", "RANK", "COMPUTES us", "CALLS us",
             "ONLY CALLS us", "NEITHER us");
  const auto line = [](const std::string& who, const sim::RankTimes& times) {
    fmt::print("{:>10} {:>14.1f} {:>14.1f} {:>14.1f} {:>14.1f}\n", who, times.computeUs,
               times.callUs, times.exposedUs, times.idleUs);
  };
  const auto [least, most] =
      std::ranges::minmax_element(report.ranks, {}, &sim::RankTimes::exposedUs);
  for (const auto& each : {most, least})
    line(fmt::format("{}", each - report.ranks.begin()), *each);
  fmt::print("  the ranks that compute nothing beside their calls for longest and shortest\n\n");
  fmt::print("{:<18} {:<20} {:>9} {:>9} {:>11} {:>11} {:>11}  {}\n", "GROUP", "CALL", "BYTES",
             "CALLS", "EACH us", "ALONE us", "WAITS us", "WAY");
  for (const TraceReport::Calls& each : report.calls) {
    fmt::print("{:<18} {:<20} {:>9} {:>9} {:>11.1f} {:>11.1f} {:>11.1f}  {}\n", each.group,
               each.call, sizeName(each.bytes), each.count, each.us, each.aloneUs, each.waitUs,
               each.way);
  }
  if (!report.busiestLink.empty())
    fmt::print("\nthe busiest link is {}, {:.0f} % of the time\n", report.busiestLink,
               100 * report.busiestShare);
}

void printTraceJson(const TraceReport& report, Rank rank) {
  nlohmann::ordered_json out = {{"schema", "tutti.sim.trace/1"},
                                {"trace", report.source},
                                {"cluster", report.clusterFile},
                                {"system", nameOf(report.timing.system)},
                                {"launch", nameOf(report.timing.launch)},
                                {"ranks", report.rankCount},
                                {"us", report.times.us}};
  for (const TraceReport::Calls& each : report.calls) {
    out["calls"].push_back({{"group", each.group},
                            {"call", each.call},
                            {"bytes", each.bytes},
                            {"count", each.count},
                            {"us", each.us},
                            {"alone_us", each.aloneUs},
                            {"wait_us", each.waitUs},
                            {"way", each.way}});
  }
  if (!report.busiestLink.empty())
    out["busiest_link"] = {{"name", report.busiestLink}, {"share", report.busiestShare}};
  for (const sim::RankTimes& each : report.ranks) {
    out["by_rank"].push_back({{"compute_us", each.computeUs},
                              {"call_us", each.callUs},
                              {"exposed_us", each.exposedUs},
                              {"idle_us", each.idleUs}});
  }
  out["rank"] = index(rank);
  for (size_t i = 0; i < report.trace.steps.size(); ++i) {
    const sim::TraceStep& step = report.trace.steps[i];
    if (step.rank != rank) continue;
    const sim::TraceTimes::Span& span = report.times.spans[i];
    nlohmann::ordered_json each = {{"name", step.name},
                                   {"ready_us", span.readyUs},
                                   {"start_us", span.startUs},
                                   {"end_us", span.endUs}};
    if (step.stream != sim::TraceStep::kNoStream)
      each["stream"] = report.trace.streams[static_cast<size_t>(step.stream)];
    if (!report.times.ways[i].empty()) each["way"] = report.times.ways[i];
    out["timeline"].push_back(std::move(each));
  }
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace tutti::tools
