// What needs ranks in processes of their own: children of communicators between processes, after a
// death, and settings that differ.
#include "processes.h"

#include <signal.h>
#include <tutti/host.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "ranks.h"

namespace tutti::conformance {
namespace {

using testing::HasSubstr;

ncclComm_t join(const ProcessRank& self) {
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess)
      << ncclGetLastError(nullptr);
  return comm;
}

// An adapter may not yet have sent what a call that is over leaves to it, and would take it along.
void dieSoon() {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ::raise(SIGKILL);
}

int64_t sumOver(ncclComm_t comm, int64_t own) {
  int64_t value = own;
  EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr));
  return value;
}

TEST(ProcessRanks, DISABLED_Split) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = join(self);
  ncclComm_t child = nullptr;
  const bool isOutside = self.rank == 4;
  ASSERT_EQ(ncclCommSplit(comm, isOutside ? NCCL_SPLIT_NOCOLOR : self.rank % 2, -self.rank, &child,
                          nullptr),
            ncclSuccess);
  EXPECT_NCCL(ncclCommDestroy(comm));
  if (isOutside) {
    EXPECT_EQ(child, nullptr);
    return;
  }
  int rank = -1;
  EXPECT_NCCL(ncclCommUserRank(child, &rank));
  EXPECT_EQ(rank, self.rank < 2 ? 1 : 0);
  EXPECT_EQ(sumOver(child, self.rank), self.rank % 2 == 0 ? 2 : 4);
  EXPECT_NCCL(ncclCommDestroy(child));
}

TEST(Processes, SplitByColour) {
  EXPECT_EQ(runProcesses("ProcessRanks.DISABLED_Split", 5), std::vector<int>(5, 0));
}

TEST(ProcessRanks, DISABLED_ShrinkAfterDeath) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = join(self);
  EXPECT_EQ(sumOver(comm, 1), self.count);
  if (self.rank == 1) dieSoon();
  int excluded[] = {1};
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclCommShrink(comm, excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT), ncclSuccess)
      << ncclGetLastError(comm);
  EXPECT_NCCL(ncclCommAbort(comm));
  EXPECT_EQ(sumOver(child, self.rank), 5);
  EXPECT_NCCL(ncclCommDestroy(child));
}

TEST(Processes, ShrinkWithoutTheDead) {
  EXPECT_EQ(runProcesses("ProcessRanks.DISABLED_ShrinkAfterDeath", 4),
            (std::vector<int>{0, -SIGKILL, 0, 0}));
}

// Long enough for reads of more than a slot, and through every turn of their trial. What is in
// place cannot be read there, and a call may be so on one rank alone.
TEST(ProcessRanks, DISABLED_LongExchanges) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = join(self);
  constexpr size_t kBlock = 300'001;
  const auto valueOf = [](int from, int to, int call, size_t at) {
    return static_cast<int32_t>(at * 7 + static_cast<size_t>(call * 1009 + from * 31 + to));
  };
  std::vector<int32_t> input(2 * kBlock);
  std::vector<int32_t> output(2 * kBlock);
  const auto expectBlocks = [&](int call, int to) {
    for (size_t i = 0; i < output.size(); ++i) {
      const int from = static_cast<int>(i / kBlock);
      ASSERT_EQ(output[i], valueOf(from, to, call, i % kBlock)) << "call " << call << " at " << i;
    }
  };
  for (int call = 0; call < 90; ++call) {
    for (size_t i = 0; i < input.size(); ++i)
      input[i] = valueOf(self.rank, static_cast<int>(i / kBlock), call, i % kBlock);
    const bool inPlace = call > 30 && (call * 7 + self.rank * 3) % 5 == 0;
    std::ranges::fill(output, -1);
    if (inPlace) output = input;
    const auto* source = inPlace ? output.data() : input.data();
    EXPECT_NCCL(ncclAlltoAll(source, output.data(), kBlock, ncclInt32, comm, nullptr));
    ASSERT_NO_FATAL_FAILURE(expectBlocks(call, self.rank));
    std::ranges::fill(output, -1);
    EXPECT_NCCL(ncclAllGather(input.data(), output.data(), kBlock, ncclInt32, comm, nullptr));
    ASSERT_NO_FATAL_FAILURE(expectBlocks(call, 0));
  }
  EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Processes, LongExchangesInPlaceAndNot) {
  EXPECT_EQ(runProcesses("ProcessRanks.DISABLED_LongExchanges", 2), (std::vector<int>{0, 0}));
}

TEST(ProcessRanks, DISABLED_SecondDeathDuringShrink) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = join(self);
  EXPECT_EQ(sumOver(comm, 1), self.count);
  if (self.rank != 0 && self.rank != 3) dieSoon();
  int excluded[] = {1};
  ncclComm_t child = nullptr;
  EXPECT_EQ(ncclCommShrink(comm, excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT), ncclRemoteError);
  EXPECT_THAT(ncclGetLastError(comm), HasSubstr("rank 2"));
  EXPECT_EQ(child, nullptr);
  int both[] = {1, 2};
  ASSERT_EQ(ncclCommShrink(comm, both, 2, &child, nullptr, NCCL_SHRINK_ABORT), ncclSuccess)
      << ncclGetLastError(comm);
  EXPECT_EQ(sumOver(child, self.rank), 3);
  EXPECT_NCCL(ncclCommDestroy(child));
  EXPECT_NCCL(ncclCommAbort(comm));
}

TEST(Processes, ADeathDuringShrinkIsToldToAllAndTheNextShrinkWorks) {
  EXPECT_EQ(runProcesses("ProcessRanks.DISABLED_SecondDeathDuringShrink", 4),
            (std::vector<int>{0, -SIGKILL, -SIGKILL, 0}));
}

TEST(ProcessRanks, DISABLED_DifferentLists) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = join(self);
  int excluded[] = {self.rank == 0 ? 2 : 3};
  ncclComm_t child = nullptr;
  if (self.rank < 2) {
    EXPECT_EQ(ncclCommShrink(comm, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT),
              ncclRemoteError);
  }
  EXPECT_EQ(child, nullptr);
  EXPECT_EQ(sumOver(comm, self.rank), 6);  // the parent is unharmed
  EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Processes, DifferentListsOfAShrinkAreAnErrorNotAHang) {
  // The ranks that do not shrink wait for the others meanwhile, with the usual patience.
  const auto settings = [](int rank) {
    return rank < 2 ? std::vector<std::string>{"TUTTI_TIMEOUT_MS=400"} : std::vector<std::string>{};
  };
  EXPECT_EQ(runProcesses("ProcessRanks.DISABLED_DifferentLists", 4, settings),
            std::vector<int>(4, 0));
}

TEST(ProcessRanks, DISABLED_Refused) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(std::getenv("TEST_TEXT")));
  EXPECT_EQ(comm, nullptr);
}

TEST(Processes, RefuseADeviceThatIsNotThere) {
  if (::access("/dev/nvidia0", F_OK) == 0) GTEST_SKIP() << "there is a GPU";
  const auto settings = [](int) {
    return std::vector<std::string>{"TUTTI_DEVICE=cuda", "TEST_TEXT=TUTTI_DEVICE=cuda"};
  };
  EXPECT_EQ(runProcesses("ProcessRanks.DISABLED_Refused", 1, settings), std::vector<int>(1, 0));
}

TEST(Processes, FindOutThatTheirAlgorithmsDifferInTheTail) {
  std::string same = "allreduce:ring";
  while (same.size() < 200) same += ",ring";
  const auto settings = [&](int rank) {
    return std::vector<std::string>{"NCCL_ALGO=" + same + (rank == 0 ? ",tree" : ",ring"),
                                    "TEST_TEXT=NCCL_ALGO differs"};
  };
  EXPECT_EQ(runProcesses("ProcessRanks.DISABLED_Refused", 2, settings), std::vector<int>(2, 0));
}

TEST(Processes, FindOutThatTheirPricesDiffer) {
  const std::filesystem::path file =
      testing::TempDir() + "tutti_prices_" + std::to_string(::getpid());
  std::ofstream(file) << "tutti tuning 6\ndevice cpu\nprices AllReduce threads ring call 1 hop 1 "
                         "line 1 message 1 slot_mb 1 cold_mb 1 "
                         "referenced_mb 1\n";
  const auto settings = [&](int rank) {
    return std::vector<std::string>{"TUTTI_TUNING_FILE=" + (rank == 0 ? file.string() : ""),
                                    "TEST_TEXT=TUTTI_TUNING_FILE differ"};
  };
  EXPECT_EQ(runProcesses("ProcessRanks.DISABLED_Refused", 2, settings), std::vector<int>(2, 0));
  std::ofstream(file) << "tutti tuning 6\ndevice cpu\nprices Singing threads\n";
  const auto broken = [&](int) {
    return std::vector<std::string>{"TUTTI_TUNING_FILE=" + file.string(),
                                    "TEST_TEXT=:3: \"Singing\" is no collective"};
  };
  EXPECT_EQ(runProcesses("ProcessRanks.DISABLED_Refused", 1, broken), std::vector<int>(1, 0));
  std::filesystem::remove(file);
}

TEST(Processes, AForkedChildIsRefusedAndItsParentUnharmed) {
  std::vector<ncclComm_t> comms(1);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 1, nullptr), ncclSuccess);
  void* held = nullptr;
  EXPECT_NCCL(ncclMemAlloc(&held, 64));
  cudaStream_t stream = nullptr;
  EXPECT_NCCL(ncclTuttiStreamCreate(&stream));
  const pid_t child = ::fork();
  if (child == 0) {
    int count = 0;
    void* memory = nullptr;
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    float value = 1;
    const bool isRefused = ncclCommCount(comms[0], &count) == ncclInvalidUsage &&
                           std::strstr(ncclGetLastError(nullptr), "forked") != nullptr &&
                           ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comms[0],
                                         nullptr) == ncclInvalidUsage &&
                           ncclGetUniqueId(&id) == ncclInvalidUsage &&
                           ncclCommInitAll(&comm, 1, nullptr) == ncclInvalidUsage &&
                           ncclCommDestroy(comms[0]) == ncclInvalidUsage &&
                           ncclMemAlloc(&memory, 64) == ncclInvalidUsage &&
                           ncclMemFree(held) == ncclInvalidUsage &&
                           ncclTuttiStreamCreate(&stream) == ncclInvalidUsage &&
                           ncclTuttiStreamSynchronize(stream) == ncclInvalidUsage;
    ::_exit(isRefused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(sumOver(comms[0], 7), 7);
  EXPECT_NCCL(ncclTuttiStreamDestroy(stream));
  EXPECT_NCCL(ncclMemFree(held));
  EXPECT_NCCL(ncclCommDestroy(comms[0]));
}

}  // namespace
}  // namespace tutti::conformance
