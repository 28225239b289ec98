// How good the choice of algorithms for CPU ranks is: every collective that has one, threads and
// processes, by numbers of ranks and sizes, with the choice and with each algorithm forced. A cell
// is good when the choice took at most 1.1 times what the best forced algorithm did.
//
//   choice_bench [--rounds N] [--ranks 2,4,8] [--sizes 64,4096,...] [--collective NAME]
//                [--times FILE] [--from FILE]... [--prices FILE] [--check FILE]...
//
// --times: writes all times, a line each; --from: takes what was written so, on this or another
// machine, instead of measuring; --prices: writes a file for TUTTI_TUNING_FILE, fitted to the
// times; --check: how well prices fitted to the times, and the built-in ones, choose among the
// algorithms as another measurement timed them.
#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "bench/choice/measure.h"
#include "plan/cost_model.h"
#include "plan/device_constants.h"
#include "schedule/catalog.h"

namespace tutti::bench {
namespace {

constexpr double kGood = 1.1;

struct Options {
  MeasureOptions measure{.sizes = {64, 512, 4096, 32768, 262144, 2097152}};
  std::vector<int32_t> rankCounts{2, 4, 8};
  std::string collective{};
  std::string timesPath{};
  std::vector<std::string> fromPaths{};
  std::string pricesPath{};
  std::vector<std::string> checkPaths{};
};

template <typename T>
std::vector<T> parseList(std::string_view text) {
  std::vector<T> values;
  const char* at = text.data();
  const char* end = at + text.size();
  for (T value{}; at < end; at = at < end ? at + 1 : end) {
    const auto parsed = std::from_chars(at, end, value);
    if (parsed.ec != std::errc()) break;
    values.push_back(value);
    at = parsed.ptr;
  }
  return values;
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--rounds") {
      options.measure.rounds = std::max(std::atoi(value.c_str()), 1);
    } else if (name == "--quantile") {
      options.measure.quantile = std::clamp(std::atof(value.c_str()), 0.0, 1.0);
    } else if (name == "--ranks") {
      options.rankCounts = parseList<int32_t>(value);
    } else if (name == "--sizes") {
      options.measure.sizes = parseList<uint64_t>(value);
    } else if (name == "--collective") {
      options.collective = value;
    } else if (name == "--times") {
      options.timesPath = value;
    } else if (name == "--from") {
      options.fromPaths.push_back(value);
    } else if (name == "--prices") {
      options.pricesPath = value;
    } else if (name == "--check") {
      options.checkPaths.push_back(value);
    } else {
      return false;
    }
  }
  return argc % 2 == 1 && !options.rankCounts.empty() && !options.measure.sizes.empty();
}

// Not those of the machine: the ranks are children, and share what this process is bound to.
int32_t usableCpus() {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) return 1;
  return std::max(CPU_COUNT(&usable), 1);
}

std::vector<Block> blocksOf(const Options& options) {
  std::vector<Block> blocks;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (schedule::algorithms(collective).size() < 2) continue;
    if (!options.collective.empty() && options.collective != name(collective)) continue;
    for (const bool isThreads : {true, false}) {
      for (const int32_t rankCount : options.rankCounts)
        blocks.push_back({collective, isThreads, rankCount, usableCpus()});
    }
  }
  return blocks;
}

struct Share {
  int good = 0;
  int cells = 0;
};

std::string_view kindOf(const Block& block) { return block.isThreads ? "threads" : "processes"; }

void printReport(const std::vector<CellTime>& times) {
  using Key = std::tuple<Collective, bool, int32_t, uint64_t>;
  std::map<Key, std::vector<const CellTime*>> cells;
  for (const CellTime& each : times)
    cells[{each.block.collective, each.block.isThreads, each.block.rankCount, each.bytes}]
        .push_back(&each);
  std::map<std::string, Share> shares;
  fmt::print("| collective | ranks | bytes | choice, us | best, us | best | times the best |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  for (const auto& [key, rivals] : cells) {
    const CellTime* choice = nullptr;
    const CellTime* best = nullptr;
    for (const CellTime* each : rivals) {
      if (each->rival == kChoice) {
        choice = each;
      } else if (best == nullptr || each->us < best->us) {
        best = each;
      }
    }
    const bool isGood = choice->us <= kGood * best->us;
    const Block& block = choice->block;
    for (const std::string& label :
         {fmt::format("{}, {}", name(block.collective), kindOf(block)),
          fmt::format("{} {}", block.rankCount, kindOf(block)), std::string("~ all")}) {
      shares[label].good += isGood;
      ++shares[label].cells;
    }
    if (!isGood)
      fmt::print("| {} | {} {} | {} | {:.2f} | {:.2f} | {} | {:.2f} |\n", name(block.collective),
                 block.rankCount, kindOf(block), choice->bytes, choice->us, best->us, best->rival,
                 choice->us / best->us);
  }
  fmt::print("\n| cells | good | of | share |\n|---|---|---|---|\n");
  for (const auto& [label, share] : shares)
    fmt::print("| {} | {} | {} | {:.0f} % |\n", label, share.good, share.cells,
               100.0 * share.good / share.cells);
}

void writeTimes(const std::string& path, const std::vector<CellTime>& times) {
  std::ofstream file(path);
  for (const CellTime& each : times)
    file << fmt::format("{} {} {} {} {} {} {:.3f}\n", name(each.block.collective),
                        kindOf(each.block), each.block.rankCount, each.block.cpuCount, each.bytes,
                        each.rival, each.us);
}

plan::CostTerms termsOf(const CellTime& time) {
  const Block& block = time.block;
  return plan::countTerms(
      *schedule::findAlgorithm(block.collective, time.rival),
      {.rankCount = block.rankCount,
       .ranksPerCpu = std::max(1.0, static_cast<double>(block.rankCount) / block.cpuCount),
       .bytes = time.bytes,
       .readsPeers = block.isThreads,
       .readsByKernel = !block.isThreads});
}

plan::CpuConstants fitTo(const std::vector<CellTime>& times, const Options& options) {
  std::vector<plan::MeasuredCall> calls;
  for (const CellTime& each : times) {
    if (each.rival == kChoice) continue;
    calls.push_back({.collective = each.block.collective,
                     .readsPeers = each.block.isThreads,
                     .algorithm = each.rival,
                     .sample = {.counts = termsOf(each), .us = each.us}});
  }
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  return {.origin = {.machine = fmt::format("{} CPUs", usableCpus()),
                     .date = fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900,
                                         parts.tm_mon + 1, parts.tm_mday),
                     .how = options.fromPaths.empty()
                                ? fmt::format("choice_bench, {} rounds", options.measure.rounds)
                                : fmt::format("choice_bench, {} measurements",
                                              options.fromPaths.size())},
          .cpuCount = usableCpus(),
          .prices = plan::fitAll(calls)};
}

// Which algorithm the prices name in each cell, and whether it is within 10 % of the best there.
void printCheck(const std::string& label, const plan::CpuConstants& constants,
                const std::vector<CellTime>& times) {
  using Key = std::tuple<Collective, bool, int32_t, int32_t, uint64_t>;
  struct Cell {
    double cheapest = 0;  // by the prices
    double us = 0;        // that one's time
    double best = 0;      // time of the best
  };
  std::map<Key, Cell> cells;
  for (const CellTime& each : times) {
    if (each.rival == kChoice) continue;
    const Block& block = each.block;
    const plan::CostPrices* prices =
        constants.pricesOf(*schedule::findAlgorithm(block.collective, each.rival), block.isThreads);
    if (prices == nullptr) continue;
    const double predicted = plan::predictUs(*prices, termsOf(each));
    Cell& cell =
        cells[{block.collective, block.isThreads, block.rankCount, block.cpuCount, each.bytes}];
    if (cell.best == 0 || predicted < cell.cheapest) {
      cell.cheapest = predicted;
      cell.us = each.us;
    }
    cell.best = cell.best == 0 ? each.us : std::min(cell.best, each.us);
  }
  const auto good = std::ranges::count_if(
      cells, [](const auto& each) { return each.second.us <= kGood * each.second.best; });
  fmt::print("{}: {} of {} cells good, {:.1f} %\n", label, good, cells.size(),
             100.0 * static_cast<double>(good) / static_cast<double>(cells.size()));
}

// Lines of other measurements, of algorithms that there are no more, are left out.
std::vector<CellTime> readTimes(const std::string& path) {
  std::vector<CellTime> times;
  std::ifstream file(path);
  std::string collective, kind, rival;
  CellTime each;
  while (file >> collective >> kind >> each.block.rankCount >> each.block.cpuCount >> each.bytes >>
         rival >> each.us) {
    each.block.isThreads = kind == "threads";
    for (int i = 0; i < kCollectiveCount; ++i) {
      if (name(static_cast<Collective>(i)) == collective)
        each.block.collective = static_cast<Collective>(i);
    }
    const schedule::Algorithm* algorithm = schedule::findAlgorithm(each.block.collective, rival);
    if (algorithm == nullptr && rival != kChoice) continue;
    each.rival = algorithm == nullptr ? kChoice : algorithm->name;
    times.push_back(each);
  }
  return times;
}

bool measureAll(const Options& options, std::vector<CellTime>& times) {
  const std::vector<Block> blocks = blocksOf(options);
  for (size_t i = 0; i < blocks.size(); ++i) {
    fmt::print(stderr, "\r{} of {}: {}, {} {}      ", i + 1, blocks.size(),
               name(blocks[i].collective), blocks[i].rankCount, kindOf(blocks[i]));
    const Result<std::vector<CellTime>> measured = measureBlock(blocks[i], options.measure);
    if (!measured.ok()) {
      fmt::print(stderr, "\n{}\n", measured.status().message());
      return false;
    }
    times.insert(times.end(), measured.value().begin(), measured.value().end());
    if (!options.timesPath.empty()) writeTimes(options.timesPath, times);
  }
  fmt::print(stderr, "\n");
  return true;
}

int run(const Options& options) {
  std::vector<CellTime> times;
  for (const std::string& path : options.fromPaths) {
    const std::vector<CellTime> more = readTimes(path);
    times.insert(times.end(), more.begin(), more.end());
  }
  if (options.fromPaths.empty() && !measureAll(options, times)) return EXIT_FAILURE;
  if (options.fromPaths.size() <= 1) printReport(times);
  const plan::CpuConstants constants = fitTo(times, options);
  if (!options.pricesPath.empty())
    std::ofstream(options.pricesPath) << plan::writeTuning({.cpu = constants});
  for (const std::string& path : options.checkPaths) {
    const std::vector<CellTime> others = readTimes(path);
    printCheck(path + ", fitted prices", constants, others);
    printCheck(path + ", built-in prices", plan::builtInCpu(), others);
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  tutti::bench::Options options;
  if (!tutti::bench::parse(argc, argv, options)) {
    fmt::print(stderr, "see the head of bench/choice/main.cc for options\n");
    return 2;
  }
  return tutti::bench::run(options);
}
