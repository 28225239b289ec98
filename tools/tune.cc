// tutti tune: what hops, messages and bytes take on this machine, measured; written to a file by
// which later runs choose their algorithms (TUTTI_TUNING_FILE). And how good the choice is now.
#include <fmt/core.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "base/whole_file.h"
#include "schedule/catalog.h"
#include "tools/byte_option.h"
#include "tools/collective_option.h"
#include "tools/command.h"
#include "tools/file_option.h"
#include "tools/launch_children.h"
#include "tools/perf_board.h"
#include "tools/tune_measure.h"
#include "tools/tune_prices.h"
#include "tools/tune_times.h"

namespace tutti::tools {
namespace {

constexpr const char* kFooter =
    "Ranks call each collective with the choice left free and with every algorithm forced, in\n"
    "turn: 2 to 4 minutes on 2 CPUs, which should have nothing else to do. Printed is in how many\n"
    "cells (a collective, so many ranks of a kind, a size) the choice took at most 1.1 times what\n"
    "the best forced algorithm did: as it ran, with the settings in force (or spread: or no more\n"
    "than that algorithm in its own slowest repeat, of 25 % at most); by the prices fitted to\n"
    "these times; by the built-in ones. With --from nothing is measured.\n"
    "Exit code: 0; 2 usage; 3 a measurement or a file failed.\n"
    "Example: tutti tune -o prices.txt && TUTTI_TUNING_FILE=prices.txt ./app";

struct Command {
  TuneOptions measure{};
  std::vector<std::string> collectives{};  // none: all that have a choice
  std::vector<int32_t> rankCounts{};       // none: usualRankCounts()
  int32_t repeats = 3;
  int32_t hostCount = 1;
  bool listsMisses = false;
  std::string outputPath = "-";
  std::string timesPath{};
  std::vector<std::string> fromPaths{};
  std::vector<std::string> judgePaths{};
};

// Powers of two, to 8 and on to as many as there are CPUs, but not to what takes an hour.
std::vector<int32_t> usualRankCounts() {
  constexpr int32_t kAlways = 8, kMost = 32;
  std::vector<int32_t> counts;
  for (int32_t count = 2; count <= std::max(kAlways, std::min(usableCpuCount(), kMost)); count *= 2)
    counts.push_back(count);
  return counts;
}

bool hasChoice(Collective collective) { return schedule::algorithms(collective).size() > 1; }

std::vector<Collective> collectivesOf(const Command& command) {
  std::vector<Collective> all, wanted;
  std::string list;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (!hasChoice(collective)) continue;
    all.push_back(collective);
    list += fmt::format("{}{}", list.empty() ? "" : ", ", name(collective));
  }
  for (const std::string& each : command.collectives) {
    wanted.push_back(parseCollective(each));
    if (!hasChoice(wanted.back()))
      throw CLI::ValidationError(
          "--collective",
          fmt::format("{} has no choice of algorithms; these have: {}", each, list));
  }
  return wanted.empty() ? all : wanted;
}

std::vector<TuneBlock> blocksOf(const Command& command) {
  const std::vector<int32_t> rankCounts =
      command.rankCounts.empty() ? usualRankCounts() : command.rankCounts;
  std::vector<TuneBlock> blocks;
  for (const Collective collective : collectivesOf(command)) {
    for (const bool isThreads : {true, false}) {
      if (isThreads && command.hostCount > 1) continue;
      for (const int32_t rankCount : rankCounts) {
        if (rankCount % command.hostCount == 0)
          blocks.push_back({.collective = collective,
                            .isThreads = isThreads,
                            .rankCount = rankCount,
                            .cpuCount = usableCpuCount(),
                            .hostCount = command.hostCount});
      }
    }
  }
  return blocks;
}

// All blocks, then all anew: other ranks, other memory, another minute.
Status measureAll(const Command& command, std::vector<TuneTime>& times) {
  const std::vector<TuneBlock> blocks = blocksOf(command);
  if (blocks.empty())
    throw CLI::ValidationError("--ranks", "no number of ranks is a multiple of --hosts");
  blockSignals();
  for (int32_t repeat = 0; repeat < command.repeats; ++repeat) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      fmt::print(stderr, "\r{} of {}: {} of {}, {} {}      ", repeat + 1, command.repeats, i + 1,
                 blocks.size(), name(blocks[i].collective), kindOf(blocks[i]));
      TUTTI_TRY_ASSIGN(const std::vector<TuneTime> measured,
                       measureBlock(blocks[i], command.measure));
      times.insert(times.end(), measured.begin(), measured.end());
    }
  }
  fmt::print(stderr, "\n");
  return {};
}

Result<std::vector<TuneTime>> readAll(const std::vector<std::string>& paths) {
  std::vector<TuneTime> times;
  for (const std::string& path : paths) {
    TUTTI_TRY_ASSIGN(const std::vector<TuneTime> more, readTimes(path));
    times.insert(times.end(), more.begin(), more.end());
  }
  return times;
}

plan::Origin originOf(const Command& command) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  return {.machine = fmt::format("{} CPUs", usableCpuCount()),
          .date = fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                              parts.tm_mday),
          .how = command.fromPaths.empty()
                     ? fmt::format("tutti tune, {} times {} rounds", command.repeats,
                                   command.measure.rounds)
                     : fmt::format("tutti tune, of {} files", command.fromPaths.size())};
}

void printJudgement(const TuneJudgement& judgement, bool listsMisses) {
  if (listsMisses) {
    for (const TuneMiss& miss : judgement.misses)
      fmt::print(stderr, "{} of {} bytes, {} {}: {:.2f} us, {} takes {:.2f}: {:.2f} times\n",
                 name(miss.block.collective), miss.bytes, miss.block.rankCount, kindOf(miss.block),
                 miss.choiceUs, miss.best, miss.bestUs, miss.choiceUs / miss.bestUs);
  }
  fmt::print(stderr, "{:<28}  {:>5}  {:>9}  {:>9}  {:>13}  {:>8}\n", "WITHIN 10 % OF THE BEST",
             "CELLS", "AS IT RAN", "OR SPREAD", "BY NEW PRICES", "BUILT-IN");
  for (const auto& [label, score] : judgement.scores) {
    const auto percent = [&](int good) { return 100.0 * good / score.cells; };
    fmt::print(stderr, "{:<28}  {:>5}  {:>8.1f}%  {:>8.1f}%  {:>12.1f}%  {:>7.1f}%\n", label,
               score.cells, percent(score.asItRan), percent(score.asItRanOrSpread),
               percent(score.byFitted), percent(score.byBuiltIn));
  }
}

Status writePrices(const plan::Tuning& tuning, const std::string& path) {
  const std::string text = plan::writeTuning(tuning);
  if (path == "-") {
    fmt::print("{}", text);
    return {};
  }
  return writeWholeFile(path, text, kForAll);
}

Status tune(const Command& command) {
  if (command.outputPath != "-") TUTTI_TRY(checkWritable(command.outputPath));
  if (!command.timesPath.empty()) TUTTI_TRY(checkWritable(command.timesPath));
  TUTTI_TRY_ASSIGN(std::vector<TuneTime> times, readAll(command.fromPaths));
  if (command.fromPaths.empty()) TUTTI_TRY(measureAll(command, times));
  if (!command.timesPath.empty()) TUTTI_TRY(writeTimes(command.timesPath, times));
  const plan::Tuning tuning = fitTo(times, originOf(command));
  TUTTI_TRY_ASSIGN(const std::vector<TuneTime> others, readAll(command.judgePaths));
  printJudgement(judge(others.empty() ? times : others, tuning), command.listsMisses);
  return writePrices(tuning, command.outputPath);
}

}  // namespace

void addTune(CLI::App& app, int& exitCode) {
  auto command = std::make_shared<Command>();  // shared by the parser and the callback
  CLI::App* sub = app.add_subcommand("tune", "Measure this machine, for better choices");
  sub->add_option("-o,--output", command->outputPath, "File to write (default: print)")
      ->transform(outputFile);
  sub->add_option("--collective", command->collectives, "Only these (default: all)")
      ->delimiter(',');
  sub->add_option("-n,--ranks", command->rankCounts,
                  "Numbers of ranks (default 2, 4, 8 ... as many as CPUs, 32 at most)")
      ->delimiter(',')
      ->check(CLI::Range(2, 256));
  sub->add_option("--sizes", command->measure.sizes, "Bytes of whole vectors (default 64 to 2M)")
      ->delimiter(',')
      ->transform(someBytes);
  sub->add_option("--rounds", command->measure.rounds,
                  "Rounds; the lower quartile of their times counts (default 8)")
      ->check(CLI::Range(1, 1000));
  sub->add_option("--repeats", command->repeats,
                  "How often all of it, with new ranks; the median counts (default 3)")
      ->check(CLI::Range(1, 100));
  sub->add_option("--hosts", command->hostCount,
                  "Processes of so many hosts, linked by sockets over loopback (default 1)")
      ->check(CLI::Range(1, 64));
  sub->add_flag("--misses", command->listsMisses, "List the cells where the choice was not good");
  sub->add_option("--times", command->timesPath, "File to write all times to");
  sub->add_option("--from", command->fromPaths, "Files of --times, instead of measuring");
  sub->add_option("--judge", command->judgePaths,
                  "Files of --times to judge the prices by, not those that they are fitted to");
  sub->footer(kFooter);
  sub->callback([command, &exitCode] {
    const Status status = tune(*command);
    if (status.ok()) return;
    fmt::print(stderr, "tutti tune: {}\n", status.message());
    exitCode = kExitEnvironment;
  });
}

}  // namespace tutti::tools
