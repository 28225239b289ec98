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
            "where they differ, system, mode, run",
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

double medianOf(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

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

Result<std::vector<Compared>> compare(std::span<const Measured> measured,
                                      const std::string& clusterFile) {
  std::map<int32_t, std::vector<size_t>> byRanks;
  for (size_t i = 0; i < measured.size(); ++i) byRanks[measured[i].ranks].push_back(i);
  std::vector<Compared> compared(measured.size());
  for (const auto& [ranks, rows] : byRanks) {
    const SimSweep sweep{.clusterFile = clusterFile, .rankCount = ranks};
    TUTTI_TRY_ASSIGN(const sim::Cluster cluster, readCluster(sweep, 0));
    TUTTI_TRY_ASSIGN(const sim::VirtualPlan plan, sim::planVirtual(cluster));
    sim::Estimator estimator(cluster, plan);
    for (const size_t i : rows) {
      const Measured& row = measured[i];
      TUTTI_TRY_ASSIGN(
          const sim::Choices choices,
          sim::chooseFor(
              estimator,
              {.collective = row.collective, .bytes = row.bytes, .sender = Rank{ranks > 1 ? 1 : 0}},
              {.system = row.system, .launch = row.launch}));
      const sim::Choices::Way& way = sim::playedOf(choices);
      compared[i] = {.measured = row, .us = way.estimate.us, .way = way.name};
    }
  }
  return compared;
}

namespace {

// Calls that are further off than was wanted, each with all that was measured of it: where runs
// differ by as much among themselves, no time fits them all.
void printOver(std::span<const Compared> compared) {
  using Key = std::tuple<std::string, std::string, std::string, int32_t, uint64_t>;
  std::map<Key, std::vector<const Compared*>> calls;
  for (const Compared& each : compared) {
    const Measured& row = each.measured;
    calls[{std::string(nameOf(row.system)), std::string(nameOf(row.launch)),
           std::string(name(row.collective)), row.ranks, row.bytes}]
        .push_back(&each);
  }
  constexpr double kWanted = .25;
  const auto isOver = [](const Compared* each) { return std::abs(each->error()) > kWanted; };
  bool isFirst = true;
  for (const auto& [key, cells] : calls) {
    if (std::ranges::none_of(cells, isOver)) continue;
    if (std::exchange(isFirst, false))
      fmt::print(
          "\nover 25 %, with all runs of the call\n  {:<6} {:<6} {:<14} {:>5} {:>6} {:>10}  {}\n",
          "", "", "", "RANKS", "BYTES", "SIM us", "MEASURED us");
    const auto& [system, launch, collective, ranks, bytes] = key;
    std::string text;
    double least = cells.front()->measured.us, most = least;
    for (const Compared* each : cells) {
      text += fmt::format(" {:.4g}", each->measured.us);
      least = std::min(least, each->measured.us);
      most = std::max(most, each->measured.us);
    }
    if (cells.size() > 1)
      text += fmt::format(", runs differ by {:.0f} %", 100 * (most / least - 1));
    fmt::print("  {:<6} {:<6} {:<14} {:>5} {:>6} {:>10.1f} {}\n", system, launch, collective, ranks,
               sizeName(bytes), cells.front()->us, text);
  }
}

}  // namespace

void printCompared(std::span<const Compared> compared) {
  using Key = std::tuple<std::string, std::string, std::string>;
  std::map<Key, std::vector<const Compared*>> groups;
  for (const Compared& each : compared) {
    groups[{each.measured.run, std::string(nameOf(each.measured.system)),
            std::string(nameOf(each.measured.launch))}]
        .push_back(&each);
  }
  for (const auto& [key, cells] : groups) {
    const auto& [run, system, launch] = key;
    std::vector<double> errors;
    for (const Compared* each : cells) errors.push_back(std::abs(each->error()));
    const auto over = std::ranges::count_if(errors, [](double error) { return error > .25; });
    fmt::print("{}{}{}, {}: {} cells, median error {:.1f} %, worst {:.1f} %, {} over 25 %\n", run,
               run.empty() ? "" : ": ", system, launch, cells.size(), 100 * medianOf(errors),
               100 * *std::ranges::max_element(errors), over);
    std::set<uint64_t> sizes;
    std::map<std::pair<std::string, int32_t>, std::map<uint64_t, double>> table;
    for (const Compared* each : cells) {
      sizes.insert(each->measured.bytes);
      table[{std::string(name(each->measured.collective)), each->measured.ranks}]
           [each->measured.bytes] = each->error();
    }
    fmt::print("  {:<14} {:>5}", "signed, %", "RANKS");
    for (const uint64_t size : sizes) fmt::print(" {:>6}", sizeName(size));
    for (const auto& [row, values] : table) {
      fmt::print("\n  {:<14} {:>5}", row.first, row.second);
      for (const uint64_t size : sizes) {
        const auto at = values.find(size);
        fmt::print(" {:>6}", at == values.end() ? "" : fmt::format("{:+.0f}", 100 * at->second));
      }
    }
    fmt::print("\n");
  }
  printOver(compared);
}

void printComparedJson(std::span<const Compared> compared) {
  nlohmann::ordered_json out = {{"schema", "tutti.sim.compare/1"}};
  for (const Compared& each : compared) {
    out["rows"].push_back({{"run", each.measured.run},
                           {"system", nameOf(each.measured.system)},
                           {"mode", nameOf(each.measured.launch)},
                           {"collective", name(each.measured.collective)},
                           {"ranks", each.measured.ranks},
                           {"bytes", each.measured.bytes},
                           {"measured_us", each.measured.us},
                           {"simulated_us", each.us},
                           {"error", each.error()},
                           {"way", each.way}});
  }
  fmt::print("{}\n", out.dump(2));
}

}  // namespace tutti::tools
