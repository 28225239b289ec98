// ncclTuttiCommDump: a communicator as text.
#include <gmock/gmock.h>
#include <tutti/inspect.h>

#include <string>
#include <vector>

#include "processes.h"
#include "ranks.h"

namespace tutti::conformance {
namespace {

using testing::HasSubstr;

std::string dumpOf(ncclComm_t comm) {
  size_t length = 0;
  EXPECT_NCCL(ncclTuttiCommDump(comm, nullptr, 0, &length));
  std::vector<char> text(length + 1, 'x');
  EXPECT_NCCL(ncclTuttiCommDump(comm, text.data(), text.size(), nullptr));
  EXPECT_EQ(text.back(), '\0');
  return text.data();
}

TEST(Dump, TellsRanksNeighboursAlgorithmsAndSettings) {
  std::vector<ncclComm_t> comms(3);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 3, nullptr), ncclSuccess);
  const std::string text = dumpOf(comms[1]);
  for (const char* part :
       {"rank 1 of 3, ready, on host", "\nranks\n", "neighbours\n  0 -> 1 -> 2 -> 0",
        "algorithms, by bytes", "AllReduce ", "slots of", "settings that were set"})
    EXPECT_THAT(text, HasSubstr(part));
  for (const ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
  size_t length = 0;
  EXPECT_EQ(ncclTuttiCommDump(comms[1], nullptr, 0, &length), ncclInvalidArgument);
}

TEST(Dump, FillsNoMoreThanItIsGiven) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  char text[8] = {'#', '#', '#', '#', '#', '#', '#', '#'};
  EXPECT_NCCL(ncclTuttiCommDump(comm, text, 5, nullptr));
  EXPECT_EQ(std::string(text), "comm");
  EXPECT_EQ(text[5], '#');
  EXPECT_EQ(ncclTuttiCommDump(comm, nullptr, 5, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclTuttiCommDump(nullptr, text, 5, nullptr), ncclInvalidArgument);
  EXPECT_NCCL(ncclCommDestroy(comm));
}

// Ranks 0 and 2 on one host, 1 and 3 on another.
TEST(DumpedRanks, DISABLED_Neighbours) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess);
  EXPECT_THAT(dumpOf(comm), HasSubstr("neighbours\n  0 -> 2 -> 1 -> 3 -> 0"));
  EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Dump, ShowsThatRanksOfAHostAreNeighbours) {
  const auto settings = [](int rank) {
    return std::vector<std::string>{"NCCL_SOCKET_IFNAME=lo",
                                    std::string("NCCL_HOSTID=dump-") + (rank % 2 == 0 ? "a" : "b")};
  };
  EXPECT_EQ(runProcesses("DumpedRanks.DISABLED_Neighbours", 4, settings), std::vector<int>(4, 0));
}

}  // namespace
}  // namespace tutti::conformance
