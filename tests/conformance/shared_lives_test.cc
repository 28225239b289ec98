// Memory that peers map, over time: freed and allocated again between calls, more of it than a link
// keeps, on several communicators at once, its owner killed; and windows.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>

#include "../../src/base/process_counts_testing.h"
#include "processes.h"
#include "ranks.h"

namespace tutti::conformance {
namespace {

using testing::HasSubstr;

class Memory {
 public:
  explicit Memory(size_t count) {
    void* memory = nullptr;
    EXPECT_NCCL(ncclMemAlloc(&memory, count * sizeof(int64_t)));
    data_ = static_cast<int64_t*>(memory);
  }
  Memory(const Memory&) = delete;
  ~Memory() { EXPECT_NCCL(ncclMemFree(data_)); }
  int64_t* data() { return data_; }
  int64_t& operator[](size_t at) { return data_[at]; }

 private:
  int64_t* data_;
};

ncclComm_t join(const ProcessRank& self, int rank, int count) {
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, count, self.id, rank), ncclSuccess)
      << ncclGetLastError(nullptr);
  return comm;
}
ncclComm_t join(const ProcessRank& self) { return join(self, self.rank, self.count); }

int64_t sumOf(int ranks, size_t i, int round) {
  int64_t sum = 0;
  for (int r = 0; r < ranks; ++r) sum += valueOf(r + round, i);
  return sum;
}

// One all-reduce of what the round says, checked.
void reduceOnce(ncclComm_t comm, int64_t* input, int64_t* output, size_t count, int round) {
  int rank = 0, ranks = 0;
  EXPECT_NCCL(ncclCommUserRank(comm, &rank));
  EXPECT_NCCL(ncclCommCount(comm, &ranks));
  for (size_t i = 0; i < count; ++i) input[i] = valueOf(rank + round, i);
  EXPECT_NCCL(ncclAllReduce(input, output, count, ncclInt64, ncclSum, comm, nullptr));
  for (size_t i = 0; i < count; ++i)
    ASSERT_EQ(output[i], sumOf(ranks, i, round)) << "round " << round << " place " << i;
}

std::vector<int> allFine(int count) { return std::vector<int>(static_cast<size_t>(count), 0); }

size_t mappedSegments() {
  std::ifstream maps("/proc/self/maps");
  size_t found = 0;
  for (std::string line; std::getline(maps, line);)
    found += line.find("memfd:tutti-memory") != std::string::npos ? 1u : 0u;
  return found;
}

// ---- freed and allocated again
// ---------------------------------------------------------------------------------------------

TEST(SharedLivesRanks, DISABLED_Churn) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = join(self);
  size_t descriptors = 0;
  const char* mapsAfter = std::getenv("TUTTI_MAP_AFTER_BYTES");
  const int roundCount = mapsAfter == nullptr ? 3000 : 1000;
  constexpr int kWarmRounds = 100;
  for (int round = 0; round < roundCount; ++round) {
    const size_t count = 200 + static_cast<size_t>(round * 37 % 3000);
    Memory input(count);
    Memory output(count);
    reduceOnce(comm, input.data(), output.data(), count, round % 50);
    if (testing::Test::HasFatalFailure()) break;
    if (round == kWarmRounds) descriptors = openDescriptors();
  }
  EXPECT_LE(openDescriptors(), descriptors + 2);  // a hand-over may be under way
  EXPECT_LE(mappedSegments(), 64u * static_cast<size_t>(self.count - 1));
  EXPECT_NCCL(ncclCommDestroy(comm));
  EXPECT_EQ(mappedSegments(), 0u);
}

TEST(SharedLives, FreedAndAllocatedAgainBetweenCalls) {
  EXPECT_EQ(runProcesses("SharedLivesRanks.DISABLED_Churn", 2), allFine(2));
}

// Else short-lived buffers are copied.
std::vector<std::string> mappingAtOnce(int) { return {"TUTTI_MAP_AFTER_BYTES=0"}; }

TEST(SharedLives, MappedFreedAndAllocatedAgainBetweenCalls) {
  EXPECT_EQ(runProcesses("SharedLivesRanks.DISABLED_Churn", 2, mappingAtOnce), allFine(2));
}

// ---- calls that go as the last one with the same buffers did
// ---------------------------------------------------------------------------------------------

// The rank's block of `from` comes to all, at its place, checked.
void gatherOnce(ncclComm_t comm, const ProcessRank& self, int64_t* from, int64_t* to, int round) {
  constexpr size_t kCount = 300;
  for (size_t i = 0; i < kCount; ++i) from[i] = valueOf(self.rank + round, i);
  EXPECT_NCCL(ncclAllGather(from, to, kCount, ncclInt64, comm, nullptr));
  for (size_t i = 0; i < kCount * static_cast<size_t>(self.count); ++i)
    ASSERT_EQ(to[i], valueOf(static_cast<int>(i / kCount) + round, i % kCount)) << round;
}

TEST(SharedLivesRanks, DISABLED_SameBuffers) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = join(self);
  constexpr size_t kCount = 1800;
  constexpr size_t kReadCount = 8200;  // long enough for the kernel to read
  std::unique_ptr<Memory> input, output;
  std::vector<int64_t> ownInput(kReadCount), ownOutput(kReadCount);
  for (int round = 0; round < 600 && !testing::Test::HasFatalFailure(); ++round) {
    if (round % 150 == 0) {  // mostly to find the same addresses
      input.reset();
      output.reset();
      input = std::make_unique<Memory>(kCount);
      output = std::make_unique<Memory>(kCount);
    }
    const bool isOwn = round % 13 == 12;
    int64_t* from = isOwn ? ownInput.data() : input->data();
    int64_t* to = isOwn ? ownOutput.data() : output->data();
    reduceOnce(comm, from, round % 70 > 50 ? from : to, kCount, round);
    reduceOnce(comm, ownInput.data(), ownOutput.data(), kReadCount, round);
    gatherOnce(comm, self, from, to, round);
    if (round % 3 == self.rank) ::sched_yield();
  }
  EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(SharedLives, CallsThatGoAsTheLastOneDidAreRightWithOtherBuffersToo) {
  EXPECT_EQ(runProcesses("SharedLivesRanks.DISABLED_SameBuffers", 2, mappingAtOnce), allFine(2));
  EXPECT_EQ(runProcesses("SharedLivesRanks.DISABLED_SameBuffers", 3, mappingAtOnce), allFine(3));
}

// Values whose sum depends on the order in which they are added.
float unevenAt(int rank, size_t i) {
  const auto mixed = (i + 1) * 2654435761u ^ static_cast<size_t>(rank + 1) * 40503u;
  return static_cast<float>(mixed % 1'000'003) / 7.0f;
}

TEST(SharedLivesRanks, DISABLED_SameBits) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = join(self);
  const auto n = static_cast<size_t>(self.count);
  const size_t count = 30'000 / n * n;
  Memory inputMemory(count / 2 + 1), outputMemory(count / 2 + 1);  // of 8 bytes each
  auto* input = reinterpret_cast<float*>(inputMemory.data());
  auto* output = reinterpret_cast<float*>(outputMemory.data());
  for (size_t i = 0; i < count; ++i) input[i] = unevenAt(self.rank, i);
  std::vector<float> sums, parts;
  for (int call = 0; call < 90 && !testing::Test::HasFatalFailure(); ++call) {
    EXPECT_NCCL(ncclAllReduce(input, output, count, ncclFloat, ncclSum, comm, nullptr));
    if (sums.empty()) sums.assign(output, output + count);
    ASSERT_EQ(std::memcmp(sums.data(), output, count * sizeof(float)), 0) << "call " << call;
    EXPECT_NCCL(ncclReduceScatter(input, output, count / n, ncclFloat, ncclSum, comm, nullptr));
    if (parts.empty()) parts.assign(output, output + count / n);
    ASSERT_EQ(std::memcmp(parts.data(), output, parts.size() * sizeof(float)), 0) << call;
    EXPECT_NCCL(ncclAllGather(input, output, count / n, ncclFloat, comm, nullptr));
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(output[i], unevenAt(static_cast<int>(i / (count / n)), i % (count / n))) << call;
  }
  EXPECT_NCCL(ncclCommDestroy(comm));
}

// The first calls find out which algorithm is the fastest with such buffers.
TEST(SharedLives, EqualCallsGiveEqualBitsWhicheverWayTheyGo) {
  for (const int ranks : {3, 4, 8}) {
    EXPECT_EQ(runProcesses("SharedLivesRanks.DISABLED_SameBits", ranks, mappingAtOnce),
              allFine(ranks));
  }
}

TEST(SharedLivesRanks, DISABLED_ManyAtOnce) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = join(self);
  constexpr size_t kBuffers = 150;
  constexpr size_t kCount = 700;
  std::vector<std::unique_ptr<Memory>> inputs;
  for (size_t i = 0; i < kBuffers; ++i) inputs.push_back(std::make_unique<Memory>(kCount));
  Memory output(kCount);
  for (int round = 0; round < 150; ++round) {
    for (size_t i = 0; i < kBuffers; i += round < 5 ? 1 : 64)
      reduceOnce(comm, inputs[i]->data(), output.data(), kCount, round);
    if (testing::Test::HasFatalFailure()) break;
  }
  EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(SharedLives, MoreOfThemThanALinkKeeps) {
  EXPECT_EQ(runProcesses("SharedLivesRanks.DISABLED_ManyAtOnce", 3, mappingAtOnce), allFine(3));
}

TEST(SharedLives, BeyondTheDescriptorLimitAllocationsAreOrdinaryMemory) {
  const Memory first(1);  // the library's first use raises the limit as far as it may
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const size_t used = openDescriptors();
  const rlimit few{.rlim_cur = used + 40, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    std::vector<std::unique_ptr<Memory>> all;
    for (int64_t i = 0; i < 200; ++i) {
      all.push_back(std::make_unique<Memory>(1000));
      (*all.back())[999] = i;
    }
    EXPECT_LE(openDescriptors(), used + 40 / 2);
    for (int64_t i = 0; i < 200; ++i) EXPECT_EQ((*all[static_cast<size_t>(i)])[999], i);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(openDescriptors(), used);
}

// ---- several communicators, threads and processes, other settings
// ----------------------------------------------------------

TEST(SharedLivesRanks, DISABLED_Communicators) {
  const ProcessRank self = thisProcess();
  ncclComm_t parent = join(self);
  ncclComm_t half = nullptr, backwards = nullptr;
  constexpr size_t kCount = 5000;
  Memory input(kCount);
  Memory output(kCount);
  reduceOnce(parent, input.data(), output.data(), kCount, 1);
  EXPECT_NCCL(ncclCommSplit(parent, self.rank % 2, self.rank, &half, nullptr));
  EXPECT_NCCL(ncclCommSplit(parent, 0, -self.rank, &backwards, nullptr));
  for (int round = 0; round < 20; ++round) {
    for (ncclComm_t comm : {parent, half, backwards})
      reduceOnce(comm, input.data() + round, output.data() + 2 * round, kCount - 100, round);
    if (testing::Test::HasFatalFailure()) break;
  }
  EXPECT_NCCL(ncclCommDestroy(parent));
  reduceOnce(half, input.data(), output.data(), kCount, 3);
  EXPECT_NCCL(ncclCommDestroy(half));
  reduceOnce(backwards, input.data(), output.data(), kCount, 4);
  EXPECT_NCCL(ncclCommDestroy(backwards));
}

TEST(SharedLives, OneBufferServesParentAndChildren) {
  EXPECT_EQ(runProcesses("SharedLivesRanks.DISABLED_Communicators", 4, mappingAtOnce), allFine(4));
}

TEST(SharedLivesRanks, DISABLED_ThreadsOfProcesses) {
  const ProcessRank self = thisProcess();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&self, thread] {
      ncclComm_t comm = join(self, 2 * self.rank + thread, 2 * self.count);
      for (const size_t count : {size_t{300}, size_t{9000}, size_t{60'000}}) {
        Memory input(count);
        Memory output(count);
        for (int round = 0; round < 10; ++round) {
          reduceOnce(comm, input.data(), output.data(), count, round);
          if (testing::Test::HasFatalFailure()) break;
        }
      }
      EXPECT_NCCL(ncclCommDestroy(comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SharedLives, ThreadsOfSeveralProcessesShareThem) {
  EXPECT_EQ(runProcesses("SharedLivesRanks.DISABLED_ThreadsOfProcesses", 2, mappingAtOnce),
            allFine(2));
}

TEST(SharedLives, ARankThatMayNotReferIsCopiedFrom) {
  const auto settings = [](int rank) {
    return std::vector<std::string>{rank == 0 ? "NCCL_P2P_DISABLE=1" : "NCCL_P2P_DISABLE=0",
                                    "TUTTI_MAP_AFTER_BYTES=0"};
  };
  EXPECT_EQ(runProcesses("SharedLivesRanks.DISABLED_Communicators", 4, settings), allFine(4));
}

// ---- the owner's death
// ---------------------------------------------------------------------------------------------------

TEST(SharedLivesRanks, DISABLED_OwnerKilled) {
  const ProcessRank self = thisProcess();
  constexpr int kVictim = 1;
  constexpr int kCallsBefore = 20;
  ncclComm_t comm = join(self);
  constexpr size_t kCount = 1'000'000;
  Memory input(kCount);
  Memory output(kCount);
  std::atomic<int> calls{0};
  std::thread killer;
  if (self.rank == kVictim) {
    killer = std::thread([&calls] {
      while (calls.load() < kCallsBefore) std::this_thread::yield();
      ::kill(::getpid(), SIGKILL);
    });
  }
  ncclResult_t result = ncclSuccess;
  for (int call = 0; call < 100'000 && result == ncclSuccess; ++call) {
    result = ncclAllReduce(input.data(), output.data(), kCount, ncclInt64, ncclSum, comm, nullptr);
    calls.fetch_add(1);
  }
  if (killer.joinable()) killer.join();
  EXPECT_EQ(result, ncclRemoteError);
  EXPECT_THAT(ncclGetLastError(comm), HasSubstr("rank 1"));
  EXPECT_GE(calls.load(), kCallsBefore);
  EXPECT_NCCL(ncclCommAbort(comm));
}

TEST(SharedLives, AnOwnersDeathEndsTheReadersCallsWithItsName) {
  const auto settings = [](int) { return std::vector<std::string>{"TUTTI_TIMEOUT_MS=2000"}; };
  EXPECT_EQ(runProcesses("SharedLivesRanks.DISABLED_OwnerKilled", 3, settings),
            (std::vector<int>{0, -SIGKILL, 0}));
}

// ---- windows
// -------------------------------------------------------------------------------------------------------------

class Window : public testing::Test {
 protected:
  static constexpr size_t kBytes = 8192;
  Window() {
    EXPECT_NCCL(ncclCommInitAll(&comm_, 1, nullptr));
    EXPECT_NCCL(ncclMemAlloc(&memory_, kBytes));
  }
  ~Window() override {
    EXPECT_NCCL(ncclMemFree(memory_));
    EXPECT_NCCL(ncclCommDestroy(comm_));
  }
  ncclComm_t comm_ = nullptr;
  void* memory_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

TEST_F(Window, HasAHandleUntilItIsDeregistered) {
  for (const int flags : {NCCL_WIN_DEFAULT, NCCL_WIN_COLL_SYMMETRIC}) {
    EXPECT_NCCL(ncclCommWindowRegister(comm_, memory_, kBytes, &window_, flags));
    EXPECT_NE(window_, nullptr);
    EXPECT_EQ(ncclCommDeregister(comm_, window_), ncclInvalidArgument);
    EXPECT_NCCL(ncclCommWindowDeregister(comm_, window_));
    EXPECT_EQ(ncclCommWindowDeregister(comm_, window_), ncclInvalidArgument);
  }
}

TEST_F(Window, IsNoneForMemoryThatPeersCannotRead) {
  const std::unique_ptr<void, decltype(&std::free)> own(std::aligned_alloc(4096, kBytes),
                                                        &std::free);
  window_ = reinterpret_cast<ncclWindow_t>(memory_);
  EXPECT_NCCL(ncclCommWindowRegister(comm_, own.get(), kBytes, &window_, 0));
  EXPECT_EQ(window_, nullptr);
  EXPECT_NCCL(ncclCommWindowDeregister(comm_, window_));
  EXPECT_NCCL(ncclCommWindowRegister(comm_, memory_, 2 * kBytes, &window_, 0));
  EXPECT_EQ(window_, nullptr);
}

TEST_F(Window, RefusesWhatCannotBeOne) {
  auto* inside = static_cast<char*>(memory_) + 16;
  EXPECT_EQ(ncclCommWindowRegister(comm_, inside, 64, &window_, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommWindowRegister(comm_, memory_, kBytes, &window_, 9), ncclInvalidArgument);
  EXPECT_EQ(ncclCommWindowRegister(comm_, memory_, 0, &window_, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommWindowRegister(comm_, memory_, kBytes, nullptr, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommWindowDeregister(comm_, reinterpret_cast<ncclWindow_t>(memory_)),
            ncclInvalidArgument);
}

}  // namespace
}  // namespace tutti::conformance
