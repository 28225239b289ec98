// Ranks that call different things: each of them gets ncclInvalidUsage with a table of who called
// what, from that call, the next one or, at the latest, ncclCommFinalize.
#include <barrier>
#include <functional>
#include <string>
#include <vector>

#include "ranks.h"

namespace tutti::conformance {
namespace {

using testing::ContainsRegex;

enum class Kind {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter
};

constexpr Kind kKinds[] = {Kind::kAllReduce, Kind::kReduce,        Kind::kBroadcast,
                           Kind::kAllGather, Kind::kReduceScatter, Kind::kAllToAll,
                           Kind::kGather,    Kind::kScatter};

std::string nameOf(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce: return "AllReduce";
    case Kind::kReduce: return "Reduce";
    case Kind::kBroadcast: return "Broadcast";
    case Kind::kAllGather: return "AllGather";
    case Kind::kReduceScatter: return "ReduceScatter";
    case Kind::kAllToAll: return "AlltoAll";
    case Kind::kGather: return "Gather";
    case Kind::kScatter: return "Scatter";
  }
  return "";
}

bool isReduction(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
}

bool hasRoot(Kind kind) {
  return kind == Kind::kReduce || kind == Kind::kBroadcast || kind == Kind::kGather ||
         kind == Kind::kScatter;
}

struct Call {
  Kind kind = Kind::kAllReduce;
  size_t count = 8;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = 0;
};

// One rank's memory, for any of the calls here.
class Buffers {
 public:
  Buffers(int rankCount, size_t count)
      : input_(static_cast<size_t>(rankCount) * count, 1.0),
        output_(static_cast<size_t>(rankCount) * count, -1.0) {}

  ncclResult_t run(const Call& call, ncclComm_t comm) {
    const void* in = input_.data();
    void* out = output_.data();
    const auto [kind, count, type, op, root] = call;
    switch (kind) {
      case Kind::kAllReduce: return ncclAllReduce(in, out, count, type, op, comm, nullptr);
      case Kind::kReduce: return ncclReduce(in, out, count, type, op, root, comm, nullptr);
      case Kind::kBroadcast: return ncclBroadcast(in, out, count, type, root, comm, nullptr);
      case Kind::kAllGather: return ncclAllGather(in, out, count, type, comm, nullptr);
      case Kind::kReduceScatter: return ncclReduceScatter(in, out, count, type, op, comm, nullptr);
      case Kind::kAllToAll: return ncclAlltoAll(in, out, count, type, comm, nullptr);
      case Kind::kGather: return ncclGather(in, out, count, type, root, comm, nullptr);
      case Kind::kScatter: return ncclScatter(in, out, count, type, root, comm, nullptr);
    }
    return ncclSuccess;
  }

 private:
  std::vector<double> input_;  // as wide as any type
  std::vector<double> output_;
};

// The calls' row in the table: where the type or the count differs, as there.
std::string rowOf(int rank, const Call& call) {
  return "\n +" + std::to_string(rank) + "  " + nameOf(call.kind) + " +" +
         std::to_string(call.count) + " ";
}

// The rank `other` makes another call than the rest, after some that agree. A rank is
// told in whichever call it is, so all have left those before one differs.
void expectATable(int rankCount, int other, const Call& call, const Call& different) {
  SCOPED_TRACE(nameOf(call.kind) + " of " + std::to_string(call.count) + " by " +
               std::to_string(rankCount) + " ranks, " + nameOf(different.kind) + " of " +
               std::to_string(different.count) + " by rank " + std::to_string(other));
  std::barrier<> haveAgreed(rankCount);
  std::barrier<> allHaveCalled(rankCount);
  runRanks(rankCount, [&](int rank, ncclComm_t comm) {
    const size_t most = std::max(call.count, different.count);
    Buffers buffers(rankCount, std::max<size_t>(most, 8));
    for (int i = 0; i < 2; ++i) EXPECT_NCCL(buffers.run({}, comm));
    haveAgreed.arrive_and_wait();
    ncclResult_t result = buffers.run(rank == other ? different : call, comm);
    for (int i = 0; i < 3 && result == ncclSuccess; ++i) result = buffers.run({}, comm);
    if (result != ncclSuccess) {
      EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
    }
    allHaveCalled.arrive_and_wait();
    if (result == ncclSuccess) result = ncclCommFinalize(comm);
    EXPECT_EQ(result, ncclInvalidUsage) << "rank " << rank;
    const std::string text = ncclGetLastError(nullptr);
    EXPECT_THAT(text, ContainsRegex("the ranks call different things as collective #3")) << rank;
    // The table is of the moment when it was found: the one, and one of the others.
    EXPECT_THAT(text, ContainsRegex(rowOf(other, different))) << rank;
    bool hasAnother = false;
    for (int each = 0; each < rankCount; ++each) {
      hasAnother |= each != other && testing::Matches(ContainsRegex(rowOf(each, call)))(text);
    }
    EXPECT_TRUE(hasAnother) << text;
    ncclResult_t pending = ncclSuccess;
    EXPECT_NCCL(ncclCommGetAsyncError(comm, &pending));
    EXPECT_EQ(pending, ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(comm), ContainsRegex("the ranks call different things"));
  });
}

// Every single way in which a call can differ from the others'.
std::vector<Call> othersThan(const Call& call) {
  std::vector<Call> calls;
  const auto add = [&](const std::function<void(Call&)>& change) {
    change(calls.emplace_back(call));
  };
  add([](Call& other) { other.count += 1; });
  add([](Call& other) { other.count = 0; });
  add([](Call& other) { other.count = 100'000; });
  add([](Call& other) { other.type = ncclInt32; });
  if (isReduction(call.kind)) add([](Call& other) { other.op = ncclMax; });
  if (hasRoot(call.kind)) add([](Call& other) { other.root = 1; });
  for (const Kind kind : kKinds) {
    if (kind != call.kind) add([kind](Call& other) { other.kind = kind; });
  }
  return calls;
}

TEST(Mismatch, OfOneRankIsATableOnEveryRank) {
  for (const Kind kind : kKinds) {
    for (const Call& different : othersThan({.kind = kind})) {
      for (const int other : {0, 1, 2}) expectATable(3, other, {.kind = kind}, different);
    }
  }
}

TEST(Mismatch, OfManyRanksAndLongVectors) {
  for (const int rankCount : {2, 5, 8}) {
    for (const Kind kind : kKinds) {
      const Call call{.kind = kind, .count = 50'000};
      Call different = call;
      different.type = ncclInt32;
      expectATable(rankCount, rankCount - 1, call, different);
      different = call;
      different.count -= 1;
      expectATable(rankCount, 0, call, different);
    }
  }
}

// A rank that only asks has the text, too.
TEST(Mismatch, IsToldToWhomPolls) {
  std::barrier<> haveAgreed(3);
  std::barrier<> haveFailed(3);
  runRanks(3, [&](int rank, ncclComm_t comm) {
    Buffers buffers(3, 8);
    EXPECT_NCCL(buffers.run({}, comm));
    haveAgreed.arrive_and_wait();
    if (rank > 0) {
      const ncclResult_t result = buffers.run({.count = rank == 1 ? size_t{8} : size_t{7}}, comm);
      EXPECT_EQ(result, ncclInvalidUsage);
    }
    haveFailed.arrive_and_wait();
    if (rank > 0) return;
    ncclResult_t pending = ncclSuccess;
    EXPECT_NCCL(ncclCommGetAsyncError(comm, &pending));
    EXPECT_EQ(pending, ncclInvalidUsage);
    for (const ncclComm_t asked : {comm, ncclComm_t{nullptr}})
      EXPECT_THAT(ncclGetLastError(asked), ContainsRegex("\n +2  AllReduce +7 ")) << asked;
  });
}

// Neither of them receives, so no message tells: what they called is compared at the end.
TEST(Mismatch, OfTwoRootsThatOnlySendIsFoundByFinalize) {
  std::barrier<> allHaveCalled(2);
  runRanks(2, [&](int rank, ncclComm_t comm) {
    Buffers buffers(2, 8);
    for (const int root : {0, 1})  // makes the links
      EXPECT_NCCL(buffers.run({.kind = Kind::kBroadcast, .root = root}, comm));
    EXPECT_NCCL(buffers.run({.kind = Kind::kBroadcast, .root = rank}, comm));
    allHaveCalled.arrive_and_wait();
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(nullptr), ContainsRegex("\n +1  Broadcast +8 +float +- +1"));
  });
}

}  // namespace
}  // namespace tutti::conformance
