#include "tools/perf_worker.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <thread>

#include "tools/command.h"

namespace tutti::tools {
namespace {

// What the rank threads tell the thread that waits for them.
struct Outcome {
  std::mutex mutex;
  std::condition_variable changed;
  int running = 0;      // guarded by mutex
  bool failed = false;  // guarded by mutex
  bool isGood = true;   // guarded by mutex
};

void runRank(RankRun& run, const RankContext& context, int rank, Outcome& outcome) {
  Result<bool> result = run.run();
  if (!result.ok()) {
    const std::string message(result.status().message());
    // The others' errors follow from the first.
    const bool isFirst =
        context.board == nullptr || context.board->fail(rank, message, kExitEnvironment);
    if (isFirst) fmt::print(stderr, "tutti perf: rank {}: {}\n", rank, message);
  }
  const std::scoped_lock lock(outcome.mutex);
  --outcome.running;
  if (!result.ok()) outcome.failed = true;
  if (result.ok() && !result.value()) outcome.isGood = false;
  outcome.changed.notify_all();
}

// Of all processes that of the first failure, whichever the launcher hears of first; `own` where
// they know nothing of each other.
int exitCodeOf(const RankContext& context, int own) {
  const bool isKnown = context.board != nullptr && context.board->hasFailed();
  return isKnown ? context.board->exitCode() : own;
}

[[noreturn]] void endNow(int code) {
  std::fflush(nullptr);
  ::_exit(code);
}

void reportTimeout(const RankContext& context, int firstRank, const std::deque<RankRun>& runs) {
  const int64_t bytes = runs.front().progress();
  const std::string where =
      bytes < 0 ? std::string("start-up") : fmt::format("the row of {} bytes", bytes);
  const std::string reason =
      fmt::format("no end after {} s (-T), in {}", context.options.timeoutSeconds, where);
  const bool isFirst =
      context.board == nullptr || context.board->fail(firstRank, reason, kExitTimeout);
  if (isFirst) fmt::print(stderr, "tutti perf: rank {}: {}\n", firstRank, reason);
}

}  // namespace

int runWorker(const RankContext& context, int firstRank) {
  const int threadCount = context.options.threads;
  Outcome outcome;
  outcome.running = threadCount;
  std::deque<RankRun> runs;  // does not move them
  std::vector<std::thread> threads;
  for (int i = 0; i < threadCount; ++i) {
    RankRun& run = runs.emplace_back(context, firstRank + i);
    threads.emplace_back(
        [&run, &context, &outcome, rank = firstRank + i] { runRank(run, context, rank, outcome); });
  }
  {
    std::unique_lock lock(outcome.mutex);
    const auto isOver = [&outcome] { return outcome.running == 0 || outcome.failed; };
    const int timeout = context.options.timeoutSeconds;
    if (timeout == 0) {
      outcome.changed.wait(lock, isOver);
    } else if (!outcome.changed.wait_for(lock, std::chrono::seconds(timeout), isOver)) {
      reportTimeout(context, firstRank, runs);
      endNow(exitCodeOf(context, kExitTimeout));
    }
    if (outcome.running != 0) {
      // Ranks that wait at the board leave by themselves; those inside the library may not.
      constexpr std::chrono::seconds kPatience{1};
      outcome.changed.wait_for(lock, kPatience, [&outcome] { return outcome.running == 0; });
      if (outcome.running != 0) endNow(exitCodeOf(context, kExitEnvironment));
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (outcome.failed) return exitCodeOf(context, kExitEnvironment);
  return outcome.isGood ? kExitOk : kExitFinding;
}

}  // namespace tutti::tools
