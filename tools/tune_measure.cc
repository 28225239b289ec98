#include "tools/tune_measure.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/fd.h"
#include "schedule/catalog.h"

namespace tutti::tools {
namespace {

// One `tutti perf`: a collective, an algorithm, so many ranks, all sizes.
struct Run {
  Collective collective;
  std::string_view algorithm;
  bool isThreads;
  int32_t rankCount;
};

std::string perfName(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce: return "all_reduce";
    case Collective::kAllGather: return "all_gather";
    case Collective::kReduceScatter: return "reduce_scatter";
    case Collective::kBroadcast: return "broadcast";
    case Collective::kReduce: return "reduce";
    case Collective::kAllToAll: return "alltoall";
    case Collective::kGather: return "gather";
    case Collective::kScatter: return "scatter";
    case Collective::kSend:
    case Collective::kRecv: break;
  }
  return "sendrecv";
}

std::vector<std::string> argumentsOf(const Run& run, const TuneOptions& options) {
  return {"tutti",
          "perf",
          perfName(run.collective),
          "-n",
          std::to_string(run.isThreads ? 1 : run.rankCount),
          "-t",
          std::to_string(run.isThreads ? run.rankCount : 1),
          "-b",
          "8",
          "-e",
          std::to_string(options.maxBytes),
          "-f",
          std::to_string(options.stepFactor),
          "--min-time",
          fmt::format("{}", options.minSeconds),
          "-c",
          "0",
          "-g",
          "-1",
          "--json",
          "-"};
}

// This environment with the algorithm forced and the prices left out, on CPUs even where there are
// GPUs. By collective: a bare list says nothing of all-to-all.
std::vector<std::string> environmentOf(const Run& run) {
  constexpr std::array<std::string_view, 3> kOwn = {
      "NCCL_ALGO=", "TUTTI_TUNING_FILE=", "TUTTI_DEVICE="};
  std::vector<std::string> variables;
  for (char** each = ::environ; *each != nullptr; ++each) {
    const std::string_view text = *each;
    if (std::ranges::none_of(kOwn, [&](std::string_view own) { return text.starts_with(own); }))
      variables.emplace_back(text);
  }
  variables.emplace_back("TUTTI_DEVICE=host");
  variables.push_back(fmt::format("NCCL_ALGO={}:{}", name(run.collective), run.algorithm));
  return variables;
}

std::vector<char*> pointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& each : texts) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  return pointers;
}

Result<std::string> readAll(int fd) {
  std::string text;
  std::array<char, 65536> part;
  for (;;) {
    const ssize_t length = ::read(fd, part.data(), part.size());
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return systemError("read", "tutti perf's output", errno);
    if (length == 0) return text;
    text.append(part.data(), static_cast<size_t>(length));
  }
}

// Runs this program again and returns what it printed.
Result<std::string> runSelf(std::vector<std::string> arguments,
                            std::vector<std::string> variables) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return systemError("pipe2", self, errno);
  UniqueFd readEnd(ends[0]);
  UniqueFd writeEnd(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, writeEnd.get(), STDOUT_FILENO);
  pid_t child = -1;
  const int failure = ::posix_spawn(&child, self.c_str(), &actions, nullptr,
                                    pointersTo(arguments).data(), pointersTo(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return systemError("posix_spawn", self, failure);
  writeEnd.reset();
  Result<std::string> text = readAll(readEnd.get());
  int state = 0;
  while (::waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  if (state != 0)
    return internalError("tutti perf {} {}: ended with status {}", arguments[2], variables.back(),
                         WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state));
  return text;
}

// Size and time of each row.
Result<std::vector<std::pair<uint64_t, double>>> timesOf(const Run& run,
                                                         const TuneOptions& options) {
  TUTTI_TRY_ASSIGN(const std::string text, runSelf(argumentsOf(run, options), environmentOf(run)));
  const auto output = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (output.is_discarded() || !output.contains("results"))
    return internalError("tutti perf {}: its output is no JSON table", perfName(run.collective));
  std::vector<std::pair<uint64_t, double>> times;
  for (const auto& row : output["results"]) {
    const auto bytes = row.value("size", uint64_t{0});
    const double us = row["out_of_place"].value("time_us", 0.0);
    if (bytes > 0 && us > 0) times.emplace_back(bytes, us);
  }
  return times;
}

std::vector<Run> runsOf(const std::vector<Collective>& collectives, const TuneOptions& options) {
  std::vector<Run> runs;
  for (const Collective collective : collectives) {
    for (const bool isThreads : {false, true}) {
      for (const int32_t rankCount : options.rankCounts) {
        for (const schedule::Algorithm& algorithm : schedule::algorithms(collective))
          runs.push_back({collective, algorithm.name, isThreads, rankCount});
      }
    }
  }
  return runs;
}

}  // namespace

Result<std::vector<Collective>> collectivesToTune(const TuneOptions& options) {
  std::vector<Collective> wanted;
  std::vector<std::string> known;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (schedule::algorithms(collective).size() < 2) continue;
    known.push_back(perfName(collective));
    const auto& asked = options.collectives;
    if (asked.empty() || std::ranges::find(asked, known.back()) != asked.end())
      wanted.push_back(collective);
  }
  for (const std::string& each : options.collectives) {
    if (std::ranges::find(known, each) != known.end()) continue;
    std::string list;
    for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
    return invalidArgument("{} has no choice of algorithms; these have: {}", each, list);
  }
  return wanted;
}

Result<std::vector<TuneTime>> measure(const TuneOptions& options) {
  TUTTI_TRY_ASSIGN(const std::vector<Collective> collectives, collectivesToTune(options));
  const std::vector<Run> runs = runsOf(collectives, options);
  using Key = std::tuple<size_t, uint64_t>;  // run, bytes
  std::map<Key, double> least;
  for (int32_t round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < runs.size(); ++i) {
      fmt::print(stderr, "\rround {} of {}: {} of {} ", round + 1, options.rounds, i + 1,
                 runs.size());
      TUTTI_TRY_ASSIGN(const auto times, timesOf(runs[i], options));
      for (const auto& [bytes, us] : times) {
        const auto [place, isNew] = least.try_emplace({i, bytes}, us);
        if (!isNew) place->second = std::min(place->second, us);
      }
    }
  }
  fmt::print(stderr, "\n");
  std::vector<TuneTime> times;
  for (const auto& [key, us] : least) {
    const Run& run = runs[std::get<0>(key)];
    times.push_back({.collective = run.collective,
                     .isThreads = run.isThreads,
                     .rankCount = run.rankCount,
                     .bytes = std::get<1>(key),
                     .algorithm = run.algorithm,
                     .us = us});
  }
  return times;
}

}  // namespace tutti::tools
