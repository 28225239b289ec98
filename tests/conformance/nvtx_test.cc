// NVTX ranges as a tool sees them: by NVTX_INJECTION64_PATH, a library that writes down what it is
// told (tests/fakes/nvtx.c).
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <thread>

#include "network_ranks.h"

#ifndef TUTTI_FAKE_NVTX
#define TUTTI_FAKE_NVTX ""
#endif

namespace tutti::conformance {
namespace {

// Outlives the communicators: GPU ranks' calls go on after they return.
struct Buffers {
  explicit Buffers(int ranks)
      : input(1000 * static_cast<size_t>(ranks)), output(1000 * static_cast<size_t>(ranks)) {}
  std::vector<double> input, output;
};

// Each operation, with counts, types and numbers that tell them apart.
void callOperations(const ProcessRank& self, ncclComm_t comm, Buffers& buffers) {
  void* in = buffers.input.data();
  void* out = buffers.output.data();
  const auto good = [comm](ncclResult_t result) {
    EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(comm);
  };
  good(ncclAllReduce(in, out, 1000, ncclFloat, ncclSum, comm, nullptr));
  good(ncclAllReduce(in, in, 0, ncclDouble, ncclProd, comm, nullptr));
  good(ncclReduce(in, out, 7, ncclInt64, ncclMax, 1, comm, nullptr));
  good(ncclReduceScatter(in, out, 33, ncclHalf, ncclAvg, comm, nullptr));
  good(ncclAllGather(in, out, 5, ncclInt32, comm, nullptr));
  good(ncclBroadcast(in, out, 9, ncclUint8, 1, comm, nullptr));
  good(ncclBcast(in, 10, ncclUint64, 0, comm, nullptr));
  good(ncclAlltoAll(in, out, 11, ncclBfloat16, comm, nullptr));
  good(ncclGather(in, out, 3, ncclInt8, self.count - 1, comm, nullptr));
  good(ncclScatter(in, out, 4, ncclUint32, 0, comm, nullptr));
}

void callGroups(const ProcessRank& self, ncclComm_t comm, Buffers& buffers) {
  void* in = buffers.input.data();
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  const int next = (self.rank + 1) % self.count;
  const int before = (self.rank + self.count - 1) % self.count;
  EXPECT_EQ(ncclSend(in, 6, ncclFloat, next, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclRecv(buffers.output.data(), 6, ncclFloat, before, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  void* sums = buffers.output.data() + 100;
  EXPECT_EQ(ncclAllReduce(in, sums, 8, ncclFloat, ncclMin, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(comm);
}

// What the tool must also see: calls that fail, children, memory, other threads.
void callOthers(const ProcessRank& self, ncclComm_t comm, Buffers& buffers) {
  void* in = buffers.input.data();
  float scalar = 2;
  ncclRedOp_t op;
  ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, comm),
            ncclSuccess);
  EXPECT_EQ(ncclAllReduce(in, in, 1, ncclFloat, op, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclSuccess);
  EXPECT_EQ(ncclBroadcast(in, in, 1, ncclFloat, 99, comm, nullptr), ncclInvalidArgument);
  const auto noType = static_cast<ncclDataType_t>(12);
  EXPECT_EQ(ncclAllGather(in, in, 2, noType, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclSend(in, 1, ncclFloat, 0, nullptr, nullptr), ncclInvalidArgument);
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclCommSplit(comm, 0, self.count - self.rank, &child, nullptr), ncclSuccess);
  EXPECT_EQ(ncclAllReduce(in, in, 1, ncclFloat, ncclSum, child, nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 12345), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
  std::thread([comm] {
    int count = 0;
    EXPECT_EQ(ncclCommCount(comm, &count), ncclSuccess);
  }).join();
}

TEST(WatchedRanks, DISABLED_Calls) {
  const ProcessRank self = thisProcess();
  Buffers buffers(self.count);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess)
      << ncclGetLastError(nullptr);
  callOperations(self, comm, buffers);
  callGroups(self, comm, buffers);
  callOthers(self, comm, buffers);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// Opening and closing a group's call is one range each; a call of a group has its own.
std::vector<std::string> expectedRanges(int rank, int count) {
  const auto own =
      "Rank=" + std::to_string(rank) + "|No. of ranks=" + std::to_string(count) + "|CUDA device=0";
  const std::string comm = " [tutti communicator call] {NCCL communicator ID=A|" + own + "}";
  const auto call = [&](const std::string& name, const std::string& schema,
                        const std::string& rest) {
    return name + " [tutti " + schema + "] {NCCL communicator ID=A|" + own +
           "|Message size [bytes]=" + rest + "}";
  };
  const auto to = [&](int step) { return std::to_string((rank + count + step) % count); };
  const auto last = std::to_string(count - 1);
  const std::string childRank = std::to_string(count - 1 - rank);
  const std::string child = "{NCCL communicator ID=B|Rank=" + childRank +
                            "|No. of ranks=" + std::to_string(count) + "|CUDA device=0";
  const std::string nobody =
      "ncclSend [tutti transfer] {NCCL communicator ID=0|Rank=0|No. of ranks=0|CUDA device=0|" +
      std::string("Message size [bytes]=4|Count=1|Data type=float32|Peer rank=0}");
  return {
      "ncclCommInitRank" + comm,
      call("ncclAllReduce", "reduction",
           "4000|Count=1000|Data type=float32|Reduction operation=Sum"),
      call("ncclAllReduce", "reduction", "0|Count=0|Data type=float64|Reduction operation=Product"),
      call("ncclReduce", "rooted reduction",
           "56|Count=7|Data type=int64|Reduction operation=Max|Root=1"),
      call("ncclReduceScatter", "reduction",
           "66|Count=33|Data type=float16|Reduction operation=Avg"),
      call("ncclAllGather", "collective", "20|Count=5|Data type=int32"),
      call("ncclBroadcast", "rooted collective", "9|Count=9|Data type=uint8|Root=1"),
      call("ncclBcast", "rooted collective", "80|Count=10|Data type=uint64|Root=0"),
      call("ncclAlltoAll", "collective", "22|Count=11|Data type=bfloat16"),
      call("ncclGather", "rooted collective", "3|Count=3|Data type=int8|Root=" + last),
      call("ncclScatter", "rooted collective", "16|Count=4|Data type=uint32|Root=0"),
      "ncclGroupStart",
      "ncclGroupStart",
      call("ncclSend", "transfer", "24|Count=6|Data type=float32|Peer rank=" + to(1)),
      call("ncclRecv", "transfer", "24|Count=6|Data type=float32|Peer rank=" + to(-1)),
      "ncclGroupEnd",
      call("ncclAllReduce", "reduction", "32|Count=8|Data type=float32|Reduction operation=Min"),
      "ncclGroupEnd",
      "ncclRedOpCreatePreMulSum" + comm,
      call("ncclAllReduce", "reduction", "4|Count=1|Data type=float32|Reduction operation=OP"),
      "ncclRedOpDestroy" + comm,
      call("ncclBroadcast", "rooted collective", "4|Count=1|Data type=float32|Root=99"),
      call("ncclAllGather", "collective", "0|Count=2|Data type=12"),
      nobody,
      "ncclCommSplit" + comm,
      "ncclAllReduce [tutti reduction] " + child +
          "|Message size [bytes]=4|Count=1|Data type=float32|Reduction operation=Sum}",
      "ncclCommDestroy [tutti communicator call] " + child + "}",
      "ncclMemAlloc [tutti memory] {Message size [bytes]=12345}",
      "ncclMemFree",
      "elsewhere ncclCommCount" + comm,
      "ncclCommDestroy" + comm};
}

// What one rank's tool was told.
struct Told {
  std::vector<std::string> ranges;      // communicators by letter, in order of appearance
  std::vector<std::string> ids;         // what the letters mean
  std::vector<std::string> registered;  // schemas and enumerations
};

class Ranges : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string_view(TUTTI_FAKE_NVTX).empty()) GTEST_SKIP() << "built without NVTX3's headers";
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // By rank, of those that a tool was loaded into.
  std::map<int, Told> watch(int count, const Settings& more = {}) const {
    const auto settings = [&](int rank) {
      Settings all = more;  // the first of a name counts
      all.insert(all.end(), {"NVTX_INJECTION64_PATH=" TUTTI_FAKE_NVTX, "NCCL_SOCKET_IFNAME=lo",
                             "FAKE_NVTX_FILE=" + folder_ + "/" + std::to_string(rank)});
      return all;
    };
    for (const int code : runProcesses("WatchedRanks.DISABLED_Calls", count, settings))
      EXPECT_EQ(code, 0);
    std::map<int, Told> told;
    for (const auto& file : std::filesystem::directory_iterator(folder_)) {
      const int rank = std::stoi(file.path().stem().string());
      EXPECT_TRUE(told.emplace(rank, read(file.path())).second);
      std::filesystem::remove(file.path());
    }
    return told;
  }

  static Told read(const std::filesystem::path& path) {
    Told told;
    std::ifstream file(path);
    std::string mainThread;
    std::map<std::string, bool> isOpen;  // by thread
    for (std::string line; std::getline(file, line);) {
      const std::string thread = line.substr(0, line.find(' '));
      std::string text = line.substr(thread.size() + 1);
      if (mainThread.empty()) mainThread = thread;
      if (text.starts_with("schema") || text.starts_with("enumeration")) {
        told.registered.push_back(text);
        continue;
      }
      const bool isPush = text.starts_with("push NCCL ");
      EXPECT_TRUE(isPush || text == "pop NCCL depth 0") << line;
      EXPECT_NE(std::exchange(isOpen[thread], isPush), isPush) << line;
      if (!isPush) continue;
      text = std::regex_replace(text.substr(10), std::regex(" depth 0"), "");
      std::smatch id;
      if (std::regex_search(text, id, std::regex("communicator ID=([1-9][0-9]*)"))) {
        auto found = std::ranges::find(told.ids, id.str(1));
        if (found == told.ids.end()) found = told.ids.insert(found, id.str(1));
        const std::string letter(1, static_cast<char>('A' + (found - told.ids.begin())));
        text.replace(static_cast<size_t>(id.position(1)), id.str(1).size(), letter);
      }
      text = std::regex_replace(text, std::regex("operation=([5-9]|[0-9]{2,})"), "operation=OP");
      told.ranges.push_back((thread == mainThread ? "" : "elsewhere ") + text);
    }
    for (const auto& [thread, open] : isOpen) EXPECT_FALSE(open) << thread;
    return told;
  }

  static void expectAll(const std::map<int, Told>& told, int count) {
    ASSERT_EQ(told.size(), static_cast<size_t>(count));
    for (const auto& [rank, one] : told) {
      EXPECT_EQ(one.ranges, expectedRanges(rank, count)) << "rank " << rank;
      EXPECT_EQ(one.ids, told.at(0).ids);
      EXPECT_EQ(one.ids.size(), 2u);
    }
  }

  const std::string folder_ = temporary("ranges");
};

TEST_F(Ranges, TellTheToolOfEachCallWithItsPayload) {
  for (const int count : {2, 4}) expectAll(watch(count), count);
}

TEST_F(Ranges, RegisterASchemaForEachKindOfCall) {
  const std::map<int, Told> told = watch(2);
  ASSERT_EQ(told.size(), 2u);
  const std::vector<std::string>& registered = told.at(0).registered;
  const std::set<std::string> different(registered.begin(), registered.end());
  EXPECT_EQ(registered.size(), 9u);
  EXPECT_EQ(different.size(), 9u);
  EXPECT_TRUE(different.contains("enumeration NCCL [ncclDataType_t] of 4 bytes"));
  EXPECT_TRUE(different.contains("enumeration NCCL [ncclRedOp_t] of 4 bytes"));
  EXPECT_TRUE(different.contains("schema NCCL [tutti transfer] of 48 bytes"));
}

// By the stand-in for the driver, whose memory is the host's and which runs no kernels.
TEST_F(Ranges, AreThoseOfGpuRanks) {
  const std::string fakes = TUTTI_FAKE_CUDA;
  if (!std::filesystem::exists(fakes + "/libcuda.so.1")) GTEST_SKIP() << "built without CUDA";
  expectAll(watch(2, {"LD_LIBRARY_PATH=" + fakes, "TUTTI_DEVICE=cuda", "NCCL_P2P_DISABLE=1"}), 2);
}

TEST_F(Ranges, GoWithoutPayloadsToAToolThatTakesNone) {
  for (const auto& [rank, told] : watch(2, {"FAKE_NVTX=bare"})) {
    std::vector<std::string> names = expectedRanges(rank, 2);
    for (std::string& name : names) name = name.substr(0, name.find(" ["));
    EXPECT_EQ(told.ranges, names);
    EXPECT_TRUE(told.registered.empty());
  }
}

TEST_F(Ranges, AreNotThereWhereTheSettingSaysSo) {
  EXPECT_TRUE(watch(2, {"NCCL_NVTX_DISABLE=1"}).empty());
  const std::string file = folder_ + ".conf";
  std::ofstream(file) << "NCCL_NVTX_DISABLE=1\n";
  EXPECT_TRUE(watch(2, {"NCCL_CONF_FILE=" + file}).empty());
  std::filesystem::remove(file);
}

// A tool that cannot be loaded is no reason to fail.
TEST_F(Ranges, AreNotThereWithoutATool) {
  EXPECT_TRUE(watch(2, {"NVTX_INJECTION64_PATH=/nowhere/libtool.so"}).empty());
}

}  // namespace
}  // namespace tutti::conformance
