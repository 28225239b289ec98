#include "tools/tune_measure.h"

#include <fmt/core.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/mapping.h"
#include "base/rng.h"
#include "bootstrap/bootstrap.h"
#include "comm/communicator.h"
#include "comm/process.h"
#include "group/group.h"
#include "schedule/catalog.h"
#include "tools/launch_children.h"

namespace tutti::tools {
namespace {

constexpr size_t kMostRivals = 16;
constexpr size_t kMostSizes = 64;
constexpr unsigned kSecondsToGiveUp = 300;
constexpr double kLeastCalls = 2;
constexpr double kMostCalls = 1000;
constexpr int32_t kTrialCalls = 4;
// Not timed: once, links are made and plans have tried their forms (launch/form_trial.h: 26 calls);
// before each batch, a link's slots come round, so that caches hold what this algorithm leaves.
constexpr int32_t kSettlingCalls = 32;
constexpr int32_t kSlotCount = 8;
constexpr uint64_t kOrderSeed = 20261122;

// What the ranks of a block share; the samples follow it in the same mapping.
struct Board {
  std::atomic<int32_t> arrived{0};
  std::atomic<int32_t> generation{0};
  bootstrap::UniqueId ids[kMostRivals]{};  // rank 0 writes them before the first barrier
  int32_t calls[kMostSizes]{};             // timed together; rank 0 writes, barriers publish
};

struct Plan {
  TuneBlock block;
  const TuneOptions& options;
  std::vector<std::string_view> rivals;
  Board* board = nullptr;
  float* samples = nullptr;  // [rank][rival][size][round]

  float& sample(size_t rank, size_t rival, size_t size, size_t round) const {
    const size_t sizes = options.sizes.size();
    const auto rounds = static_cast<size_t>(options.rounds);
    return samples[((rank * rivals.size() + rival) * sizes + size) * rounds + round];
  }
  size_t sampleCount() const {
    return static_cast<size_t>(block.rankCount) * rivals.size() * options.sizes.size() *
           static_cast<size_t>(options.rounds);
  }
};

// All ranks; the last one opens the next generation.
void meet(Board& board, int32_t rankCount) {
  const int32_t generation = board.generation.load(std::memory_order_acquire);
  if (board.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == rankCount) {
    board.arrived.store(0, std::memory_order_relaxed);
    board.generation.store(generation + 1, std::memory_order_release);
    return;
  }
  constexpr int kSpins = 200;
  for (int spins = 0; board.generation.load(std::memory_order_acquire) == generation; ++spins) {
    if (spins > kSpins) ::sched_yield();
  }
}

// Each time another order: who always followed the same rival would always find the caches, and the
// ranks on the CPUs, as that one leaves them.
std::vector<size_t> shuffled(size_t count, SeededRng& rng) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  return order;
}

class RankOfBlock {
 public:
  RankOfBlock(const Plan& plan, int32_t rank) : plan_(plan), rank_(rank) {
    const uint64_t most = *std::ranges::max_element(plan.options.sizes);
    input_.assign(most / sizeof(float) + 64, 1.0F);
    output_.assign(most / sizeof(float) + 64, 0.0F);
  }

  Status run() {
    comm::Process& process = comm::Process::get();
    if (rank_ == 0) {
      for (size_t i = 0; i < plan_.rivals.size(); ++i) {
        TUTTI_TRY_ASSIGN(
            plan_.board->ids[i],
            bootstrap::makeUniqueId(process.directory(), process.networkOptions(), systemRng()));
      }
    }
    meetOthers();
    for (size_t i = 0; i < plan_.rivals.size(); ++i) TUTTI_TRY(open(i));
    Status status = timeAll();
    meetOthers();
    for (const auto& communicator : communicators_) communicator->shutDown();
    return status;
  }

 private:
  void meetOthers() { meet(*plan_.board, plan_.block.rankCount); }

  Status open(size_t rival) {
    comm::Config config;
    // By collective: a bare list says nothing of all-to-all.
    if (plan_.rivals[rival] != kChoice)
      config.algorithms = fmt::format("{}:{}", name(plan_.block.collective), plan_.rivals[rival]);
    communicators_.push_back(std::make_unique<comm::Communicator>(
        comm::Process::get(), comm::Communicator::Options{.id = plan_.board->ids[rival],
                                                          .rank = Rank{rank_},
                                                          .rankCount = plan_.block.rankCount,
                                                          .config = std::move(config)}));
    return communicators_.back()->initialise();
  }

  // The first round only finds out how many calls make a batch: as many for all rivals, since what
  // a batch costs to begin and end is then the same for all, too.
  Status timeAll() {
    const auto sizes = plan_.options.sizes.size();
    SeededRng rng(kOrderSeed);  // so all ranks' orders are one
    for (int32_t round = -1; round < plan_.options.rounds; ++round) {
      for (size_t size = 0; size < sizes; ++size) {
        for (const size_t rival : shuffled(plan_.rivals.size(), rng)) {
          TUTTI_TRY_ASSIGN(const double us, timeOne(rival, size, round < 0));
          if (round >= 0) {
            plan_.sample(static_cast<size_t>(rank_), rival, size, static_cast<size_t>(round)) =
                static_cast<float>(us);
          } else if (rank_ == 0) {
            const double calls = std::clamp(plan_.options.batchUs / us, kLeastCalls, kMostCalls);
            int32_t& most = plan_.board->calls[size];
            most = std::max(most, static_cast<int32_t>(calls));
          }
        }
      }
    }
    return {};
  }

  Result<double> timeOne(size_t rival, size_t size, bool isTrial) {
    comm::Communicator& communicator = *communicators_[rival];
    const auto blocks =
        static_cast<uint64_t>(schedule::blockCount(plan_.block.collective, plan_.block.rankCount));
    const launch::Call call{.shape = {.collective = plan_.block.collective,
                                      .count = plan_.options.sizes[size] / sizeof(float) / blocks},
                            .input = input_.data(),
                            .output = output_.data()};
    const int32_t calls = isTrial ? kTrialCalls : plan_.board->calls[size];
    const int32_t untimed = isTrial ? kSettlingCalls : std::min(calls, kSlotCount);
    meetOthers();
    for (int32_t i = 0; i < untimed; ++i) TUTTI_TRY(group::runAlone(communicator, call, nullptr));
    meetOthers();
    const Instant start = steadyClock().now();
    for (int32_t i = 0; i < calls; ++i) TUTTI_TRY(group::runAlone(communicator, call, nullptr));
    const std::chrono::duration<double, std::micro> spent = steadyClock().now() - start;
    return spent.count() / calls;
  }

  const Plan& plan_;
  const int32_t rank_;
  std::vector<float> input_;
  std::vector<float> output_;
  std::vector<std::unique_ptr<comm::Communicator>> communicators_;
};

// Makes this process one of so many hosts that share the machine: with a name and a part of the
// CPUs of its own, linked to the others by sockets.
void moveToHost(int32_t host, int32_t hostCount) {
  ::setenv("NCCL_HOSTID", fmt::format("tutti tune {}", host).c_str(), 1);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  cpu_set_t usable, part;
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  CPU_ZERO(&part);
  const int cpus = CPU_COUNT(&usable);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable)) continue;
    if (cpus < hostCount || seen * hostCount / cpus == host) CPU_SET(cpu, &part);
    ++seen;
  }
  ::sched_setaffinity(0, sizeof part, &part);
}

// A child: these ranks as threads, the first of them in the child's own. Returns its exit code; a
// rank that fails ends the process at once, since the others would wait for it.
int runChild(const Plan& plan, int32_t firstRank, int32_t rankCount) {
  ::alarm(kSecondsToGiveUp);
  ::unsetenv("NCCL_ALGO");
  ::setenv("TUTTI_DEVICE", "host", 1);
  const auto body = [&plan](int32_t rank) {
    const Status status = RankOfBlock(plan, rank).run();
    if (status.ok()) return;
    fmt::print(stderr, "tutti tune: rank {}: {}\n", rank, status.message());
    std::_Exit(EXIT_FAILURE);
  };
  std::vector<std::thread> threads;
  for (int32_t i = 1; i < rankCount; ++i) threads.emplace_back(body, firstRank + i);
  body(firstRank);
  for (std::thread& thread : threads) thread.join();
  return EXIT_SUCCESS;
}

// The first that fails ends the others, as `children` goes.
Status runRanks(const Plan& plan) {
  const int32_t processes = plan.block.isThreads ? 1 : plan.block.rankCount;
  const int32_t ranksEach = plan.block.rankCount / processes;
  Children children(/*ownGroups=*/false);
  for (int32_t i = 0; i < processes; ++i) {
    TUTTI_TRY(children.spawn(i, [&] {
      if (plan.block.hostCount > 1)
        moveToHost(i * plan.block.hostCount / processes, plan.block.hostCount);
      return runChild(plan, i * ranksEach, ranksEach);
    }));
  }
  while (children.runningCount() != 0) {
    while (const std::optional<ChildExit> exit = children.reap()) {
      if (!exit->isClean())
        return internalError("process {} of the ranks {}", exit->index, describe(*exit));
    }
    if (children.runningCount() == 0) break;
    if (const int signal = waitForSignal(); signal != 0 && signal != SIGCHLD)
      return invalidUsage("ended by signal {}", signal);
  }
  return {};
}

double quantileOf(std::vector<float> values, double quantile) {
  const auto place = static_cast<size_t>(quantile * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(place));
  return static_cast<double>(values[place]);
}

double timeOf(const Plan& plan, size_t rival, size_t size) {
  std::vector<float> slowest(static_cast<size_t>(plan.options.rounds), 0.0F);
  for (size_t round = 0; round < slowest.size(); ++round) {
    for (size_t rank = 0; rank < static_cast<size_t>(plan.block.rankCount); ++rank)
      slowest[round] = std::max(slowest[round], plan.sample(rank, rival, size, round));
  }
  return quantileOf(std::move(slowest), plan.options.quantile);
}

}  // namespace

Result<std::vector<TuneTime>> measureBlock(const TuneBlock& block, const TuneOptions& options) {
  Plan plan{.block = block, .options = options, .rivals = {kChoice}};
  for (const schedule::Algorithm& algorithm : schedule::algorithms(block.collective)) {
    if (algorithm.isOfItsOwn(block.rankCount, block.hostCount))
      plan.rivals.push_back(algorithm.name);
  }
  if (plan.rivals.size() > kMostRivals || options.sizes.size() > kMostSizes)
    return invalidArgument("{} algorithms, {} sizes: at most {} and {}", plan.rivals.size(),
                           options.sizes.size(), kMostRivals, kMostSizes);
  const size_t bytes = sizeof(Board) + plan.sampleCount() * sizeof(float);
  const UniqueMapping shared(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), bytes);
  if (!shared) return systemError("mmap", "the ranks' board", errno);
  plan.board = new (shared.get()) Board();
  plan.samples = reinterpret_cast<float*>(plan.board + 1);
  TUTTI_TRY(runRanks(plan));
  std::vector<TuneTime> times;
  for (size_t size = 0; size < options.sizes.size(); ++size) {
    for (size_t rival = 0; rival < plan.rivals.size(); ++rival)
      times.push_back({.block = block,
                       .bytes = options.sizes[size],
                       .rival = plan.rivals[rival],
                       .us = timeOf(plan, rival, size)});
  }
  return times;
}

}  // namespace tutti::tools
