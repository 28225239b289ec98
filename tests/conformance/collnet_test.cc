// All-reduce over a network that reduces by itself: a collective-network plug-in (tests/fakes), for
// which another process does the reducing, between processes that NCCL_HOSTID puts on hosts of
// their own.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "../../src/kernels/cpu/float_formats.h"
#include "collnet_ranks.h"
#include "ranks.h"

namespace tutti::conformance {
namespace {

using testing::HasSubstr;

// An element of a format that C++ has no type for.
template <typename Format>
class Coded {
 public:
  Coded() = default;
  template <typename Number>
  constexpr explicit Coded(Number value)
      : code_(static_cast<typename Format::Bits>(
            kernels::cpu::narrowLanes<Format, uint32_t>(static_cast<float>(value)))) {}
  explicit operator double() const {
    return kernels::cpu::widenLanes<Format, float>(uint32_t{code_});
  }
  friend Coded operator+(Coded a, Coded b) { return Coded(double{a} + double{b}); }
  friend Coded operator*(Coded a, Coded b) { return Coded(double{a} * double{b}); }
  friend Coded operator/(Coded a, Coded b) { return Coded(double{a} / double{b}); }
  friend bool operator<(Coded a, Coded b) { return double{a} < double{b}; }
  bool operator==(const Coded&) const = default;

 private:
  typename Format::Bits code_{};
};

// ---- what started processes do ------------------------------------------------------------------

class ReducingRank final : public NetworkRank {
 public:
  template <typename T>
  void allTypesOps(ncclDataType_t type) {
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
      for (const size_t count : {size_t{1}, size_t{17}, size_t{4099}, size_t{200'003}}) {
        for (const bool inPlace : {false, true}) check<T>(type, op, count, inPlace);
      }
    }
  }
  void scaledSum() {
    ncclRedOp_t op;
    float factor = static_cast<float>(self_.rank + 1);
    EXPECT_NCCL(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate, comm_));
    Guarded<float> values(1000);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7);
    EXPECT_NCCL(ncclAllReduce(values.data(), values.data(), 1000, ncclFloat, op, comm_, nullptr));
    const auto factors = static_cast<float>(self_.count * (self_.count + 1) / 2);
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], static_cast<float>(i % 7) * factors) << i;
    EXPECT_NCCL(ncclRedOpDestroy(op, comm_));
  }
  void group() {
    std::vector<std::vector<int64_t>> buffers(8, std::vector<int64_t>(3001, self_.rank + 1));
    EXPECT_NCCL(ncclGroupStart());
    for (auto& buffer : buffers)
      EXPECT_NCCL(ncclAllReduce(buffer.data(), buffer.data(), buffer.size(), ncclInt64, ncclSum,
                                comm_, nullptr));
    EXPECT_NCCL(ncclGroupEnd());
    for (const auto& buffer : buffers) {
      for (const int64_t value : buffer) ASSERT_EQ(value, self_.count * (self_.count + 1) / 2);
    }
  }
  // The child's hosts have fewer ranks each, its groups are its own.
  void split() {
    ncclComm_t child = nullptr;
    EXPECT_NCCL(ncclCommSplit(comm_, self_.rank % 2, 0, &child, nullptr));
    int count = 0;
    EXPECT_NCCL(ncclCommCount(child, &count));
    std::vector<int32_t> values(5000, 1);
    EXPECT_NCCL(ncclAllReduce(values.data(), values.data(), values.size(), ncclInt32, ncclSum,
                              child, nullptr));
    for (const int32_t value : values) ASSERT_EQ(value, count);
    EXPECT_NCCL(ncclCommDestroy(child));
  }
  ncclResult_t sumUntilItFails(int most) {
    std::vector<float> values(100'000);
    for (int i = 0; i < most; ++i) {
      std::fill(values.begin(), values.end(), 1.0F);
      const ncclResult_t result = ncclAllReduce(values.data(), values.data(), values.size(),
                                                ncclFloat, ncclSum, comm_, nullptr);
      if (result != ncclSuccess) return result;
      EXPECT_EQ(values.back(), static_cast<float>(self_.count));
    }
    return ncclSuccess;
  }

 private:
  template <typename T>
  T valueAt(int rank, size_t i, ncclRedOp_t op) const {
    const int64_t value = valueOf(rank, i);
    // Sums and products stay exact.
    if (op == ncclProd) return static_cast<T>(value % 2 + 1);
    return static_cast<T>(sizeof(T) == 1 ? value % 2 : value % 13 + 1);
  }
  template <typename T>
  T wanted(size_t i, ncclRedOp_t op) const {
    return foldOf<T>(op, [this, i, op](int rank) { return valueAt<T>(rank, i, op); });
  }
  template <typename T>
  void check(ncclDataType_t type, ncclRedOp_t op, size_t count, bool inPlace) {
    Guarded<T> input(count), output(count);
    for (size_t i = 0; i < count; ++i) input[i] = valueAt<T>(self_.rank, i, op);
    Guarded<T>& result = inPlace ? input : output;
    EXPECT_NCCL(ncclAllReduce(input.data(), result.data(), count, type, op, comm_, nullptr));
    for (size_t i = 0; i < count; ++i) {
      ASSERT_NEAR(static_cast<double>(result[i]), static_cast<double>(wanted<T>(i, op)), 1e-5)
          << "type " << type << ", operation " << op << ", " << count << " elements, at " << i;
    }
    input.check();
    output.check();
  }
};

TEST(CollnetRanks, DISABLED_AllReduceEverything) {
  ReducingRank rank;
  rank.allTypesOps<uint32_t>(ncclUint32);
  rank.allTypesOps<int32_t>(ncclInt32);
  rank.allTypesOps<int64_t>(ncclInt64);
  rank.allTypesOps<float>(ncclFloat);
  rank.allTypesOps<double>(ncclDouble);
  rank.allTypesOps<Coded<kernels::cpu::Float16>>(ncclFloat16);
  rank.allTypesOps<Coded<kernels::cpu::Bfloat16>>(ncclBfloat16);
  rank.allTypesOps<Coded<kernels::cpu::Float8E4M3>>(ncclFloat8e4m3);
  rank.allTypesOps<Coded<kernels::cpu::Float8E5M2>>(ncclFloat8e5m2);
  rank.scaledSum();
  rank.group();
  rank.split();
  rank.group();
}

TEST(CollnetRanks, DISABLED_SumsAndProducts) {
  ReducingRank rank;
  rank.allTypesOps<float>(ncclFloat);
  rank.allTypesOps<int32_t>(ncclInt32);
}

TEST(CollnetRanks, DISABLED_SumsThatFail) {
  ReducingRank rank;
  expectFailure([&rank](int most) { return rank.sumUntilItFails(most); });
}

TEST(CollnetRanks, DISABLED_SumsThatARankDiesIn) {
  ReducingRank rank;
  expectDeathOfRankOne(rank, [&rank](int most) { return rank.sumUntilItFails(most); });
}

TEST(CollnetRanks, DISABLED_ForcedWhereThereIsNone) {
  ReducingRank rank;
  float value = 1;
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, rank.comm(), nullptr),
            ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(std::getenv("TEST_MESSAGE")));
}

constexpr const char* kEverything = "CollnetRanks.DISABLED_AllReduceEverything";
constexpr const char* kSums = "CollnetRanks.DISABLED_SumsAndProducts";
constexpr const char* kFailingSums = "CollnetRanks.DISABLED_SumsThatFail";
constexpr const char* kChain = "NCCL_ALGO=allreduce:collnetchain;ring,twoshot,direct,pairwise";
constexpr const char* kDirect = "NCCL_ALGO=allreduce:collnetdirect;ring,twoshot,direct,pairwise";

// ---- that it is right -----------------------------------------------------------------------

// Hosts of ranks, as in hosts_test.cc, and the algorithm.
class Collnet : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Collnet, AllReducesAreRightAndGoThroughTheNetwork) {
  const auto& [hosts, algorithm] = GetParam();
  const ReducerProcess reducer;
  const std::string report = temporary("collnet_report");
  const Outcome outcome = run(kEverything, hosts,
                              reducer.settings(11, {algorithm == "chain" ? kChain : kDirect,
                                                    "FAKE_COLLNET_REPORT=" + report}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_GE(outcome.count("FakeSwitch reduces between"), hosts.size()) << outcome.log;
  const auto uses = usesIn(report);
  ASSERT_FALSE(uses.empty()) << outcome.log;
  EXPECT_GT(uses.at(0).reductions, 100u);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Collnet,
                         testing::Combine(testing::Values("01", "0011", "0110", "00112", "0123"),
                                          testing::Values("chain", "direct")),
                         [](const auto& layout) {
                           return "h" + std::get<0>(layout.param) + "_" + std::get<1>(layout.param);
                         });

TEST(CollnetPlugin, OfEachVersionIsUsed) {
  for (int version = 6; version <= 11; ++version) {
    const ReducerProcess reducer;
    const Outcome outcome = run(kSums, "01", reducer.settings(version, {kChain}));
    EXPECT_TRUE(outcome.isGood()) << version << '\n' << outcome.log;
    EXPECT_THAT(outcome.log, HasSubstr("version " + std::to_string(version))) << outcome.log;
  }
}

TEST(CollnetPlugin, WithSeveralAdaptersHasAHeadForEach) {
  const ReducerProcess reducer;
  const std::string report = temporary("collnet_report");
  const Outcome outcome =
      run(kSums, "0011", reducer.settings(10, {kDirect, "FAKE_COLLNET_REPORT=" + report}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  const auto uses = usesIn(report);
  ASSERT_EQ(uses.size(), 2u) << outcome.log;
  EXPECT_EQ(uses.at(1).members, 2);
  EXPECT_GT(uses.at(1).reductions, 50u);
}

TEST(CollnetPlugin, ThatTakesNothingAtOnceOrShortPiecesIsAskedAgain) {
  for (const std::string order : {"slow", "short"}) {
    const ReducerProcess reducer;
    const Outcome outcome =
        run(kSums, "011", reducer.settings(9, {kDirect, "FAKE_COLLNET=" + order}));
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
  }
}

// By its prices: a long vector crosses once, where a ring's crosses nearly twice.
TEST(CollnetPlugin, IsAmongTheChoicesWhereItIsEnabled) {
  const ReducerProcess reducer;
  const Outcome outcome = run(kSums, "0123", reducer.settings(11));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_THAT(outcome.log, testing::ContainsRegex("-> collnet(chain|direct)")) << outcome.log;
}

TEST(CollnetPlugin, IsLeftAloneWhereItIsNotEnabled) {
  const ReducerProcess reducer;
  const Outcome outcome = run(kSums, "01", reducer.settings(11, {"NCCL_COLLNET_ENABLE=0"}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("FakeSwitch reduces"), 0u) << outcome.log;
  EXPECT_EQ(outcome.count("no network reduces"), 0u) << outcome.log;
}

TEST(CollnetPlugin, DoesNotGetWhatItCannotReduce) {
  const ReducerProcess reducer;
  const Outcome outcome = run(kSums, "01",
                              reducer.settings(11, {"NCCL_ALGO=allreduce:collnetchain,ring;ring",
                                                    "FAKE_COLLNET=no-floats"}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_THAT(outcome.log, testing::ContainsRegex("of float -> ring")) << outcome.log;
  EXPECT_THAT(outcome.log, testing::Not(testing::ContainsRegex("of float -> collnet")));
}

// ---- that it fails well ---------------------------------------------------------------------

TEST(CollnetPlugin, ThatFailsAtTheStartIsToldAndTheOthersTakeItsPlace) {
  for (const auto& [order, reason] : std::vector<std::pair<std::string, std::string>>{
           {"fail-init", "rank 0 has none: collective network FakeSwitch: init returned 2"},
           {"no-devices", "it has no adapter for memory of the host (0 adapters)"},
           {"fail-listen", "collective network FakeSwitch: listen returned 2"},
           {"fail-connect", "collective network FakeSwitch: connect returned 2"},
           {"never-connect", "its members did not connect within 2000 ms"}}) {
    const ReducerProcess reducer;
    const Outcome outcome =
        run(kSums, "01", reducer.settings(10, {"FAKE_COLLNET=" + order, "TUTTI_TIMEOUT_MS=4000"}));
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
    EXPECT_EQ(outcome.count("no network reduces between the hosts"), 1u) << outcome.log;
    EXPECT_THAT(outcome.log, HasSubstr(reason)) << order;
  }
}

TEST(CollnetPlugin, ThatHangsAtTheStartIsLeftBehindAndTheOthersTakeItsPlace) {
  for (const auto& [call, what] : std::vector<std::pair<std::string, std::string>>{
           {"init", "init"}, {"devices", "listing its devices"}, {"support", "reduceSupport"}}) {
    const ReducerProcess reducer;
    const Outcome outcome = run(
        kSums, "01", reducer.settings(10, {"FAKE_COLLNET=hang-" + call, "TUTTI_TIMEOUT_MS=4000"}));
    EXPECT_TRUE(outcome.isGood()) << call << '\n' << outcome.log;
    const std::string told = "collective network FakeSwitch has not returned from " + what +
                             " within 2000 ms (see TUTTI_TIMEOUT_MS)";
    EXPECT_GE(outcome.count("WARN " + told), 2u) << outcome.log;
    EXPECT_THAT(outcome.log, HasSubstr("no network reduces between the hosts"));
    EXPECT_THAT(outcome.log, HasSubstr("rank 0 has none: " + told));
  }
}

TEST(CollnetPlugin, ThatHangsAsMembersMeetIsLeftBehindAndTheOthersTakeItsPlace) {
  for (const std::string call : {"listen", "connect"}) {
    const ReducerProcess reducer;
    // On rank 0 alone: its group's other members wait for it.
    const Outcome outcome = run(kSums, "011", reducer.settings(11, {"TUTTI_TIMEOUT_MS=4000"}),
                                {"FAKE_COLLNET=hang-" + call});
    EXPECT_TRUE(outcome.isGood()) << call << '\n' << outcome.log;
    EXPECT_THAT(outcome.log, HasSubstr("collective network FakeSwitch has not returned from " +
                                       call + " within 2500 ms (see TUTTI_TIMEOUT_MS)"));
    EXPECT_THAT(outcome.log, HasSubstr("no network reduces between the hosts"));
  }
}

TEST(CollnetPlugin, ThatHangsAsAListenerOrGroupClosesIsLeftBehind) {
  for (const auto& [order, call] : std::vector<std::pair<std::string, std::string>>{
           {"unlisten", "closeListen"}, {"release", "deregMr"}, {"close", "closeColl"}}) {
    const ReducerProcess reducer;
    const Outcome outcome =
        run(kSums, "01", reducer.settings(11, {kChain, "FAKE_COLLNET=hang-" + order}));
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
    EXPECT_THAT(outcome.log, HasSubstr("collective network FakeSwitch has not returned from " +
                                       call + ": it is left behind"));
  }
}

TEST(CollnetPlugin, OfSomeRanksOnlyIsNotUsed) {
  const ReducerProcess reducer;
  // Rank 0 has no such file, or does not want it.
  for (const auto& [setting, reason] : std::vector<std::pair<std::string, std::string>>{
           {"NCCL_NET_PLUGIN=none", "rank 0 has none: NCCL_NET_PLUGIN=none names no plug-in"},
           {"NCCL_COLLNET_ENABLE=0", "NCCL_COLLNET_ENABLE is not set on rank 0"}}) {
    const Outcome outcome = run(kSums, "011", reducer.settings(11), {setting});
    EXPECT_TRUE(outcome.isGood()) << outcome.log;
    EXPECT_THAT(outcome.log, HasSubstr(reason));
    EXPECT_EQ(outcome.count("-> collnet"), 0u) << outcome.log;
  }
}

TEST(CollnetPlugin, ThatIsForcedAndMissingIsAnError) {
  const ReducerProcess reducer;
  const Outcome outcome =
      run("CollnetRanks.DISABLED_ForcedWhereThereIsNone", "01",
          reducer.settings(11, {"NCCL_ALGO=CollnetChain", "FAKE_COLLNET=no-devices",
                                "TEST_MESSAGE=no network reduces: rank 0 has none"}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

TEST(CollnetPlugin, ThatFailsLaterEndsTheCallsOfAllRanks) {
  for (const auto& [order, reason] : std::vector<std::pair<std::string, std::string>>{
           {"fail-reduce 20", "iallreduce returned 2|test returned"},
           {"fail-test 40", "test returned"}}) {
    const ReducerProcess reducer;
    const Outcome outcome =
        run(kFailingSums, "0011",
            reducer.settings(11, {kChain, "FAKE_COLLNET=" + order, "TUTTI_TIMEOUT_MS=5000",
                                  "TEST_MESSAGE=" + reason}));
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
  }
}

// The call that does not return is named on its own rank and on those that wait for that one.
TEST(CollnetPlugin, ThatHangsInACallEndsTheCallsOfAllRanks) {
  for (const auto& [order, call] :
       std::vector<std::pair<std::string, std::string>>{{"hang-register", "regMr"},
                                                        {"hang-reduce 20", "iallreduce"},
                                                        {"hang-test 40", "test"}}) {
    const ReducerProcess reducer;
    const Outcome outcome =
        run(kFailingSums, "0011",
            reducer.settings(
                11, {kChain, "TUTTI_TIMEOUT_MS=3000",
                     "TEST_MESSAGE=collective network FakeSwitch has not returned from " + call}),
            {"FAKE_COLLNET=" + order});
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
  }
}

TEST(CollnetPlugin, WhoseReducerDiesEndsTheCallsOfAllRanks) {
  const ReducerProcess reducer({"30"});
  const Outcome outcome = run(kFailingSums, "0012",
                              reducer.settings(11, {kDirect, "TUTTI_TIMEOUT_MS=5000",
                                                    "TEST_MESSAGE=FakeSwitch: test returned 6"}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

TEST(CollnetPlugin, WhoseReducerStandsStillEndsTheCallsOfAllRanks) {
  const ReducerProcess reducer({"30", "stop"});
  const Outcome outcome = run(
      kFailingSums, "0012",
      reducer.settings(11, {kChain, "TUTTI_TIMEOUT_MS=3000",
                            "TEST_MESSAGE=collective network FakeSwitch owes rank . a result"}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

TEST(CollnetPlugin, ARankThatDiesIsNamedOnAllHosts) {
  const ReducerProcess reducer;
  const Outcome outcome = run("CollnetRanks.DISABLED_SumsThatARankDiesIn", "0011",
                              reducer.settings(11, {kChain, "TUTTI_TIMEOUT_MS=5000"}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

}  // namespace
}  // namespace tutti::conformance
