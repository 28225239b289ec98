#include "tools/perf_launch.h"

#include <fmt/core.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "tools/command.h"
#include "tools/gpu_queues.h"
#include "tools/launch_children.h"
#include "tools/launcher_env.h"
#include "tools/perf_worker.h"

namespace tutti::tools {
namespace {

constexpr int kGraceSeconds = 5;  // between asking and killing

int fail(int code, const Status& status) {
  fmt::print(stderr, "tutti perf: {}\n", status.message());
  return code;
}

// The bandwidth below which the run is a failure. The environment's is nccl-tests' own, with its
// tolerance.
Result<std::optional<double>> minBandwidthOf(const PerfOptions& options, const Lookup& lookup) {
  if (options.minBandwidth) return std::optional<double>(options.minBandwidth);
  constexpr double kTolerance = 0.9;
  const char* text = lookup("NCCL_TESTS_MIN_BW");
  if (text == nullptr || *text == '\0') return std::optional<double>();
  const std::string_view view(text);
  double value = 0;
  const auto [rest, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || rest != view.data() + view.size()) {
    return invalidArgument("NCCL_TESTS_MIN_BW='{}' is not a number of GB/s", view);
  }
  return std::optional<double>(value * kTolerance);
}

// MemAvailable of /proc/meminfo in bytes; none where that cannot be read.
std::optional<size_t> availableMemory() {
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return std::nullopt;
  std::array<char, 256> line{};
  std::optional<size_t> bytes;
  unsigned long long kibibytes = 0;
  while (!bytes && std::fgets(line.data(), line.size(), file) != nullptr) {
    if (std::sscanf(line.data(), "MemAvailable: %llu kB", &kibibytes) == 1) {
      bytes = size_t{kibibytes} << 10;
    }
  }
  std::fclose(file);
  return bytes;
}

// Refuses what would end with the kernel killing ranks.
Status checkMemory(const PerfOptions& options, int localRankCount) {
  const std::optional<size_t> available = availableMemory();
  const double needed = (options.peerLibrary.empty() ? 2.0 : 4.0) *
                        static_cast<double>(options.maxBytes) * localRankCount;
  if (!available || needed <= static_cast<double>(*available)) return {};
  constexpr double kMiB = 1 << 20;
  return makeError(
      Code::kSystemError,
      fmt::format("{} ranks with buffers of {} bytes need {:.0f} MiB, and {:.0f} MiB are free: "
                  "take a smaller -e or fewer ranks",
                  localRankCount, options.maxBytes, needed / kMiB,
                  static_cast<double>(*available) / kMiB));
}

int runUnderLauncher(const PerfOptions& options, const LauncherPlace& place, const Lookup& lookup,
                     const std::optional<double>& minBandwidth) {
  const int rankCount = place.size * options.threads;
  if (Status status = checkOptions(options, rankCount); !status.ok()) {
    return fail(kExitUsage, status);
  }
  if (place.isOneHost) giveQueues(rankCount, options.gpus);
  std::unique_ptr<Board> board;
  const char* master = lookup("MASTER_ADDR");
  const char* port = lookup("MASTER_PORT");
  if (lookup("NCCL_COMM_ID") == nullptr && !place.isOneHost && master != nullptr &&
      port != nullptr) {
    ::setenv("NCCL_COMM_ID", fmt::format("{}:{}", master, port).c_str(), 1);
  }
  if (lookup("NCCL_COMM_ID") == nullptr) {
    if (!place.isOneHost) {
      return fail(kExitEnvironment,
                  Status(Code::kInvalidUsage,
                         fmt::format("{} has spread the ranks over several hosts: set NCCL_COMM_ID "
                                     "to <address of rank 0's host>:<free port> for all of them",
                                     place.launcher)));
    }
    Board::Rendezvous rendezvous{.path = rendezvousPath(lookup, place),
                                 .isCreator = place.rank == 0,
                                 .processCount = place.size};
    const int timeout = options.timeoutSeconds;
    const bool isLimited = timeout > 0 && timeout <= rendezvous.timeoutSeconds;
    if (isLimited) rendezvous.timeoutSeconds = timeout;
    Result<std::unique_ptr<Board>> opened = Board::openNamed(rendezvous, rankCount);
    if (!opened.ok()) {
      const bool isLate = isLimited && opened.status().code() == Code::kRemoteError;
      return fail(isLate ? kExitTimeout : kExitEnvironment, opened.status());
    }
    board = std::move(opened).value();
  }
  const RankContext context{.options = options,
                            .rankCount = rankCount,
                            .board = board.get(),
                            .minBandwidth = minBandwidth};
  return runWorker(context, place.rank * options.threads);
}

// Waits for the children. Once one has failed the others are asked to end, then killed.
class Supervisor {
 public:
  Supervisor(Children& children, int threadsEach, int timeoutSeconds)
      : children_(children), threadsEach_(threadsEach) {
    // The children keep the time limit themselves and say where they were; this is for those that
    // cannot.
    constexpr int kExtraSeconds = 3;
    if (timeoutSeconds > 0) {
      killAt_ = steadyClock().now() + std::chrono::seconds(timeoutSeconds + kExtraSeconds);
    }
  }

  int wait() {
    while (children_.runningCount() != 0) {
      while (std::optional<ChildExit> exit = children_.reap()) note(*exit);
      if (children_.runningCount() == 0) break;
      if (killAt_ && steadyClock().now() >= *killAt_) {
        children_.signalAll(SIGKILL);
        if (exitCode_ == kExitOk) exitCode_ = kExitTimeout;
        isEnding_ = true;
        killAt_.reset();
      }
      takeSignal();
    }
    return exitCode_;
  }

 private:
  // A time limit may be noticed as late as this waits.
  void takeSignal() {
    const int signal = waitForSignal();
    if (signal != 0 && signal != SIGCHLD) {
      if (exitCode_ == kExitOk) exitCode_ = 128 + signal;
      endOthers();
    }
  }

  void endOthers() {
    if (isEnding_) return;
    isEnding_ = true;
    children_.signalAll(SIGTERM);
    killAt_ = steadyClock().now() + std::chrono::seconds(kGraceSeconds);
  }

  void note(const ChildExit& exit) {
    if (exit.isClean() || isEnding_) return;
    if (exit.signal == 0 && exit.code == kExitFinding) {  // it has measured to the end
      if (exitCode_ == kExitOk) exitCode_ = kExitFinding;
      return;
    }
    const bool isUnread = exit.signal == SIGPIPE && hasLostReader();
    if (exit.signal != 0 && !isUnread) {
      const int first = exit.index * threadsEach_;
      const std::string ranks = threadsEach_ == 1 ? fmt::format("rank {}", first)
                                                  : fmt::format("the process of ranks {} to {}",
                                                                first, first + threadsEach_ - 1);
      fmt::print(stderr, "tutti perf: {} (pid {}) {}; ending the others\n", ranks, exit.pid,
                 describe(exit));
    }
    const int ownCode = exit.signal != 0 ? kExitEnvironment : exit.code;
    exitCode_ = isUnread ? exit.shellCode() : ownCode;
    endOthers();
  }

  Children& children_;
  int threadsEach_;
  int exitCode_ = kExitOk;
  bool isEnding_ = false;
  std::optional<Instant> killAt_;
};

int runOwnProcesses(const PerfOptions& options, const std::optional<double>& minBandwidth) {
  constexpr int kDefaultRanks = 2;
  const int asked = options.processes;
  const int processCount = asked != 0 ? asked : (options.threads > 1 ? 1 : kDefaultRanks);
  const int rankCount = processCount * options.threads;
  if (Status status = checkOptions(options, rankCount); !status.ok()) {
    return fail(kExitUsage, status);
  }
  if (Status status = checkMemory(options, rankCount); !status.ok()) {
    return fail(kExitEnvironment, status);
  }
  giveQueues(rankCount, options.gpus);
  Result<std::unique_ptr<Board>> board = Board::makeAnonymous(rankCount);
  if (!board.ok()) return fail(kExitEnvironment, board.status());
  const RankContext context{.options = options,
                            .rankCount = rankCount,
                            .board = board.value().get(),
                            .minBandwidth = minBandwidth};
  blockSignals();
  Children children(/*ownGroups=*/false);
  for (int process = 0; process < processCount; ++process) {
    const int firstRank = process * options.threads;
    Status status = children.spawn(process, [&] { return runWorker(context, firstRank); });
    if (!status.ok()) return fail(kExitEnvironment, status);
  }
  return Supervisor(children, options.threads, options.timeoutSeconds).wait();
}

}  // namespace

int launchPerf(const PerfOptions& options) {
  const Lookup lookup = processEnvironment();
  Result<std::optional<double>> minBandwidth = minBandwidthOf(options, lookup);
  if (!minBandwidth.ok()) return fail(kExitUsage, minBandwidth.status());
  if (options.processes == 0) {
    Result<std::optional<LauncherPlace>> place = detectLauncher(lookup);
    if (!place.ok()) return fail(kExitUsage, place.status());
    if (place.value()) {
      return runUnderLauncher(options, *place.value(), lookup, minBandwidth.value());
    }
  }
  return runOwnProcesses(options, minBandwidth.value());
}

}  // namespace tutti::tools
