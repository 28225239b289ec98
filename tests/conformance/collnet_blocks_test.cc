// All-gather and reduce-scatter over a network that gathers and scatters by itself, as
// collnet_test.cc has all-reduce.
#include <gmock/gmock.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "collnet_ranks.h"
#include "ranks.h"

namespace tutti::conformance {
namespace {

using testing::HasSubstr;

// ---- what started processes do ------------------------------------------------------------------

class BlockRank final : public NetworkRank {
 public:
  // All counts, in place and not.
  template <typename T>
  void allGathers(ncclDataType_t type) {
    for (const size_t count : kCounts) {
      for (const bool inPlace : {false, true}) checkGather<T>(type, count, inPlace);
    }
  }
  template <typename T>
  void reduceScatters(ncclDataType_t type) {
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
      for (const size_t count : kCounts) {
        for (const bool inPlace : {false, true}) checkScatter<T>(type, op, count, inPlace);
      }
    }
  }
  // Several calls under way, among all-reduces in the same group of the network.
  void mixed() {
    const auto ranks = static_cast<size_t>(self_.count);
    std::vector<int64_t> gathered(3001 * ranks, -1), scattered(3001), sums(1000, self_.rank);
    const std::vector<int64_t> own(3001, self_.rank), all(3001 * ranks, 7);
    for (int round = 0; round < 3; ++round) {
      EXPECT_NCCL(ncclGroupStart());
      EXPECT_NCCL(ncclAllGather(own.data(), gathered.data(), 3001, ncclInt64, comm_, nullptr));
      EXPECT_NCCL(ncclReduceScatter(all.data(), scattered.data(), 3001, ncclInt64, ncclSum, comm_,
                                    nullptr));
      EXPECT_NCCL(
          ncclAllReduce(sums.data(), sums.data(), 1000, ncclInt64, ncclMax, comm_, nullptr));
      EXPECT_NCCL(ncclGroupEnd());
      for (size_t i = 0; i < gathered.size(); ++i)
        ASSERT_EQ(gathered[i], static_cast<int64_t>(i / 3001)) << i;
      for (const int64_t value : scattered) ASSERT_EQ(value, 7 * self_.count);
      for (const int64_t value : sums) ASSERT_EQ(value, self_.count - 1);
    }
  }
  ncclResult_t gatherUntilItFails(int most) {
    std::vector<float> own(50'000, 1), all(50'000 * static_cast<size_t>(self_.count));
    for (int i = 0; i < most; ++i) {
      const ncclResult_t result =
          ncclAllGather(own.data(), all.data(), own.size(), ncclFloat, comm_, nullptr);
      if (result != ncclSuccess) return result;
    }
    return ncclSuccess;
  }
  ncclResult_t scatterUntilItFails(int most) {
    std::vector<float> own(50'000), all(50'000 * static_cast<size_t>(self_.count), 1);
    for (int i = 0; i < most; ++i) {
      const ncclResult_t result =
          ncclReduceScatter(all.data(), own.data(), own.size(), ncclFloat, ncclSum, comm_, nullptr);
      if (result != ncclSuccess) return result;
      EXPECT_EQ(own.back(), static_cast<float>(self_.count));
    }
    return ncclSuccess;
  }

 private:
  static constexpr size_t kCounts[] = {0, 1, 17, 4099, 200'003};

  template <typename T>
  static T valueAt(int rank, size_t i) {
    return static_cast<T>((rank * 31 + static_cast<int>(i % 1009) * 7) % 3 + 1);
  }
  template <typename T>
  T foldAt(size_t i, ncclRedOp_t op) const {
    return foldOf<T>(op, [i](int rank) { return valueAt<T>(rank, i); });
  }
  template <typename T>
  void checkGather(ncclDataType_t type, size_t count, bool inPlace) {
    Guarded<T> input(count), output(count * static_cast<size_t>(self_.count));
    const size_t begin = count * static_cast<size_t>(self_.rank);
    for (size_t i = 0; i < count; ++i)
      (inPlace ? output[begin + i] : input[i]) = valueAt<T>(self_.rank, i);
    const T* from = inPlace ? output.data() + begin : input.data();
    EXPECT_NCCL(ncclAllGather(from, output.data(), count, type, comm_, nullptr));
    for (size_t i = 0; i < output.size(); ++i)
      ASSERT_EQ(output[i], valueAt<T>(static_cast<int>(i / count), i % count))
          << "type " << type << ", " << count << " elements, at " << i;
    input.check();
    output.check();
  }
  template <typename T>
  void checkScatter(ncclDataType_t type, ncclRedOp_t op, size_t count, bool inPlace) {
    Guarded<T> input(count * static_cast<size_t>(self_.count)), output(count);
    const size_t begin = count * static_cast<size_t>(self_.rank);
    for (size_t i = 0; i < input.size(); ++i) input[i] = valueAt<T>(self_.rank, i);
    T* to = inPlace ? input.data() + begin : output.data();
    EXPECT_NCCL(ncclReduceScatter(input.data(), to, count, type, op, comm_, nullptr));
    for (size_t i = 0; i < count; ++i)
      ASSERT_NEAR(static_cast<double>(to[i]), static_cast<double>(foldAt<T>(begin + i, op)), 1e-5)
          << "type " << type << ", operation " << op << ", " << count << " elements, at " << i;
    input.check();
    output.check();
  }
};

TEST(BlockRanks, DISABLED_Everything) {
  BlockRank rank;
  rank.allGathers<uint8_t>(ncclUint8);
  rank.allGathers<float>(ncclFloat);
  rank.allGathers<int64_t>(ncclInt64);
  rank.reduceScatters<int32_t>(ncclInt32);
  rank.reduceScatters<int64_t>(ncclInt64);
  rank.reduceScatters<float>(ncclFloat);
  rank.reduceScatters<double>(ncclDouble);
  rank.mixed();
}

TEST(BlockRanks, DISABLED_Some) {
  BlockRank rank;
  rank.allGathers<float>(ncclFloat);
  rank.reduceScatters<float>(ncclFloat);
}

// TEST_GATHERS: 1 or 0.
auto callsOf(BlockRank& rank) {
  return [&rank, gathers = std::string(std::getenv("TEST_GATHERS")) == "1"](int most) {
    return gathers ? rank.gatherUntilItFails(most) : rank.scatterUntilItFails(most);
  };
}

TEST(BlockRanks, DISABLED_ThatFail) {
  BlockRank rank;
  expectFailure(callsOf(rank));
}

TEST(BlockRanks, DISABLED_ThatARankDiesIn) {
  BlockRank rank;
  expectDeathOfRankOne(rank, callsOf(rank));
}

TEST(BlockRanks, DISABLED_ForcedWhereThereIsNone) {
  BlockRank rank;
  std::vector<float> values(static_cast<size_t>(rank.self().count));
  EXPECT_EQ(ncclAllGather(values.data(), values.data(), 1, ncclFloat, rank.comm(), nullptr),
            ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(std::getenv("TEST_MESSAGE")));
}

constexpr const char* kEverything = "BlockRanks.DISABLED_Everything";
constexpr const char* kSome = "BlockRanks.DISABLED_Some";
constexpr const char* kFailing = "BlockRanks.DISABLED_ThatFail";
constexpr const char* kForced =
    "NCCL_ALGO=allgather:collnetdirect;reducescatter:collnetdirect;allreduce:collnetdirect";

// With another way each.
constexpr const char* kPreferred =
    "NCCL_ALGO=allgather:collnetdirect,ring;reducescatter:collnetdirect,ring";

// ---- that it is right -----------------------------------------------------------------------

class CollnetBlocks : public testing::TestWithParam<std::string> {};

TEST_P(CollnetBlocks, AreRightAndGoThroughTheNetwork) {
  const ReducerProcess reducer;
  const std::string report = temporary("collnet_report");
  const Outcome outcome = run(kEverything, GetParam(),
                              reducer.settings(11, {kForced, "FAKE_COLLNET_REPORT=" + report}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  const auto uses = usesIn(report);
  ASSERT_FALSE(uses.empty()) << outcome.log;
  EXPECT_GT(uses.at(0).gathers, 100u);
  EXPECT_GT(uses.at(0).scatters, 100u);
  EXPECT_GT(uses.at(0).reductions, 2u);
}

INSTANTIATE_TEST_SUITE_P(Layouts, CollnetBlocks,
                         testing::Values("01", "0011", "0101", "0123", "001122", "000111"),
                         [](const auto& layout) { return "h" + layout.param; });

TEST(CollnetBlocksOf, EachVersionThatHasThemAreUsed) {
  for (int version = 8; version <= 11; ++version) {
    const ReducerProcess reducer;
    const Outcome outcome = run(kSome, "01", reducer.settings(version, {kForced}));
    EXPECT_TRUE(outcome.isGood()) << version << '\n' << outcome.log;
    EXPECT_THAT(outcome.log, HasSubstr("version " + std::to_string(version))) << outcome.log;
  }
}

TEST(CollnetBlocksOf, SeveralAdaptersHaveAHeadForEach) {
  const ReducerProcess reducer;
  const std::string report = temporary("collnet_report");
  const Outcome outcome =
      run(kSome, "0011", reducer.settings(10, {kForced, "FAKE_COLLNET_REPORT=" + report}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  const auto uses = usesIn(report);
  ASSERT_EQ(uses.size(), 2u) << outcome.log;
  EXPECT_GT(uses.at(1).gathers, 20u);
  EXPECT_GT(uses.at(1).scatters, 20u);
}

TEST(CollnetBlocksOf, NetworksThatTakeNothingAtOnceOrShortPiecesAreAskedAgain) {
  for (const std::string order : {"slow", "short"}) {
    const ReducerProcess reducer;
    const Outcome outcome =
        run(kSome, "0011", reducer.settings(9, {kForced, "FAKE_COLLNET=" + order}));
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
  }
}

// ---- where they cannot go there ---------------------------------------------------------------

TEST(CollnetBlocksOf, NetworksThatReduceOnlyOnOneRankGoTheOtherWays) {
  const ReducerProcess reducer;
  const std::string report = temporary("collnet_report");
  const Outcome outcome =
      run(kSome, "01", reducer.settings(11, {kPreferred, "FAKE_COLLNET_REPORT=" + report}),
          {"NCCL_NET_PLUGIN=" TUTTI_FAKE_COLLNETS "/libnccl-collnet-fake7.so"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(usesIn(report)[0].gathers, 0u) << outcome.log;
}

TEST(CollnetBlocksOf, WhereTheyAreForcedAndMissingTheReasonIsTold) {
  struct Case {
    std::string hosts;
    int version;
    std::string reason;
  };
  for (const Case& each :
       {Case{"01", 7, "no network reduces: FakeSwitch has no AllGather on some rank"},
        Case{"001", 11, "no network reduces: hosts do not hold as many ranks each"}}) {
    const ReducerProcess reducer;
    const Outcome outcome =
        run("BlockRanks.DISABLED_ForcedWhereThereIsNone", each.hosts,
            reducer.settings(each.version, {kForced, "TEST_MESSAGE=" + each.reason}));
    EXPECT_TRUE(outcome.isGood()) << outcome.log;
  }
}

TEST(CollnetBlocksOf, UnevenHostsGoTheOtherWays) {
  const ReducerProcess reducer;
  const std::string report = temporary("collnet_report");
  const Outcome outcome =
      run(kSome, "001", reducer.settings(11, {kPreferred, "FAKE_COLLNET_REPORT=" + report}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(usesIn(report)[0].gathers, 0u) << outcome.log;
}

// ---- that it fails well ---------------------------------------------------------------------

class CollnetBlocksThatFail : public testing::TestWithParam<bool> {
 protected:
  static Settings with(const std::string& message, const Settings& more) {
    Settings all = {kForced, std::string("TEST_GATHERS=") + (GetParam() ? "1" : "0"),
                    "TEST_MESSAGE=" + message, "TUTTI_TIMEOUT_MS=5000"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Collectives, CollnetBlocksThatFail, testing::Bool(),
                         [](const auto& gathers) { return gathers.param ? "gather" : "scatter"; });

TEST_P(CollnetBlocksThatFail, EndTheCallsOfAllRanks) {
  const std::string name = GetParam() ? "iallgather" : "ireducescatter";
  for (const auto& [order, reason] : std::vector<std::pair<std::string, std::string>>{
           {"fail-reduce 20", name + " returned 2|test returned"},
           {"fail-test 40", "test returned"}}) {
    const ReducerProcess reducer;
    const Outcome outcome =
        run(kFailing, "0011", reducer.settings(11, with(reason, {"FAKE_COLLNET=" + order})));
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
  }
}

TEST_P(CollnetBlocksThatFail, WithTheirReducerAreErrors) {
  const ReducerProcess reducer({"30"});
  const Outcome outcome =
      run(kFailing, "0011", reducer.settings(11, with("FakeSwitch: test returned 6", {})));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

TEST_P(CollnetBlocksThatFail, WhileTheirReducerStandsStillAreErrors) {
  const ReducerProcess reducer({"30", "stop"});
  const Outcome outcome =
      run(kFailing, "0011",
          reducer.settings(11, with("collective network FakeSwitch owes rank . a result", {})));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

TEST_P(CollnetBlocksThatFail, WithARankNameIt) {
  const ReducerProcess reducer;
  const Outcome outcome = run("BlockRanks.DISABLED_ThatARankDiesIn", "0011",
                              reducer.settings(11, with("", {"FAKE_COLLNET_DEVICES=1"})));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

}  // namespace
}  // namespace tutti::conformance
