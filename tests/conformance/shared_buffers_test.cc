// Buffers from ncclMemAlloc: every collective, in place and not, somewhere inside an allocation, on
// all ranks or on some, between threads and between processes.
#include <algorithm>
#include <functional>

#include "processes.h"
#include "ranks.h"

namespace tutti::conformance {
namespace {

// Elements of int64: below, around and above what is worth a reference, and several pieces long.
const std::vector<size_t> kCounts = {3, 130, 4099, 40001};
constexpr size_t kLongCount = 650'001;  // of 8 bytes: both ends copy mapped memory, too

// A buffer with guard bands, of ncclMemAlloc or of the process's own, that does not begin at a
// page.
class Buffer {
 public:
  Buffer(size_t count, bool isShared) : count_(count), isShared_(isShared) {
    const size_t bytes = (count + 2 * kBand) * sizeof(int64_t);
    void* memory = nullptr;
    if (isShared) {
      EXPECT_NCCL(ncclMemAlloc(&memory, bytes));
    } else {
      memory = std::malloc(bytes);
    }
    all_ = static_cast<int64_t*>(memory);
    std::fill_n(all_, count + 2 * kBand, kGuard);
    std::fill_n(data(), count, kPoison);
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() {
    for (size_t i = 0; i < kBand; ++i) {
      EXPECT_EQ(all_[i], kGuard) << "written before the buffer";
      EXPECT_EQ(all_[kBand + count_ + i], kGuard) << "written after the buffer";
    }
    if (isShared_) {
      EXPECT_NCCL(ncclMemFree(all_));
    } else {
      std::free(all_);
    }
  }
  int64_t* data() { return all_ + kBand; }
  int64_t& operator[](size_t at) { return data()[at]; }
  void fill(int rank, int round) {
    for (size_t i = 0; i < count_; ++i) data()[i] = valueOf(rank + 31 * round, i);
  }

  static constexpr int64_t kPoison = -77;

 private:
  static constexpr size_t kBand = 65;
  static constexpr int64_t kGuard = 113;
  size_t count_;
  bool isShared_;
  int64_t* all_;
};

// Which of a rank's buffers are shared.
struct Choice {
  bool input = true;
  bool output = true;
};
using Chooser = std::function<Choice(int rank)>;

struct Team {
  int rank;
  int size;
  ncclComm_t comm;
  Choice shared;
};

int64_t sumAt(const Team& team, size_t i, int round) {
  int64_t sum = 0;
  for (int r = 0; r < team.size; ++r) sum += valueOf(r + 31 * round, i);
  return sum;
}

// Several rounds over the same buffers: the first ones announce, the later ones refer. What a rank
// writes right after a call must not reach a peer that still reads.
constexpr int kRounds = 3;

void allReduce(const Team& team, size_t count, bool inPlace) {
  Buffer input(count, team.shared.input);
  Buffer output(count, team.shared.output);
  int64_t* result = inPlace ? input.data() : output.data();
  for (int round = 0; round < kRounds; ++round) {
    input.fill(team.rank, round);
    EXPECT_NCCL(ncclAllReduce(input.data(), result, count, ncclInt64, ncclSum, team.comm, nullptr));
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(result[i], sumAt(team, i, round)) << "round " << round << " place " << i;
  }
}

void allGather(const Team& team, size_t count, bool inPlace) {
  const auto n = static_cast<size_t>(team.size);
  Buffer input(count, team.shared.input);
  Buffer output(count * n, team.shared.output);
  int64_t* own = inPlace ? output.data() + count * static_cast<size_t>(team.rank) : input.data();
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < count; ++i) own[i] = valueOf(team.rank + 31 * round, i);
    EXPECT_NCCL(ncclAllGather(own, output.data(), count, ncclInt64, team.comm, nullptr));
    for (size_t i = 0; i < count * n; ++i)
      ASSERT_EQ(output[i], valueOf(static_cast<int>(i / count) + 31 * round, i % count));
  }
}

void reduceScatter(const Team& team, size_t count, bool inPlace) {
  const auto n = static_cast<size_t>(team.size);
  Buffer input(count * n, team.shared.input);
  Buffer output(count, team.shared.output);
  const size_t first = count * static_cast<size_t>(team.rank);
  int64_t* result = inPlace ? input.data() + first : output.data();
  for (int round = 0; round < kRounds; ++round) {
    input.fill(team.rank, round);
    EXPECT_NCCL(
        ncclReduceScatter(input.data(), result, count, ncclInt64, ncclSum, team.comm, nullptr));
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(result[i], sumAt(team, first + i, round));
  }
}

void allToAll(const Team& team, size_t count, bool inPlace) {
  const auto n = static_cast<size_t>(team.size);
  Buffer input(count * n, team.shared.input);
  Buffer output(count * n, team.shared.output);
  int64_t* result = inPlace ? input.data() : output.data();
  for (int round = 0; round < kRounds; ++round) {
    input.fill(team.rank, round);
    EXPECT_NCCL(ncclAlltoAll(input.data(), result, count, ncclInt64, team.comm, nullptr));
    for (size_t i = 0; i < count * n; ++i) {
      ASSERT_EQ(result[i], valueOf(static_cast<int>(i / count) + 31 * round,
                                   count * static_cast<size_t>(team.rank) + i % count));
    }
  }
}

void rooted(const Team& team, size_t count, bool inPlace) {
  for (int root = 0; root < team.size; ++root) {
    Buffer input(count, team.shared.input);
    Buffer output(count, team.shared.output);
    int64_t* result = inPlace && team.rank == root ? input.data() : output.data();
    for (int round = 0; round < kRounds; ++round) {
      input.fill(team.rank, round);
      EXPECT_NCCL(
          ncclReduce(input.data(), result, count, ncclInt64, ncclSum, root, team.comm, nullptr));
      for (size_t i = 0; i < count && team.rank == root; ++i)
        ASSERT_EQ(result[i], sumAt(team, i, round));
      input.fill(team.rank, round);
      EXPECT_NCCL(ncclBroadcast(input.data(), result, count, ncclInt64, root, team.comm, nullptr));
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(result[i], valueOf(root + 31 * round, i));
    }
  }
}

void gatherAndScatter(const Team& team, size_t count, bool) {
  const auto n = static_cast<size_t>(team.size);
  for (int root = 0; root < team.size; ++root) {
    Buffer input(count, team.shared.input);
    Buffer all(count * n, team.shared.output);
    Buffer back(count, team.shared.output);
    for (int round = 0; round < kRounds; ++round) {
      input.fill(team.rank, round);
      EXPECT_NCCL(ncclGather(input.data(), all.data(), count, ncclInt64, root, team.comm, nullptr));
      for (size_t i = 0; i < count * n && team.rank == root; ++i)
        ASSERT_EQ(all[i], valueOf(static_cast<int>(i / count) + 31 * round, i % count));
      EXPECT_NCCL(ncclScatter(all.data(), back.data(), count, ncclInt64, root, team.comm, nullptr));
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(back[i], valueOf(team.rank + 31 * round, i));
    }
  }
}

void sendAndReceive(const Team& team, size_t count, bool) {
  const int next = (team.rank + 1) % team.size;
  const int previous = (team.rank + team.size - 1) % team.size;
  Buffer input(count, team.shared.input);
  Buffer output(count, team.shared.output);
  for (int round = 0; round < kRounds; ++round) {
    input.fill(team.rank, round);
    EXPECT_NCCL(ncclGroupStart());
    EXPECT_NCCL(ncclSend(input.data(), count, ncclInt64, next, team.comm, nullptr));
    EXPECT_NCCL(ncclRecv(output.data(), count, ncclInt64, previous, team.comm, nullptr));
    EXPECT_NCCL(ncclGroupEnd());
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(output[i], valueOf(previous + 31 * round, i));
  }
}

void average(const Team& team, size_t count, bool inPlace) {
  Buffer input(count, team.shared.input);
  Buffer output(count, team.shared.output);
  int64_t* result = inPlace ? input.data() : output.data();
  ncclRedOp_t twice;
  int64_t two = 2;
  EXPECT_NCCL(
      ncclRedOpCreatePreMulSum(&twice, &two, ncclInt64, ncclScalarHostImmediate, team.comm));
  for (int round = 0; round < kRounds; ++round) {
    input.fill(team.rank, round);
    EXPECT_NCCL(ncclAllReduce(input.data(), result, count, ncclInt64, ncclAvg, team.comm, nullptr));
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(result[i], sumAt(team, i, round) / team.size);
    input.fill(team.rank, round);
    EXPECT_NCCL(ncclAllReduce(input.data(), result, count, ncclInt64, twice, team.comm, nullptr));
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(result[i], 2 * sumAt(team, i, round));
  }
  EXPECT_NCCL(ncclRedOpDestroy(twice, team.comm));
}

void exerciseAll(const Team& team) {
  for (const auto exercise : {allReduce, allGather, reduceScatter, allToAll, rooted,
                              gatherAndScatter, sendAndReceive, average}) {
    for (const size_t count : kCounts) {
      for (const bool inPlace : {false, true}) {
        exercise(team, count, inPlace);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

Choice choiceFor(int variant, int rank) {
  switch (variant) {
    case 0: return {.input = true, .output = true};
    case 1: return {.input = rank % 2 == 0, .output = rank % 2 == 0};
    case 2: return {.input = rank != 0, .output = rank == 0};
    default: return {.input = false, .output = true};
  }
}
constexpr int kVariants = 4;

class SharedBuffers : public testing::TestWithParam<int> {};

TEST_P(SharedBuffers, OfThreadsHoldEveryCollectivesResult) {
  for (int variant = 0; variant < kVariants; ++variant) {
    runRanks(GetParam(), [&](int rank, ncclComm_t comm) {
      exerciseAll({rank, GetParam(), comm, choiceFor(variant, rank)});
    });
  }
}

ncclComm_t join(const ProcessRank& self) {
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess)
      << ncclGetLastError(nullptr);
  return comm;
}

TEST(SharedBufferRanks, DISABLED_ExerciseAll) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = join(self);
  for (int variant = 0; variant < kVariants; ++variant)
    exerciseAll({self.rank, self.count, comm, choiceFor(variant, self.rank)});
  const Team sharing{self.rank, self.count, comm, choiceFor(0, self.rank)};
  rooted(sharing, kLongCount, true);
  sendAndReceive(sharing, kLongCount, false);
  EXPECT_NCCL(ncclCommDestroy(comm));
}

// Else buffers as short-lived as these would be copied.
std::vector<std::string> mappingAtOnce(int) { return {"TUTTI_MAP_AFTER_BYTES=0"}; }

TEST_P(SharedBuffers, OfProcessesHoldEveryCollectivesResult) {
  EXPECT_EQ(runProcesses("SharedBufferRanks.DISABLED_ExerciseAll", GetParam(), mappingAtOnce),
            std::vector<int>(static_cast<size_t>(GetParam()), 0));
}

TEST_P(SharedBuffers, OfProcessesThatReadEachOtherHoldEveryCollectivesResult) {
  const auto settings = [](int) {
    return std::vector<std::string>{"TUTTI_MAP_AFTER_BYTES=0", "TUTTI_PROCESS_READ=1"};
  };
  EXPECT_EQ(runProcesses("SharedBufferRanks.DISABLED_ExerciseAll", GetParam(), settings),
            std::vector<int>(static_cast<size_t>(GetParam()), 0));
}

TEST_P(SharedBuffers, OfProcessesThatStorePastTheirCachesHoldEveryCollectivesResult) {
  const auto settings = [](int rank) {
    return std::vector<std::string>{
        rank == 1 ? "TUTTI_MAP_AFTER_BYTES=0" : "TUTTI_MAP_AFTER_BYTES=1073741824",
        "TUTTI_STREAM_FROM_BYTES=0"};
  };
  EXPECT_EQ(runProcesses("SharedBufferRanks.DISABLED_ExerciseAll", GetParam(), settings),
            std::vector<int>(static_cast<size_t>(GetParam()), 0));
}

INSTANTIATE_TEST_SUITE_P(Ranks, SharedBuffers, testing::Values(2, 3, 5),
                         testing::PrintToStringParamName());

TEST(SharedBufferRanks, DISABLED_Algorithms) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = join(self);
  const Team team{self.rank, self.count, comm, {}};
  for (const bool inPlace : {false, true}) {
    for (const size_t count : kCounts) {
      allReduce(team, count, inPlace);
      allGather(team, count, inPlace);
      reduceScatter(team, count, inPlace);
      rooted(team, count, inPlace);
    }
  }
  EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(SharedBuffersOfProcesses, HoldEveryAlgorithmsResult) {
  for (const char* algorithm :
       {"ring", "allreduce:tree;broadcast:tree;reduce:tree", "allreduce:pat;allgather:pat",
        "oneshot,direct", "allreduce:twoshot;broadcast:twoshot;reduce:twoshot",
        "allreduce:doubling"}) {
    const auto settings = [&](int) {
      return std::vector<std::string>{std::string("NCCL_ALGO=") + algorithm,
                                      "TUTTI_MAP_AFTER_BYTES=0"};
    };
    EXPECT_EQ(runProcesses("SharedBufferRanks.DISABLED_Algorithms", 4, settings),
              std::vector<int>(4, 0))
        << algorithm;
  }
}

}  // namespace
}  // namespace tutti::conformance
