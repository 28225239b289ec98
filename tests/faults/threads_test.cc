// Many threads, one communicator or one each; more ranks than processors; thousands of lives.
#include <nccl.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "../../src/base/process_counts_testing.h"
#include "../conformance/ranks.h"
#include "times.h"

namespace tutti::faults {
namespace {

// Two threads of each rank call all-reduces on one communicator. Calls of one communicator are
// serialised in an order that ranks need not share, so all calls are alike.
TEST(Threads, MayShareACommunicator) {
  constexpr int kCalls = 300;
  std::atomic<int> wrong{0};
  conformance::runRanks(2, [&](int, ncclComm_t comm) {
    const auto call = [&] {
      for (int i = 0; i < kCalls; ++i) {
        int64_t value = 21;
        EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr));
        wrong += value != 42;
      }
    };
    std::thread other(call);
    call();
    other.join();
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Threads, SixtyFourHaveACommunicatorEach) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([i] {
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
      for (int call = 0; call < 20; ++call) {
        int64_t value = i;
        EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr));
        EXPECT_EQ(value, i);
      }
      EXPECT_NCCL(ncclCommDestroy(comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void sumOverSixtyFour() {
  constexpr int kRanks = 64;
  conformance::runRanks(kRanks, [](int rank, ncclComm_t comm) {
    std::vector<int64_t> values(1000, rank + 1);
    for (int i = 0; i < 3; ++i) {
      std::vector<int64_t> sums(values.size());
      ASSERT_EQ(ncclAllReduce(values.data(), sums.data(), values.size(), ncclInt64, ncclSum, comm,
                              nullptr),
                ncclSuccess)
          << ncclGetLastError(comm);
      EXPECT_EQ(sums.back(), kRanks * (kRanks + 1) / 2);
    }
  });
}

TEST(Oversubscription, SixtyFourRanksOnTheProcessorsThereAre) {
  const auto start = Clock::now();
  sumOverSixtyFour();
  keepTime("Oversubscription: 64 ranks of one process", Clock::now() - start,
           std::chrono::seconds(10));
}

TEST(Oversubscription, SixtyFourRanksOnOneProcessorAtIdlePriority) {
  setBoundOfTest(std::chrono::minutes(2));  // who is not idle comes first
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  const sched_param none{};
  ASSERT_EQ(::sched_setscheduler(0, SCHED_IDLE, &none), 0);
  sumOverSixtyFour();
  EXPECT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

// CPU time of this process in the 2 s after `work` of all ranks, which keep their communicators.
double idleSeconds(int ranks, const std::function<void(int, ncclComm_t)>& work) {
  const auto used = [] {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  std::barrier done(ranks);
  double seconds = 0;
  conformance::runRanks(ranks, [&](int rank, ncclComm_t comm) {
    work(rank, comm);
    done.arrive_and_wait();
    if (rank == 0) {
      const double before = used();
      std::this_thread::sleep_for(std::chrono::seconds(2));
      seconds = used() - before;
    }
    done.arrive_and_wait();
  });
  return seconds;
}

TEST(Idle, CommunicatorsUseNoProcessor) {
  setBoundOfTest(std::chrono::minutes(2));  // nine times 2 s
  const auto sum = [](int, ncclComm_t comm) {
    for (int i = 0; i < 200; ++i) {
      float value = 1;
      EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr));
    }
  };
  // The others spin until they sleep.
  const auto sumLate = [&](int rank, ncclComm_t comm) {
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    sum(rank, comm);
  };
  for (const int ranks : {2, 8, 64}) {
    for (const auto& work : {std::function<void(int, ncclComm_t)>([](int, ncclComm_t) {}),
                             std::function<void(int, ncclComm_t)>(sum),
                             std::function<void(int, ncclComm_t)>(sumLate)}) {
      EXPECT_LT(idleSeconds(ranks, work), 0.01 * 2) << ranks << " ranks";
    }
  }
}

// Links between threads are ordinary memory.
TEST(SharedMemory, OfShortCallsOfManyRanksIsLittle) {
  constexpr int kRanks = 64;
  constexpr size_t kMost = size_t{4} << 20;  // bytes a rank
  const size_t before = residentBytes();
  std::atomic<size_t> most{0};
  std::barrier done(kRanks);
  conformance::runRanks(kRanks, [&](int rank, ncclComm_t comm) {
    std::vector<float> values(kRanks * 4, 1), others(values.size());
    for (int i = 0; i < 200; ++i)
      EXPECT_NCCL(ncclAlltoAll(values.data(), others.data(), 4, ncclFloat, comm, nullptr));
    done.arrive_and_wait();
    if (rank == 0) most = residentBytes() - before;
    done.arrive_and_wait();
  });
  EXPECT_GT(most, 0u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(most / kRanks, kMost);
#endif
  std::printf("%zu KiB a rank\n", most / kRanks / 1024);
}

// The best of some tries: others use the machine, too. Threads are there before, as a program's
// are.
TEST(Init, OfSixtyFourThreadRanksTakesATenthOfASecond) {
  constexpr int kRanks = 64;
  constexpr int kTries = 20;
  constexpr std::chrono::milliseconds kWanted{100};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::chrono::milliseconds kBound = 20 * kWanted;
#else
  constexpr std::chrono::milliseconds kBound = kWanted;
#endif
  Clock::duration best = Clock::duration::max();
  for (int nth = 0; nth < kTries && best > kBound; ++nth) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    Clock::time_point start;
    std::barrier ready(kRanks, [&]() noexcept { start = Clock::now(); });
    std::barrier begun(kRanks, [&]() noexcept { best = std::min(best, Clock::now() - start); });
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        ncclComm_t comm = nullptr;
        ready.arrive_and_wait();
        EXPECT_NCCL(ncclCommInitRank(&comm, kRanks, id, rank));
        begun.arrive_and_wait();
        EXPECT_NCCL(ncclCommDestroy(comm));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  keepTime("Init: of 64 thread ranks", best, kBound);
}

// Over the network, in the same process: sockets, root and threads come and go each time.
void oneLife() {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
  std::vector<ncclComm_t> comms(2);
  EXPECT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_NCCL(ncclCommInitRank(&comms[static_cast<size_t>(rank)], 2, id, rank));
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  int64_t values[] = {1, 2};
  EXPECT_NCCL(ncclGroupStart());
  for (size_t i = 0; i < 2; ++i)
    EXPECT_NCCL(ncclAllReduce(&values[i], &values[i], 1, ncclInt64, ncclSum, comms[i], nullptr));
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_EQ(values[0] + values[1], 6);
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
}

// FAULTS_FULL: 10,000, and the figures printed.
TEST(Lives, LeaveNothingBehind) {
  const bool isFull = std::getenv("FAULTS_FULL") != nullptr;
  const int lives = isFull ? 10'000 : 500;
  setBoundOfTest(std::chrono::seconds(30 + lives / 50));
  for (int i = 0; i < 50; ++i) oneLife();
  const size_t descriptors = countEntries("/proc/self/fd");
  const size_t threads = countEntries("/proc/self/task");
  const size_t mappings = countEntries("/proc/self/map_files");
  const size_t resident = residentBytes() / 1024;
  const auto start = Clock::now();
  for (int i = 0; i < lives && !testing::Test::HasFatalFailure(); ++i) oneLife();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  // The last root's thread may still be on its way out, and service threads close the last
  // connections on their own time.
  const auto hasMore = [&] {
    return countEntries("/proc/self/task") > threads || countEntries("/proc/self/fd") > descriptors;
  };
  for (int i = 0; i < 500 && hasMore(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LE(countEntries("/proc/self/fd"), descriptors);
  EXPECT_LE(countEntries("/proc/self/task"), threads);
  EXPECT_LE(countEntries("/proc/self/map_files"), mappings + 4);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(residentBytes() / 1024, resident + 1024);
#endif
  std::printf(
      "%d lives in %.1f s: descriptors %zu to %zu, threads %zu to %zu, resident KiB %zu to %zu\n",
      lives, seconds, descriptors, countEntries("/proc/self/fd"), threads,
      countEntries("/proc/self/task"), resident, residentBytes() / 1024);
}

TEST(Lives, OfAThousandCommunicatorsAtOnce) {
  std::vector<ncclComm_t> comms(1000);
  const size_t descriptors = countEntries("/proc/self/fd");
  for (ncclComm_t& comm : comms) ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  for (ncclComm_t comm : comms) {
    int64_t value = 3;
    ASSERT_EQ(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr), ncclSuccess);
  }
  for (ncclComm_t comm : comms) ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_LE(countEntries("/proc/self/fd"), descriptors + 8);
}

}  // namespace
}  // namespace tutti::faults
