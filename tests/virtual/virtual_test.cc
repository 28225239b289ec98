// Virtual ranks behind the ordinary calls: 4 nodes of 8 GPUs that are not there.

#include <tutti/inspect.h>
#include <tutti/virtual.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "ranks.h"

namespace tutti::conformance {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 16;
constexpr size_t kCount = 100'000;

// Each test is a process that runs beside others.
std::string ownFile(const std::string& name) {
  return testing::TempDir() + "/" + std::to_string(::getpid()) + "." + name;
}

class Virtual : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ncclCommInitAll(comms_.data(), kRanks, nullptr), ncclSuccess)
        << ncclGetLastError(nullptr);
  }
  void TearDown() override {
    for (ncclComm_t comm : comms_) EXPECT_NCCL(ncclCommDestroy(comm));
  }

  ncclResult_t allReduce(int rank, size_t count = kCount) {
    return ncclAllReduce(buffer_, buffer_, count, ncclFloat, ncclSum,
                         comms_[static_cast<size_t>(rank)], nullptr);
  }
  static double timeOf(ncclComm_t comm) {
    double us = -1;
    EXPECT_NCCL(ncclTuttiCommVirtualTime(comm, &us));
    return us;
  }
  double timeOf(int rank) const { return timeOf(comms_[static_cast<size_t>(rank)]); }

  std::array<ncclComm_t, kRanks> comms_{};
  void* buffer_ = &comms_;  // nobody looks at it
};

TEST_F(Virtual, RanksAreGpusOfTheCluster) {
  for (int rank = 0; rank < kRanks; ++rank) {
    int value = -1;
    EXPECT_NCCL(ncclCommUserRank(comms_[static_cast<size_t>(rank)], &value));
    EXPECT_EQ(value, rank);
    EXPECT_NCCL(ncclCommCuDevice(comms_[static_cast<size_t>(rank)], &value));
    EXPECT_EQ(value, rank);
  }
}

TEST_F(Virtual, TakeEveryCallAndMoveNothing) {
  std::vector<int> values(kRanks * 4, 7);
  for (ncclComm_t comm : comms_) {
    int* v = values.data();
    EXPECT_NCCL(ncclAllReduce(v, v, 4, ncclInt, ncclMax, comm, nullptr));
    EXPECT_NCCL(ncclBroadcast(v, v, 4, ncclInt, 3, comm, nullptr));
    EXPECT_NCCL(ncclReduce(v, v, 4, ncclInt, ncclSum, 3, comm, nullptr));
    EXPECT_NCCL(ncclAllGather(v, v, 4, ncclInt, comm, nullptr));
    EXPECT_NCCL(ncclReduceScatter(v, v, 4, ncclInt, ncclSum, comm, nullptr));
    EXPECT_NCCL(ncclAlltoAll(v, v, 4, ncclInt, comm, nullptr));
    EXPECT_NCCL(ncclGather(v, v, 4, ncclInt, 0, comm, nullptr));
    EXPECT_NCCL(ncclScatter(v, v, 4, ncclInt, 0, comm, nullptr));
  }
  EXPECT_NCCL(ncclSend(values.data(), 4, ncclInt, 1, comms_[0], nullptr));
  EXPECT_NCCL(ncclRecv(values.data(), 4, ncclInt, 0, comms_[1], nullptr));
  EXPECT_THAT(values, testing::Each(7));
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_GT(timeOf(rank), 0);
}

TEST_F(Virtual, SimulateEndSaysWhatTheGroupTakesAfterwards) {
  for (const bool isSimulated : {true, false}) {
    EXPECT_NCCL(ncclGroupStart());
    for (int rank = 0; rank < kRanks; ++rank) {
      ncclComm_t comm = comms_[static_cast<size_t>(rank)];
      EXPECT_NCCL(allReduce(rank));
      EXPECT_NCCL(allReduce(rank, 3 * kCount));
      EXPECT_NCCL(ncclSend(buffer_, kCount, ncclFloat, (rank + 8) % kRanks, comm, nullptr));
      EXPECT_NCCL(ncclRecv(buffer_, kCount, ncclFloat, (rank + 8) % kRanks, comm, nullptr));
    }
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    static float estimated = 0;
    if (isSimulated) {
      EXPECT_NCCL(ncclGroupSimulateEnd(&info));
      estimated = info.estimatedTime;
      EXPECT_EQ(timeOf(0), 0);  // nothing was called
    } else {
      EXPECT_NCCL(ncclGroupEnd());
      EXPECT_NEAR(timeOf(0), estimated, estimated * 1e-5);
    }
  }
}

TEST_F(Virtual, LargerCallsAndSlowerWaysTakeLonger) {
  EXPECT_NCCL(allReduce(0));
  const double one = timeOf(0);
  EXPECT_NCCL(allReduce(0, 100 * kCount));
  EXPECT_GT(timeOf(0), 3 * one);
}

TEST_F(Virtual, DifferentCallsAreAnErrorOfAllRanks) {
  EXPECT_NCCL(allReduce(0));
  EXPECT_NCCL(allReduce(1));
  EXPECT_EQ(allReduce(2, kCount + 1), ncclInvalidUsage);
  EXPECT_THAT(
      ncclGetLastError(comms_[2]),
      HasSubstr("rank 0 AllReduce #1 (100000 of float, sum), rank 2 AllReduce #1 (100001 of "
                "float, sum)"));
  EXPECT_EQ(allReduce(1), ncclInvalidUsage);
  ncclResult_t error = ncclSuccess;
  EXPECT_NCCL(ncclCommGetAsyncError(comms_[5], &error));
  EXPECT_EQ(error, ncclInvalidUsage);
}

TEST_F(Virtual, ASendAndItsReceiveMustBeAsLong) {
  EXPECT_NCCL(ncclSend(buffer_, 10, ncclFloat, 1, comms_[0], nullptr));
  EXPECT_EQ(ncclRecv(buffer_, 11, ncclFloat, 0, comms_[1], nullptr), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(comms_[1]),
              HasSubstr("rank 1 Recv (11 of float, from rank 0), rank 0 Send (10 of float, to"));
}

TEST_F(Virtual, ArgumentsAreCheckedAsEver) {
  EXPECT_EQ(ncclAllReduce(nullptr, buffer_, 1, ncclFloat, ncclSum, comms_[0], nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclBroadcast(buffer_, buffer_, 1, ncclFloat, kRanks, comms_[0], nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclTuttiCommVirtualTime(comms_[0], nullptr), ncclInvalidArgument);
}

TEST_F(Virtual, AnyStreamAndAnyAmountOfMemoryWillDo) {
  auto* stream = reinterpret_cast<cudaStream_t>(uintptr_t{0x5555'1234'0000});
  void* memory = nullptr;
  constexpr size_t kTerabyte = size_t{1} << 40;
  ASSERT_EQ(ncclMemAlloc(&memory, kTerabyte), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_NCCL(ncclAllReduce(memory, memory, kTerabyte / 4, ncclFloat, ncclSum, comms_[0], stream));
  EXPECT_NCCL(ncclMemFree(memory));
  EXPECT_EQ(ncclMemFree(buffer_), ncclInvalidArgument);
}

TEST_F(Virtual, ChildrenKnowWhereTheyAre) {
  std::array<ncclComm_t, kRanks> inside{}, across{};
  EXPECT_NCCL(ncclGroupStart());
  for (size_t rank = 0; rank < kRanks; ++rank)
    EXPECT_NCCL(ncclCommSplit(comms_[rank], static_cast<int>(rank / 2), 0, &inside[rank], nullptr));
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_NCCL(ncclGroupStart());
  for (size_t rank = 0; rank < kRanks; ++rank)
    EXPECT_NCCL(ncclCommSplit(comms_[rank], static_cast<int>(rank % 8), 0, &across[rank], nullptr));
  EXPECT_NCCL(ncclGroupEnd());
  for (size_t rank = 0; rank < kRanks; ++rank) {
    for (ncclComm_t comm : {inside[rank], across[rank]})
      EXPECT_NCCL(ncclAllReduce(buffer_, buffer_, 1 << 24, ncclFloat, ncclSum, comm, nullptr));
  }
  // NVLink against the network.
  EXPECT_LT(2 * timeOf(inside[0]), timeOf(across[0]));
  for (ncclComm_t comm : inside) EXPECT_NCCL(ncclCommDestroy(comm));
  for (ncclComm_t comm : across) EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST_F(Virtual, TheDumpTellsPlacesAndCalls) {
  EXPECT_NCCL(allReduce(9));
  std::string text(1 << 16, ' ');
  EXPECT_NCCL(ncclTuttiCommDump(comms_[9], text.data(), text.size(), nullptr));
  EXPECT_THAT(text, HasSubstr("rank 9 of 16, ready, on virtual"));
  EXPECT_THAT(text, HasSubstr("9  node 1 place 1"));
  EXPECT_THAT(text, HasSubstr("AllReduce               1 calls"));
}

// Its path; what is in it is tried with `tutti sim --trace` (tests/tools/sim_test.py).
std::string traceFile() { return ownFile("virtual_trace.jsonl"); }

TEST_F(Virtual, CallsAreWrittenDown) {
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclSend(buffer_, 10, ncclFloat, 1, comms_[0], nullptr));
  EXPECT_NCCL(ncclRecv(buffer_, 11, ncclFloat, 1, comms_[0], nullptr));
  EXPECT_NCCL(ncclGroupEnd());
  for (ncclComm_t& comm : comms_) {
    EXPECT_NCCL(ncclCommDestroy(comm));
    comm = nullptr;
  }
  std::ifstream file(traceFile());
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("\"ranks\":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]}"));
  EXPECT_THAT(text.str(), HasSubstr("{\"call\":\"Recv\",\"count\":11,\"type\":\"float\""));
}

TEST(VirtualRanks, OneAThreadMeetByTheirId) {
  runRanks(12, [](int rank, ncclComm_t comm) {
    float value = 0;
    EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr));
    int device = -1;
    EXPECT_NCCL(ncclCommCuDevice(comm, &device));
    EXPECT_EQ(device, rank);
  });
}

TEST(VirtualRanks, GoWhereTheDeviceListSays) {
  constexpr std::array kDevices = {31, 0, 8};
  std::array<ncclComm_t, 3> comms{};
  ASSERT_EQ(ncclCommInitAll(comms.data(), 3, kDevices.data()), ncclSuccess)
      << ncclGetLastError(nullptr);
  for (size_t rank = 0; rank < comms.size(); ++rank) {
    int device = -1;
    EXPECT_NCCL(ncclCommCuDevice(comms[rank], &device));
    EXPECT_EQ(device, kDevices[rank]);
    EXPECT_NCCL(ncclCommDestroy(comms[rank]));
  }
}

TEST(VirtualRanks, RefuseWhatTheClusterHasNot) {
  std::array<ncclComm_t, 33> comms{};
  EXPECT_EQ(ncclCommInitAll(comms.data(), 33, nullptr), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("has 32: 0 to 31"));
  constexpr std::array kTwice = {4, 4};
  EXPECT_EQ(ncclCommInitAll(comms.data(), 2, kTwice.data()), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("both place 4"));
}

}  // namespace
}  // namespace tutti::conformance

int main(int argc, char** argv) {
  using tutti::conformance::ownFile;
  const std::string file = ownFile("virtual_cluster.yaml");
  FILE* out = std::fopen(file.c_str(), "w");
  if (out == nullptr) return 2;
  std::fputs(
      "nodes: [{count: 4, machine: {gpus: 8, sm: 90, nvswitch_links: 18, ports: 8, port_gbps: "
      "400}}]\nnetwork: {shape: rails, nodes_per_leaf: 4}\n",
      out);
  std::fclose(out);
  setenv("TUTTI_VIRTUAL_CLUSTER", file.c_str(), 1);
  setenv("TUTTI_VIRTUAL_TRACE", ownFile("virtual_trace.jsonl").c_str(), 1);
  testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  for (const char* name : {"virtual_cluster.yaml", "virtual_trace.jsonl"})
    std::remove(ownFile(name).c_str());
  return result;
}
