#include "tools/tune_times.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>
#include <tuple>

#include "base/units.h"
#include "base/whole_file.h"
#include "schedule/catalog.h"
#include "tools/median.h"

namespace tutti::tools {
namespace {

constexpr std::string_view kThreads = "threads";
constexpr std::string_view kProcesses = "processes";
constexpr std::string_view kHosts = "hosts:";

bool parseKind(std::string_view kind, TuneBlock& block) {
  block.isThreads = kind == kThreads;
  block.hostCount = 1;
  if (kind == kThreads || kind == kProcesses) return true;
  if (!kind.starts_with(kHosts)) return false;
  kind.remove_prefix(kHosts.size());
  const auto parsed = std::from_chars(kind.data(), kind.data() + kind.size(), block.hostCount);
  return parsed.ec == std::errc() && block.hostCount > 1;
}

struct Line {
  TuneTime time{};
  bool isKnown = true;  // its algorithm is in the catalogue
};

std::optional<Line> parseLine(const std::string& text) {
  Line line;
  TuneBlock& block = line.time.block;
  std::string collective, kind, rival;
  std::istringstream words(text);
  words >> collective >> kind >> block.rankCount >> block.cpuCount >> line.time.bytes >> rival >>
      line.time.us;
  const std::optional<Collective> found = findCollective(collective);
  if (words.fail() || !found || !parseKind(kind, block) || block.rankCount < 2 ||
      block.cpuCount < 1 || line.time.us <= 0)
    return std::nullopt;
  block.collective = *found;
  const schedule::Algorithm* algorithm = schedule::findAlgorithm(*found, rival);
  line.isKnown = algorithm != nullptr || rival == kChoice;
  line.time.rival = algorithm == nullptr ? kChoice : algorithm->name;
  return line;
}

}  // namespace

std::string kindOf(const TuneBlock& block) {
  if (block.hostCount > 1) return fmt::format("{}{}", kHosts, block.hostCount);
  return std::string(block.isThreads ? kThreads : kProcesses);
}

Status writeTimes(const std::string& path, const std::vector<TuneTime>& times) {
  std::string text;
  for (const TuneTime& each : times)
    text +=
        fmt::format("{} {} {} {} {} {} {:.3f}\n", name(each.block.collective), kindOf(each.block),
                    each.block.rankCount, each.block.cpuCount, each.bytes, each.rival, each.us);
  return writeWholeFile(path, text, kForAll);
}

Result<std::vector<TuneTime>> readTimes(const std::string& path) {
  constexpr size_t kMostBytes = 256_MiB;
  TUTTI_TRY_ASSIGN(const std::string content, readFileOrPipe(path, kMostBytes));
  std::istringstream lines(content);
  std::vector<TuneTime> times;
  int number = 0;
  for (std::string text; std::getline(lines, text);) {
    ++number;
    const std::optional<Line> line = parseLine(text);
    if (!line)
      return invalidArgument(
          "{}:{}: wanted collective, kind of ranks, ranks, CPUs, bytes, algorithm, us", path,
          number);
    if (line->isKnown) times.push_back(line->time);
  }
  if (number == 0)
    return invalidArgument("{}: nothing in it; tutti tune --times writes such files", path);
  return times;
}

std::vector<TuneTime> mediansOf(const std::vector<TuneTime>& times) {
  std::map<std::tuple<TuneBlock, uint64_t, std::string_view>, std::vector<double>> byRival;
  for (const TuneTime& each : times)
    byRival[{each.block, each.bytes, each.rival}].push_back(each.us);
  std::vector<TuneTime> medians;
  for (const auto& [key, values] : byRival) {
    const auto& [block, bytes, rival] = key;
    medians.push_back({.block = block, .bytes = bytes, .rival = rival, .us = medianOf(values)});
  }
  return medians;
}

}  // namespace tutti::tools
