#include "tools/sim_compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "sim/choice.h"
#include "tools/collective_option.h"
#include "tools/median.h"
#include "tools/sim_report.h"
#include "tools/sim_run.h"

namespace tutti::tools {
namespace {

std::vector<std::string_view> cellsOf(std::string_view line) {
  std::vector<std::string_view> cells;
  while (true) {
    const size_t comma = line.find(',');
    cells.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  Status header(std::string_view line) {
    for (const std::string_view cell : cellsOf(line)) names_.emplace_back(cell);
    for (const char* needed : {"collective", "ranks", "bytes", "us"}) {
      if (std::ranges::find(names_, needed) == names_.end())
        return invalidArgument(
            "{}:1:1: no column {}; wanted collective, ranks, bytes, us, and, "
            "where they differ, system, mode, case, run",
            source_, needed);
    }
    return {};
  }

  Result<Measured> row(std::string_view line, int64_t number) {
    Measured made;
    const std::vector<std::string_view> cells = cellsOf(line);
    if (cells.size() != names_.size())
      return invalidArgument("{}:{}:1: {} cells, the header has {}", source_, number, cells.size(),
                             names_.size());
    for (size_t i = 0; i < cells.size(); ++i) {
      if (take(made, names_[i], cells[i])) continue;
      return invalidArgument("{}:{}:{}: {} is no {}", source_, number,
                             cells[i].data() - line.data() + 1, cells[i], names_[i]);
    }
    return made;
  }

 private:
  template <typename Number>
  static bool number(std::string_view text, Number& value) {
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && value > 0;
  }

  static bool take(Measured& made, const std::string& column, std::string_view cell) {
    if (column == "ranks") return number(cell, made.ranks) && made.ranks <= 1 << 20;
    if (column == "bytes") return number(cell, made.bytes);
    if (column == "us") return number(cell, made.us) && std::isfinite(made.us);
    if (column == "run") made.run = cell;
    if (column == "case") made.caseName = cell;
    if (column == "system") {
      made.system = cell == "nccl" ? sim::System::kNccl : sim::System::kTutti;
      return cell == "nccl" || cell == "tutti";
    }
    if (column == "mode") {
      made.launch = cell == "graph" ? sim::Launch::kGraph : sim::Launch::kEager;
      return cell == "graph" || cell == "eager";
    }
    if (column != "collective") return true;
    try {
      made.collective = parseCollective(std::string(cell));
    } catch (const std::exception&) {
      return false;
    }
    return true;
  }

  const std::string& source_;
  std::vector<std::string> names_;
};

}  // namespace

Result<std::vector<Measured>> parseMeasured(std::string_view text, const std::string& source) {
  Reader reader(source);
  std::vector<Measured> rows;
  int64_t number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    if (number == 1) {
      TUTTI_TRY(reader.header(line));
    } else if (!line.empty()) {
      TUTTI_TRY_ASSIGN(Measured row, reader.row(line, number));
      rows.push_back(std::move(row));
    }
  }
  if (rows.empty()) return invalidArgument("{}:1:1: no measured call", source);
  return rows;
}

double Compared::spread() const {
  const auto [least, most] = std::ranges::minmax(runs, {}, &Measured::us);
  if (lineUs <= 0) return most.us / least.us - 1;
  return std::max(most.us, lineUs) / std::min(least.us, lineUs) - 1;
}

namespace {

// What tells calls apart. Names, so that what is printed is in their order.
auto groupOf(const Measured& row) {
  return std::tuple(row.caseName, std::string(nameOf(row.system)), std::string(nameOf(row.launch)));
}
auto callOf(const Measured& row) {
  return std::tuple(groupOf(row), std::string(name(row.collective)), row.ranks, row.bytes);
}

// Two calls of a kind, one larger: what the line between them says of a size between them.
double between(const Measured& low, const Measured& high, uint64_t bytes) {
  const double part =
      static_cast<double>(bytes - low.bytes) / static_cast<double>(high.bytes - low.bytes);
  return low.us + part * (high.us - low.us);
}

// One run shows nothing of how far runs differ: its neighbours do, where they were run more often.
void addLines(std::span<Compared> calls) {
  const auto kindOf = [](const Compared& each) {
    const Measured& row = each.measured;
    return std::tuple(groupOf(row), row.collective, row.ranks);
  };
  for (size_t i = 1; i + 1 < calls.size(); ++i) {
    const Compared &low = calls[i - 1], &high = calls[i + 1];
    const bool isBetween = kindOf(low) == kindOf(calls[i]) && kindOf(high) == kindOf(calls[i]);
    if (isBetween && calls[i].runs.size() == 1 && low.runs.size() > 1 && high.runs.size() > 1)
      calls[i].lineUs = between(low.measured, high.measured, calls[i].measured.bytes);
  }
}

// Runs of a call together, calls in order.
std::vector<Compared> callsOf(std::span<const Measured> measured) {
  std::map<decltype(callOf(Measured())), Compared> calls;
  for (const Measured& row : measured) calls[callOf(row)].runs.push_back(row);
  std::vector<Compared> made;
  for (auto& [key, call] : calls) {
    call.measured = call.runs.front();
    std::vector<double> times;
    for (const Measured& run : call.runs) times.push_back(run.us);
    call.measured.us = medianOf(std::move(times));
    made.push_back(std::move(call));
  }
  addLines(made);
  return made;
}

}  // namespace

Result<std::vector<Compared>> compare(std::span<const Measured> measured,
                                      const std::string& clusterFile) {
  std::vector<Compared> compared = callsOf(measured);
  std::map<int32_t, std::vector<Compared*>> byRanks;
  for (Compared& each : compared) byRanks[each.measured.ranks].push_back(&each);
  for (const auto& [ranks, calls] : byRanks) {
    const SimSweep sweep{.clusterFile = clusterFile, .rankCount = ranks};
    TUTTI_TRY_ASSIGN(const sim::Cluster cluster, readCluster(sweep, 0));
    TUTTI_TRY_ASSIGN(const sim::VirtualPlan plan, sim::planVirtual(cluster));
    sim::Estimator estimator(cluster, plan);
    for (Compared* call : calls) {
      const Measured& row = call->measured;
      TUTTI_TRY_ASSIGN(
          const sim::Choices choices,
          sim::chooseFor(
              estimator,
              {.collective = row.collective, .bytes = row.bytes, .sender = Rank{ranks > 1 ? 1 : 0}},
              {.system = row.system, .launch = row.launch}));
      const sim::Choices::Way& way = sim::playedOf(choices);
      call->us = way.estimate.us;
      call->way = way.name;
    }
  }
  return compared;
}

namespace {

std::string percent(double value) { return fmt::format("{:.1f} %", 100 * value); }

// Calls of one case, system and launch.
using Group = std::vector<const Compared*>;

void printSummary(const Measured& like, const Group& calls) {
  std::vector<double> errors, unstable;
  for (const Compared* each : calls)
    (each->isUnstable() ? unstable : errors).push_back(std::abs(each->error()));
  fmt::print("{}{}{}, {}: {} calls", like.caseName, like.caseName.empty() ? "" : ": ",
             nameOf(like.system), nameOf(like.launch), calls.size());
  if (!errors.empty())
    fmt::print(", median error {}, worst {}, {} over {:.0f} %", percent(medianOf(errors)),
               percent(*std::ranges::max_element(errors)),
               std::ranges::count_if(errors, [](double error) { return error > kWantedError; }),
               100 * kWantedError);
  if (!unstable.empty())
    fmt::print("; {} of them unstable, the worst {} off", unstable.size(),
               percent(*std::ranges::max_element(unstable)));
  fmt::print("\n");
}

void printTable(const Group& calls) {
  std::set<uint64_t> sizes;
  std::map<std::pair<std::string, int32_t>, std::map<uint64_t, std::string>> table;
  for (const Compared* each : calls) {
    const Measured& row = each->measured;
    sizes.insert(row.bytes);
    table[{std::string(name(row.collective)), row.ranks}][row.bytes] =
        fmt::format("{}{:+.0f}", each->isUnstable() ? "?" : "", 100 * each->error());
  }
  fmt::print("  {:<14} {:>5}", "signed, %", "RANKS");
  for (const uint64_t size : sizes) fmt::print(" {:>6}", sizeName(size));
  for (const auto& [row, values] : table) {
    fmt::print("\n  {:<14} {:>5}", row.first, row.second);
    for (const uint64_t size : sizes) {
      const auto at = values.find(size);
      fmt::print(" {:>6}", at == values.end() ? "" : at->second);
    }
  }
  fmt::print("\n");
}

// Calls with all that was measured of them.
template <typename IsListed>
void printRuns(std::span<const Compared> compared, const std::string& title, IsListed isListed) {
  bool isFirst = true;
  for (const Compared& each : compared) {
    if (!isListed(each)) continue;
    if (std::exchange(isFirst, false))
      fmt::print("\n{}\n  {:<6} {:<6} {:<14} {:>5} {:>6} {:>10} {:>7}  {}\n", title, "", "", "",
                 "RANKS", "BYTES", "SIM us", "ERROR %", "MEASURED us");
    const Measured& row = each.measured;
    std::string text;
    for (const Measured& run : each.runs) text += fmt::format(" {:.4g}", run.us);
    if (each.lineUs > 0) text += fmt::format(" ({:.4g} by its neighbours)", each.lineUs);
    fmt::print("  {:<6} {:<6} {:<14} {:>5} {:>6} {:>10.1f} {:>+7.0f} {}\n", nameOf(row.system),
               nameOf(row.launch), name(row.collective), row.ranks, sizeName(row.bytes), each.us,
               100 * each.error(), text);
  }
}

}  // namespace

void printCompared(std::span<const Compared> compared) {
  std::map<decltype(groupOf(Measured())), Group> groups;
  for (const Compared& each : compared) groups[groupOf(each.measured)].push_back(&each);
  for (const auto& [key, calls] : groups) {
    printSummary(calls.front()->measured, calls);
    printTable(calls);
  }
  printRuns(compared, fmt::format("over {:.0f} %, with all runs of the call", 100 * kWantedError),
            [](const Compared& each) {
              return !each.isUnstable() && std::abs(each.error()) > kWantedError;
            });
  printRuns(
      compared,
      fmt::format("unstable (?): the slowest run takes over {0:.0f} % longer than the fastest, or "
                  "a lone run is over {0:.0f} % off\n  the line between its neighbours in size, "
                  "which were run several times",
                  100 * kWantedError),
      [](const Compared& each) { return each.isUnstable(); });
}

void printComparedJson(std::span<const Compared> compared) {
  nlohmann::ordered_json out = {{"schema", "tutti.sim.compare/2"}};
  for (const Compared& each : compared) {
    nlohmann::ordered_json runs = nlohmann::ordered_json::array();
    for (const Measured& run : each.runs) runs.push_back({{"run", run.run}, {"us", run.us}});
    out["rows"].push_back({{"case", each.measured.caseName},
                           {"system", nameOf(each.measured.system)},
                           {"mode", nameOf(each.measured.launch)},
                           {"collective", name(each.measured.collective)},
                           {"ranks", each.measured.ranks},
                           {"bytes", each.measured.bytes},
                           {"measured_us", each.measured.us},
                           {"runs", std::move(runs)},
                           {"line_us", each.lineUs},
                           {"unstable", each.isUnstable()},
                           {"simulated_us", each.us},
                           {"error", each.error()},
                           {"way", each.way}});
  }
  fmt::print("{}\n", out.dump(2));
}

}  // namespace tutti::tools
