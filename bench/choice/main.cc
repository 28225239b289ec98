// How good the choice of algorithms for CPU ranks is: every collective that has one, threads and
// processes, by numbers of ranks and sizes, with the choice and with each algorithm forced. A cell
// is good when the choice took at most 1.1 times what the best forced algorithm did.
//
//   choice_bench [--rounds N] [--ranks 2,4,8] [--sizes 64,4096,...] [--collective NAME] [--hosts N]
//                [--times FILE] [--from FILE]... [--prices FILE] [--check FILE]...
//
// --hosts: processes that are so many hosts to each other, linked by sockets over loopback, each
// host with its part of the CPUs, instead of threads and processes of one host.
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
#include <utility>
#include <vector>

#include "bench/choice/measure.h"
#include "plan/device_constants.h"
#include "plan/plan.h"
#include "schedule/catalog.h"

namespace tutti::bench {
namespace {

constexpr double kGood = 1.1;

struct Options {
  MeasureOptions measure{.sizes = {64, 512, 4096, 32768, 262144, 2097152}};
  std::vector<int32_t> rankCounts{2, 4, 8};
  std::string collective{};
  int32_t hostCount = 1;
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
    } else if (name == "--hosts") {
      options.hostCount = std::max(std::atoi(value.c_str()), 1);
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
      if (isThreads && options.hostCount > 1) continue;
      for (const int32_t rankCount : options.rankCounts) {
        if (rankCount % options.hostCount == 0)
          blocks.push_back({collective, isThreads, rankCount, usableCpus(), options.hostCount});
      }
    }
  }
  return blocks;
}

struct Share {
  int good = 0;
  int cells = 0;
};

// "threads", "processes", "hosts:2": processes of several hosts.
std::string kindOf(const Block& block) {
  if (block.hostCount > 1) return fmt::format("hosts:{}", block.hostCount);
  return block.isThreads ? "threads" : "processes";
}

void setKind(Block& block, std::string_view kind) {
  constexpr std::string_view kHosts = "hosts:";
  block.isThreads = kind == "threads";
  block.hostCount = 1;
  if (kind.starts_with(kHosts))
    std::from_chars(kind.data() + kHosts.size(), kind.data() + kind.size(), block.hostCount);
}

void printReport(const std::vector<CellTime>& times) {
  std::map<std::pair<Block, uint64_t>, std::vector<const CellTime*>> cells;
  for (const CellTime& each : times) cells[{each.block, each.bytes}].push_back(&each);
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
  const schedule::Algorithm& algorithm = *schedule::findAlgorithm(block.collective, time.rival);
  plan::CostedCall call{
      .rankCount = block.rankCount,
      .ranksPerCpu = std::max(1.0, static_cast<double>(block.rankCount) / block.cpuCount),
      .bytes = time.bytes,
      .readsPeers = block.isThreads,
      .readsByKernel = !block.isThreads && block.hostCount == 1};
  if (block.hostCount == 1) return plan::countTerms(algorithm, call);
  std::vector<int32_t> hostOf;
  for (int32_t rank = 0; rank < block.rankCount; ++rank)
    hostOf.push_back(rank * block.hostCount / block.rankCount);
  call.slotBytes = plan::acrossHosts({.slotBytes = call.slotBytes}).slotBytes;
  call.isOneHost = false;
  call.crossings = plan::crossingsOf(algorithm, {.rankCount = block.rankCount}, hostOf);
  return plan::countTerms(algorithm, call);
}

struct Prices {
  plan::CpuConstants cpu = plan::builtInCpu();
  plan::SocketConstants sockets = plan::builtInSockets();
};

double predictUs(const Prices& prices, const CellTime& time) {
  const plan::CostPrices* cpu = prices.cpu.pricesOf(
      *schedule::findAlgorithm(time.block.collective, time.rival), time.block.isThreads);
  if (cpu == nullptr) return 0;
  const plan::CostTerms counts = termsOf(time);
  return plan::predictUs(*cpu, counts) + plan::predictUs({.us = prices.sockets.us}, counts);
}

plan::Origin originOf(const Options& options) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  return {.machine = fmt::format("{} CPUs", usableCpus()),
          .date = fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                              parts.tm_mday),
          .how = options.fromPaths.empty()
                     ? fmt::format("choice_bench, {} rounds", options.measure.rounds)
                     : fmt::format("choice_bench, {} measurements", options.fromPaths.size())};
}

// CPU ranks' prices to the times of one host, where there are some; then the sockets' to what those
// of several hosts take beside.
plan::Tuning fitTo(const std::vector<CellTime>& times, const Options& options) {
  plan::Tuning tuning;
  std::vector<plan::MeasuredCall> calls;
  for (const CellTime& each : times) {
    if (each.rival == kChoice || each.block.hostCount > 1) continue;
    calls.push_back({.collective = each.block.collective,
                     .readsPeers = each.block.isThreads,
                     .algorithm = each.rival,
                     .sample = {.counts = termsOf(each), .us = each.us}});
  }
  if (!calls.empty())
    tuning.cpu = {
        .origin = originOf(options), .cpuCount = usableCpus(), .prices = plan::fitAll(calls)};
  const Prices inside{.cpu = tuning.cpu.value_or(plan::builtInCpu()), .sockets = {}};
  std::vector<plan::CostSample> crossing;
  for (const CellTime& each : times) {
    if (each.rival == kChoice || each.block.hostCount == 1) continue;
    crossing.push_back(
        {.counts = termsOf(each), .us = each.us, .knownUs = predictUs(inside, each)});
  }
  if (!crossing.empty())
    tuning.sockets = {.origin = originOf(options), .us = plan::fitNetwork(crossing)};
  return tuning;
}

// Which algorithm the prices name in each cell, and whether it is within 10 % of the best there.
void printCheck(const std::string& label, const Prices& prices,
                const std::vector<CellTime>& times) {
  struct Cell {
    double cheapest = 0;  // by the prices
    double us = 0;        // that one's time
    double best = 0;      // time of the best
  };
  std::map<std::pair<Block, uint64_t>, Cell> cells;
  for (const CellTime& each : times) {
    if (each.rival == kChoice) continue;
    const double predicted = predictUs(prices, each);
    if (predicted <= 0) continue;
    Cell& cell = cells[{each.block, each.bytes}];
    if (cell.best == 0 || predicted < cell.cheapest) {
      cell.cheapest = predicted;
      cell.us = each.us;
    }
    cell.best = cell.best == 0 ? each.us : std::min(cell.best, each.us);
  }
  const auto good = std::ranges::count_if(
      cells, [](const auto& each) { return each.second.us <= kGood * each.second.best; });
  double lost = 0;
  for (const auto& [key, cell] : cells) lost += cell.us / cell.best - 1;
  fmt::print("{}: {} of {} cells good, {:.1f} %; {:.0f} % slower than the best on average\n", label,
             good, cells.size(),
             100.0 * static_cast<double>(good) / static_cast<double>(cells.size()),
             100.0 * lost / static_cast<double>(cells.size()));
}

// Lines of other measurements, of algorithms that there are no more, are left out.
std::vector<CellTime> readTimes(const std::string& path) {
  std::vector<CellTime> times;
  std::ifstream file(path);
  std::string collective, kind, rival;
  CellTime each;
  while (file >> collective >> kind >> each.block.rankCount >> each.block.cpuCount >> each.bytes >>
         rival >> each.us) {
    setKind(each.block, kind);
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
  const plan::Tuning tuning = fitTo(times, options);
  if (!options.pricesPath.empty()) std::ofstream(options.pricesPath) << plan::writeTuning(tuning);
  for (const std::string& path : options.checkPaths) {
    const std::vector<CellTime> others = readTimes(path);
    printCheck(path + ", fitted prices",
               {.cpu = tuning.cpu.value_or(plan::builtInCpu()),
                .sockets = tuning.sockets.value_or(plan::builtInSockets())},
               others);
    printCheck(path + ", built-in prices", {}, others);
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
