#include "tools/perf_options.h"

#include <gtest/gtest.h>

#include "tools/perf_formulas.h"

namespace tutti::tools {
namespace {

TEST(PerfSizes, StepByFactorReachesTheLastSize) {
  PerfOptions options{.minBytes = 8, .maxBytes = 128, .stepFactor = 2};
  EXPECT_EQ(listSizes(options).value(), (std::vector<size_t>{8, 16, 32, 64, 128}));
}

TEST(PerfSizes, StepByFactorLeavesZero) {
  PerfOptions options{.minBytes = 0, .maxBytes = 8, .stepFactor = 4};
  EXPECT_EQ(listSizes(options).value(), (std::vector<size_t>{0, 1, 4}));
}

TEST(PerfSizes, StepByBytesStopsBelowTheLastSize) {
  PerfOptions options{.minBytes = 10, .maxBytes = 35, .stepBytes = 10};
  EXPECT_EQ(listSizes(options).value(), (std::vector<size_t>{10, 20, 30}));
}

TEST(PerfSizes, RefusesRangesThatAreEmptyOrEndless) {
  EXPECT_FALSE(listSizes({.minBytes = 2, .maxBytes = 1}).ok());
  EXPECT_FALSE(listSizes({.minBytes = 1, .maxBytes = 2, .stepBytes = 0}).ok());
  EXPECT_FALSE(listSizes({.minBytes = 0, .maxBytes = 1_GiB, .stepBytes = 1}).ok());
}

TEST(PerfNames, AllIsEveryTypeOnce) {
  EXPECT_EQ(parseTypes("all").value().size(), static_cast<size_t>(kDataTypeCount));
  EXPECT_EQ(parseOps("all").value().size(), static_cast<size_t>(kReduceOpCount));
}

TEST(PerfNames, ReadsListsAndOtherNames) {
  EXPECT_EQ(parseTypes("fp16,double").value(),
            (std::vector<DataType>{DataType::kFloat16, DataType::kFloat64}));
  EXPECT_EQ(parseOperation("all_reduce_perf").value(), Operation::kAllReduce);
  EXPECT_EQ(parseRoot("all").value(), kAllRoots);
}

TEST(PerfNames, RefusesUnknownNamesAndSaysWhichThereAre) {
  Result<std::vector<DataType>> types = parseTypes("float,quarter");
  ASSERT_FALSE(types.ok());
  EXPECT_NE(types.status().message().find("quarter"), std::string_view::npos);
  EXPECT_NE(types.status().message().find("bfloat16"), std::string_view::npos);
  EXPECT_FALSE(parseOps("sum,").ok());
  EXPECT_FALSE(parseOperation("allreduce").ok());
  EXPECT_FALSE(parseRoot("first").ok());
}

TEST(PerfOptionsCheck, RootMustBeARank) {
  PerfOptions options{.operation = Operation::kBroadcast, .root = 4};
  EXPECT_FALSE(checkOptions(options, 4).ok());
  EXPECT_TRUE(checkOptions(options, 5).ok());
}

// Counts and printed sizes for 4 ranks and 64 bytes of float: 16 elements, 4 a rank.
TEST(PerfShapes, SplitTheWholeVectorWhereTheCallDoes) {
  const auto shape = [](Operation operation) { return shapeOf(operation, 64, 4, 4, 2); };
  for (Operation whole :
       {Operation::kAllReduce, Operation::kBroadcast, Operation::kReduce, Operation::kSendRecv}) {
    EXPECT_EQ(shape(whole).paramCount, 16U) << name(whole);
    EXPECT_EQ(shape(whole).bufferCount, 16U) << name(whole);
  }
  for (Operation gathers : {Operation::kAllGather, Operation::kGather}) {
    EXPECT_EQ(shape(gathers).paramCount, 4U);
    EXPECT_EQ(shape(gathers).sendCount, 4U);
    EXPECT_EQ(shape(gathers).recvCount, 16U);
    EXPECT_EQ(shape(gathers).sendOffset, 8U);
  }
  for (Operation scatters : {Operation::kReduceScatter, Operation::kScatter}) {
    EXPECT_EQ(shape(scatters).sendCount, 16U);
    EXPECT_EQ(shape(scatters).recvCount, 4U);
    EXPECT_EQ(shape(scatters).recvOffset, 8U);
  }
  EXPECT_EQ(shape(Operation::kAllToAll).paramCount, 4U);
  EXPECT_EQ(shape(Operation::kAllToAll).recvCount, 16U);
}

TEST(PerfShapes, RoundDownToWhatAllRanksCanShare) {
  EXPECT_EQ(shapeOf(Operation::kAllGather, 8, 4, 3, 1).paramCount, 0U);
  EXPECT_EQ(shapeOf(Operation::kAllGather, 30, 4, 3, 1).bufferCount, 6U);
}

TEST(PerfBandwidth, BusFactorsAreThoseOfNcclTests) {
  const auto busFactor = [](Operation operation) {
    const Bandwidth bandwidth = bandwidthOf(operation, 4'000'000'000, 4, 2.0);
    EXPECT_DOUBLE_EQ(bandwidth.algorithm, 2.0);
    return bandwidth.bus / bandwidth.algorithm;
  };
  EXPECT_DOUBLE_EQ(busFactor(Operation::kAllReduce), 1.5);
  for (Operation share : {Operation::kAllGather, Operation::kReduceScatter, Operation::kAllToAll,
                          Operation::kGather, Operation::kScatter}) {
    EXPECT_DOUBLE_EQ(busFactor(share), 0.75) << name(share);
  }
  for (Operation once : {Operation::kBroadcast, Operation::kReduce, Operation::kSendRecv}) {
    EXPECT_DOUBLE_EQ(busFactor(once), 1.0) << name(once);
  }
}

}  // namespace
}  // namespace tutti::tools
