// tutti tune: what hops, messages and bytes take on this machine, measured; written to a file by
// which later runs choose their algorithms (TUTTI_TUNING_FILE).
#include <fmt/core.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "plan/plan.h"
#include "plan/tuning.h"
#include "schedule/catalog.h"
#include "tools/command.h"
#include "tools/perf_board.h"
#include "tools/tune_measure.h"

namespace tutti::tools {
namespace {

constexpr const char* kFooter =
    "Runs tutti perf with every algorithm in turn, some minutes in all, and prints how often the\n"
    "choice by these prices, and by the built-in ones, was within 10 % of the best measured.\n"
    "The machine should have nothing else to do.\n"
    "Exit code: 0; 2 usage; 3 a measurement or the file failed.\n"
    "Example: tutti tune -o prices.txt && TUTTI_TUNING_FILE=prices.txt ./app";

constexpr double kGoodEnough = 1.1;

double ranksPerCpu(int32_t rankCount, int32_t cpuCount) {
  return std::max(1.0, static_cast<double>(rankCount) / cpuCount);
}

plan::CostedCall callOf(const TuneTime& time, int32_t cpuCount) {
  return {.rankCount = time.rankCount,
          .ranksPerCpu = ranksPerCpu(time.rankCount, cpuCount),
          .bytes = time.bytes,
          .readsPeers = time.isThreads,
          .readsByKernel = !time.isThreads};
}

plan::CpuConstants fit(const std::vector<TuneTime>& times, const TuneOptions& options) {
  const int32_t cpuCount = usableCpuCount();
  plan::CpuConstants constants{.origin = {.machine = fmt::format("{} CPUs", cpuCount),
                                          .how = fmt::format("tutti tune, {} rounds of {} s",
                                                             options.rounds, options.minSeconds)},
                               .cpuCount = cpuCount};
  std::vector<plan::MeasuredCall> calls;
  for (const TuneTime& each : times) {
    const schedule::Algorithm& algorithm =
        *schedule::findAlgorithm(each.collective, each.algorithm);
    calls.push_back(
        {.collective = each.collective,
         .readsPeers = each.isThreads,
         .algorithm = algorithm.name,
         .sample = {.counts = plan::countTerms(algorithm, callOf(each, cpuCount)), .us = each.us}});
  }
  constants.prices = plan::fitAll(calls);
  return constants;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

// What the planner would take for a measured call.
std::string_view choiceFor(const TuneTime& time,
                           const std::shared_ptr<const plan::Tuning>& tuning) {
  const auto blocks = static_cast<uint64_t>(schedule::blockCount(time.collective, time.rankCount));
  const plan::CallShape shape{.collective = time.collective,
                              .type = DataType::kUint8,
                              .count = std::max<uint64_t>(time.bytes / blocks, 1)};
  constexpr size_t kUsualBufferBytes = 512 << 10;
  const Result<plan::Choice> choice =
      plan::choose(shape, {.rankCount = time.rankCount,
                           .geometry = plan::linkGeometry(kUsualBufferBytes),
                           .algorithms = {},
                           .readsPeers = time.isThreads,
                           .readsByKernel = !time.isThreads,
                           .ranksPerCpu = ranksPerCpu(time.rankCount, usableCpuCount()),
                           .tuning = tuning});
  return choice.ok() ? choice.value().algorithm : std::string_view{};
}

struct Score {
  int cells = 0;
  int byPrices = 0;  // within 10 % of the best
  int byBuiltIn = 0;
};

// By collective and kind of ranks.
std::map<std::string, Score> scoresOf(const std::vector<TuneTime>& times,
                                      const plan::Tuning& tuning) {
  const auto shared = std::make_shared<const plan::Tuning>(tuning);
  using Cell = std::tuple<Collective, bool, int32_t, uint64_t>;
  std::map<Cell, std::vector<TuneTime>> cells;
  for (const TuneTime& each : times)
    cells[{each.collective, each.isThreads, each.rankCount, each.bytes}].push_back(each);
  std::map<std::string, Score> scores;
  for (const auto& [cell, rivals] : cells) {
    double best = rivals[0].us;
    for (const TuneTime& each : rivals) best = std::min(best, each.us);
    const auto isGood = [&](std::string_view algorithm) {
      return std::ranges::any_of(rivals, [&](const TuneTime& each) {
        return each.algorithm == algorithm && each.us <= best * kGoodEnough;
      });
    };
    Score& score = scores[fmt::format("{} of {}", name(std::get<0>(cell)),
                                      std::get<1>(cell) ? "threads" : "processes")];
    ++score.cells;
    score.byPrices += isGood(choiceFor(rivals[0], shared));
    score.byBuiltIn += isGood(choiceFor(rivals[0], nullptr));
  }
  return scores;
}

void printScores(const std::map<std::string, Score>& scores) {
  fmt::print(stderr, "{:<28}  {:>6}  {:>9}  {:>8}\n", "WITHIN 10 % OF THE BEST", "CELLS",
             "BY PRICES", "BUILT-IN");
  for (const auto& [label, score] : scores) {
    fmt::print(stderr, "{:<28}  {:>6}  {:>8.0f}%  {:>7.0f}%\n", label, score.cells,
               100.0 * score.byPrices / score.cells, 100.0 * score.byBuiltIn / score.cells);
  }
}

int tune(const TuneOptions& options) {
  Result<std::vector<Collective>> known = collectivesToTune(options);
  if (!known.ok())
    throw CLI::ValidationError("--collective", std::string(known.status().message()));
  Result<std::vector<TuneTime>> times = measure(options);
  if (!times.ok()) {
    fmt::print(stderr, "tutti tune: {}\n", times.status().message());
    return kExitEnvironment;
  }
  plan::Tuning tuning{.cpu = fit(times.value(), options)};
  tuning.cpu->origin.date = today();
  printScores(scoresOf(times.value(), tuning));
  const std::string text = plan::writeTuning(tuning);
  if (options.outputPath == "-") {
    fmt::print("{}", text);
    return kExitOk;
  }
  std::ofstream file(options.outputPath);
  file << text;
  file.close();
  if (file) return kExitOk;
  fmt::print(stderr, "tutti tune: {}: cannot be written\n", options.outputPath);
  return kExitEnvironment;
}

}  // namespace

void addTune(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<TuneOptions>();  // shared by the parser and the callback
  CLI::App* command = app.add_subcommand("tune", "Measure this machine, for better choices");
  command->add_option("-o,--output", options->outputPath, "File to write (default: print)");
  command->add_option("--collective", options->collectives, "Only these (default: all)")
      ->delimiter(',');
  command->add_option("-n,--ranks", options->rankCounts, "Numbers of ranks (default 2,4,8)")
      ->delimiter(',')
      ->check(CLI::Range(2, 256));
  command->add_option("--rounds", options->rounds, "Rounds, the least time counts (default 3)")
      ->check(CLI::Range(1, 1000));
  command->add_option("--min-time", options->minSeconds, "Seconds a time fills (default 0.01)")
      ->check(CLI::Range(0.0, 60.0));
  command->add_option("-e,--maxbytes", options->maxBytes, "Longest vector (default 4M)")
      ->transform(CLI::AsSizeValue(false));
  command->footer(kFooter);
  command->callback([options, &exitCode] { exitCode = tune(*options); });
}

}  // namespace tutti::tools
