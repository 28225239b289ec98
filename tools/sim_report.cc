#include "tools/sim_report.h"

#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>

namespace tutti::tools {

std::string sizeName(uint64_t bytes) {
  constexpr std::array kUnits = {std::pair{30, 'G'}, std::pair{20, 'M'}, std::pair{10, 'K'}};
  for (const auto& [shift, letter] : kUnits) {
    if (bytes >= uint64_t{1} << shift && bytes % (uint64_t{1} << shift) == 0)
      return fmt::format("{}{}", bytes >> shift, letter);
  }
  return fmt::format("{}", bytes);
}

namespace {

void printLosers(const SimRow& row) {
  fmt::print("\n  {:<24} {:>8} {:>12} {:>12} {:>9}\n", "WAY", "CHANNELS", "TIME us", "MODEL us",
             "TO BEST");
  const double best = sim::playedOf(row.choices).estimate.us;
  const sim::Choices::Way* played = &sim::playedOf(row.choices);
  for (const sim::Choices::Way& way : row.choices.ways) {
    const std::string model = way.choiceUs > 0 ? fmt::format("{:.1f}", way.choiceUs) : "-";
    if (!way.method) {
      fmt::print("  {:<24} {:>8} {:>12} {:>12} {:>9}\n", way.name, "-", "not played", model, "-");
      continue;
    }
    fmt::print("{} {:<24} {:>8} {:>12.1f} {:>12} {:>8.2f}x\n", &way == played ? '*' : ' ', way.name,
               way.method->channelCount, way.estimate.us, model, way.estimate.us / best);
  }
}

}  // namespace

void printSimTable(const SimSweep& sweep, std::span<const SimRow> rows) {
  const bool isEvents = sweep.fidelity != sim::Fidelity::kClosed;
  fmt::print("{} on {}, {} launched {}, {}\n", name(sweep.collective), sweep.clusterFile,
             nameOf(sweep.timing.system), nameOf(sweep.timing.launch),
             isEvents ? fmt::format("event by event ({})", nameOf(sweep.fidelity))
                      : std::string("closed form"));
  fmt::print("{:>7} {:>8} {:>8}  {:<18} {:>12} {:>9}  {}\n", "NODES", "RANKS", "BYTES", "WAY",
             "TIME us", "BUS GB/s", "LIMITED BY");
  for (const SimRow& row : rows) {
    fmt::print("{:>7} {:>8} {:>8}  {:<18} {:>12.1f} {:>9.2f}  {}\n", row.nodeCount, row.rankCount,
               sizeName(row.bytes), sim::playedOf(row.choices).name, row.us, row.busGb, row.limit);
  }
  if (rows.size() != 1) return;
  const SimRow& row = rows.front();
  const sim::Estimate& estimate = sim::playedOf(row.choices).estimate;
  fmt::print(
      "  {}; of the closed form {:.1f} us are the call, {:.1f} latency ({} hops, {} between "
      "nodes), {:.1f} bytes\n",
      row.choices.reason, estimate.fixedUs, estimate.latencyUs, estimate.hops, estimate.networkHops,
      estimate.bytesUs);
  if (isEvents)
    fmt::print("  {} events; {} of {} lanes simulated, the others are like them\n", row.events,
               row.laneClasses, row.laneCount);
  printLosers(row);
}

void printSimJson(const SimSweep& sweep, std::span<const SimRow> rows) {
  nlohmann::ordered_json out = {{"schema", "tutti.sim/1"},
                                {"cluster", sweep.clusterFile},
                                {"collective", name(sweep.collective)},
                                {"system", nameOf(sweep.timing.system)},
                                {"launch", nameOf(sweep.timing.launch)},
                                {"fidelity", nameOf(sweep.fidelity)}};
  out["rows"] = nlohmann::ordered_json::array();
  for (const SimRow& row : rows) {
    nlohmann::ordered_json each = {{"nodes", row.nodeCount},
                                   {"ranks", row.rankCount},
                                   {"bytes", row.bytes},
                                   {"way", sim::playedOf(row.choices).name},
                                   {"us", row.us},
                                   {"bus_gb_s", row.busGb},
                                   {"limited_by", row.limit},
                                   {"reason", row.choices.reason}};
    if (row.events > 0) each["events"] = row.events;
    for (const sim::Choices::Way& way : row.choices.ways) {
      nlohmann::ordered_json loser = {{"way", way.name}};
      if (way.method) {
        loser["channels"] = way.method->channelCount;
        loser["closed_us"] = way.estimate.us;
        loser["hops"] = way.estimate.hops;
      }
      if (way.choiceUs > 0) loser["nccl_model_us"] = way.choiceUs;
      each["ways"].push_back(std::move(loser));
    }
    out["rows"].push_back(std::move(each));
  }
  fmt::print("{}\n", out.dump(2));
}

}  // namespace tutti::tools
