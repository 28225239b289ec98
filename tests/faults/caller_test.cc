// Ranks whose calls differ: the log of each says where its program made the call, if the call's own
// thread finds out, and else where the program hears of it.
#include <nccl.h>
#include <tutti/host.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "../conformance/processes.h"
#include "../conformance/ranks.h"
#include "times.h"

// The frames that the log is to show: of C, and not left before the call returns.
#define TUTTI_OF_THE_TEST extern "C" __attribute__((noinline, visibility("default")))

TUTTI_OF_THE_TEST int callOfTheTest(ncclComm_t comm, bool isOther, cudaStream_t stream) {
  static float value = 1;
  volatile ncclResult_t result =
      isOther ? ncclBroadcast(&value, &value, 1, ncclFloat, 0, comm, stream)
              : ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, stream);
  return result;
}

TUTTI_OF_THE_TEST int endOfTheTestsGroup() {
  volatile ncclResult_t result = ncclGroupEnd();
  return result;
}

TUTTI_OF_THE_TEST int pollOfTheTest(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  volatile ncclResult_t result = ncclCommGetAsyncError(comm, &state);
  EXPECT_EQ(result, ncclSuccess);
  return state;
}

namespace tutti::faults {
namespace {

using conformance::ProcessRank;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

enum class Way { kAlone, kInAGroup, kOnAStream, kNonBlocking };

int differ(Way way, ncclComm_t comm, bool isOther, cudaStream_t stream) {
  switch (way) {
    case Way::kAlone: return callOfTheTest(comm, isOther, nullptr);
    case Way::kInAGroup:
      EXPECT_NCCL(ncclGroupStart());
      EXPECT_EQ(callOfTheTest(comm, isOther, nullptr), ncclSuccess);
      return endOfTheTestsGroup();
    case Way::kOnAStream:
      EXPECT_EQ(callOfTheTest(comm, isOther, stream), ncclSuccess);
      EXPECT_NCCL(ncclTuttiStreamSynchronize(stream));
      return pollOfTheTest(comm);
    case Way::kNonBlocking:
      EXPECT_THAT(callOfTheTest(comm, isOther, nullptr),
                  testing::AnyOf(ncclInProgress, ncclInvalidUsage));
      while (pollOfTheTest(comm) == ncclInProgress) std::this_thread::yield();
      return pollOfTheTest(comm);
  }
  return ncclInternalError;
}

// A rank may be through with its own call before the other one's comes; then the next one tells.
TEST(CallerRanks, DISABLED_Differ) {
  const ProcessRank self = conformance::thisProcess();
  const auto way = static_cast<Way>(std::atoi(std::getenv("TEST_WAY")));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = way == Way::kNonBlocking ? 0 : 1;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  EXPECT_NCCL(ncclTuttiStreamCreate(&stream));
  ncclResult_t made = ncclCommInitRankConfig(&comm, self.count, self.id, self.rank, &config);
  while (made == ncclInProgress) EXPECT_NCCL(ncclCommGetAsyncError(comm, &made));
  ASSERT_EQ(made, ncclSuccess);
  int result = differ(way, comm, false, stream);
  ASSERT_EQ(result, ncclSuccess);
  for (int i = 0; i < 3 && result == ncclSuccess; ++i)
    result = differ(way, comm, i == 0 && self.rank == 1, stream);
  EXPECT_EQ(result, ncclInvalidUsage);
  EXPECT_NCCL(ncclCommAbort(comm));
  EXPECT_NCCL(ncclTuttiStreamDestroy(stream));
}

// What the ranks write to their logs.
std::vector<std::string> logsOf(Way way) {
  const std::filesystem::path folder =
      testing::TempDir() + "tutti_callers_" + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  const auto file = [&](int rank) { return folder / std::to_string(rank); };
  EXPECT_EQ(conformance::runProcesses(
                "CallerRanks.DISABLED_Differ", 2,
                [&](int rank) {
                  return std::vector<std::string>{
                      "NCCL_DEBUG=WARN", "NCCL_DEBUG_FILE=" + file(rank).string(),
                      "NCCL_ALGO=allreduce:oneshot", "TEST_WAY=" + std::to_string(int(way))};
                }),
            std::vector<int>(2, 0));
  std::vector<std::string> logs;
  for (int rank = 0; rank < 2; ++rank) {
    std::stringstream text;
    text << std::ifstream(file(rank)).rdbuf();
    logs.push_back(text.str());
  }
  std::filesystem::remove_all(folder);
  return logs;
}

// No line is longer than people read.
void expectShort(const std::string& log) {
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) EXPECT_LT(line.size(), 800u) << line;
}

TEST(Caller, OfACallThatDiffersIsInTheLog) {
  const std::vector<std::string> logs = logsOf(Way::kAlone);
  EXPECT_THAT(logs[0] + logs[1], ContainsRegex("as collective #2:"));  // who found it
  for (const std::string& log : logs) {
    EXPECT_THAT(log, ContainsRegex(" call was (AllReduce|Broadcast) #[23] .*, failed, in "
                                   "nccl(AllReduce|Broadcast), called from "
                                   "\\S*\\(callOfTheTest\\+0x.* < "));
    expectShort(log);
  }
}

// Whose calls are made when it ends.
TEST(Caller, OfAGroupWhoseCallsDifferIsInTheLog) {
  for (const std::string& log : logsOf(Way::kInAGroup)) {
    EXPECT_THAT(log, ContainsRegex(", failed, in ncclGroupEnd, called from "
                                   "\\S*\\(endOfTheTestsGroup\\+0x.* < "));
  }
}

TEST(Caller, OfACallThatAnotherThreadRunsIsSaidToBeUnknown) {
  for (const Way way : {Way::kOnAStream, Way::kNonBlocking}) {
    for (const std::string& log : logsOf(way)) {
      EXPECT_THAT(log, ContainsRegex("another thread found this, so where that call came from is "
                                     "not known here; the program hears of it in nccl.*, called "
                                     "from \\S*\\((pollOfTheTest|callOfTheTest)\\+0x"));
      EXPECT_THAT(log, Not(HasSubstr(", failed, in nccl")));
    }
  }
}

}  // namespace
}  // namespace tutti::faults
