#include "tools/perf_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::tools {
namespace {

using testing::HasSubstr;

Row makeRow() {
  Row row{.bytes = 1048576, .count = 262144, .type = DataType::kFloat32, .op = ReduceOp::kSum};
  row.outOfPlace = {.seconds = 631.12e-6, .algorithmGBs = 53.17, .busGBs = 93.04, .wrong = 0};
  row.inPlace = {.seconds = 12.174e-3, .algorithmGBs = 88.2, .busGBs = 154.35, .wrong = 7};
  return row;
}

TEST(PerfReport, RowsHaveTheColumnsThatScriptsCut) {
  EXPECT_EQ(lineOf(makeRow()),
            "     1048576        262144     float     sum      -1"
            "    631.1   53.17   93.04      0    12174   88.20  154.35      7");
}

TEST(PerfReport, HeaderStandsAboveItsColumns) {
  const std::string header = headerOf({}, {});
  const std::string title = header.substr(0, header.rfind('\n'));
  const std::string names = title.substr(title.rfind('\n') + 1);
  const std::string line = lineOf(makeRow());
  // Right-aligned columns end where their titles end.
  for (const auto& [text, value] :
       {std::pair{" size", "1048576"}, std::pair{"count", "262144"}, std::pair{"type", "float"},
        std::pair{"redop", "sum"}, std::pair{"root", "-1"}, std::pair{"time", "631.1"},
        std::pair{"busbw", "93.04"}}) {
    EXPECT_EQ(names.find(text) + std::string_view(text).size(),
              line.find(value) + std::string_view(value).size())
        << text << '\n'
        << names << '\n'
        << line;
  }
}

TEST(PerfReport, AnotherLibrarysTimesHaveTheirColumns) {
  Row row = makeRow();
  row.outOfPlace.peerSeconds = 2 * row.outOfPlace.seconds;
  row.inPlace.peerSeconds = row.inPlace.seconds / 2;
  const std::string line = lineOf(row);
  EXPECT_THAT(line, HasSubstr("     0   1262.2   2.00"));
  EXPECT_THAT(line, HasSubstr("     7   6087.0   0.50"));
  const std::string header = headerOf({}, {.peerVersion = 22809});
  const std::string title = header.substr(0, header.rfind('\n'));
  const std::string names = title.substr(title.rfind('\n') + 1);
  EXPECT_EQ(names.find("ratio") + 5, line.find("2.00") + 4) << names << '\n' << line;
  EXPECT_EQ(names.rfind("ratio") + 5, line.size());
}

TEST(PerfReport, GpuRanksSayHowTheirCallsGo) {
  const std::vector<PlacedRank> places = {{.rank = 0, .gpu = 0}, {.rank = 1, .gpu = -1}};
  EXPECT_THAT(headerOf({}, {.path = GpuPath::kDirect, .places = places}),
              HasSubstr("[gpu] GPU rank, from GPU to GPU\n"));
  const std::string header = headerOf({}, {.path = GpuPath::kThroughHost, .places = places});
  EXPECT_THAT(header, HasSubstr("[gpu] GPU rank, through the host\n"));
  EXPECT_THAT(header, HasSubstr("[cpu] CPU rank\n"));
  EXPECT_THAT(headerOf({}, {.places = places}), HasSubstr("[gpu] GPU rank\n"));
}

TEST(PerfReport, AnotherLibrarysRegistrationIsNamed) {
  PerfOptions options;
  EXPECT_THAT(headerOf(options, {.peerVersion = 22809}), HasSubstr("nccl-library=22809\n"));
  options.peerRegistration = Registration::kWindow;
  EXPECT_THAT(headerOf(options, {.peerVersion = 22809}), HasSubstr("nccl-library=22809 -R 2\n"));
}

TEST(PerfReport, MovementHasNoReductionAndUncheckedIsNotZero) {
  Row row = makeRow();
  row.op.reset();
  row.inPlace.wrong.reset();
  EXPECT_THAT(lineOf(row), HasSubstr("  none  "));
  EXPECT_THAT(lineOf(row), HasSubstr("    N/A"));
}

TEST(PerfReport, ShortTimesKeepThreeDigits) {
  Row row = makeRow();
  row.outOfPlace.seconds = 0.2234e-6;
  EXPECT_THAT(lineOf(row), HasSubstr("    0.223 "));
}

TEST(PerfReport, FooterSaysWhatFailed) {
  const Summary bad{.wrong = 3, .averageBusGBs = 1.5, .isBelowMinimum = true};
  EXPECT_THAT(footerOf({}, bad), HasSubstr("# Out of bounds values : 3 FAILED\n"));
  EXPECT_THAT(footerOf({}, bad), HasSubstr("# Avg bus bandwidth    : 1.5 FAILED\n"));
  EXPECT_THAT(footerOf({}, Summary{}), HasSubstr("# Out of bounds values : 0 OK\n"));
}

TEST(PerfReport, SumsUpBothSidesOfAllRows) {
  PerfOptions options;
  options.csvPath = "/dev/null";
  options.jsonPath = "/dev/null";
  Result<std::unique_ptr<PerfReport>> report = PerfReport::open(options, {});
  ASSERT_TRUE(report.ok());
  report.value()->add(makeRow());
  report.value()->add(makeRow());
  const Summary summary = report.value()->summary(200.0);
  EXPECT_EQ(summary.wrong, 14U);
  EXPECT_DOUBLE_EQ(summary.averageBusGBs, (93.04 + 154.35) / 2);
  EXPECT_TRUE(summary.isBelowMinimum);
  EXPECT_FALSE(report.value()->summary(100.0).isBelowMinimum);
  EXPECT_TRUE(report.value()->finish(std::nullopt).ok());
}

TEST(PerfReport, RefusesAFileItCannotMake) {
  PerfOptions options;
  options.csvPath = "/nonexistent/figures.csv";
  EXPECT_FALSE(PerfReport::open(options, {}).ok());
}

}  // namespace
}  // namespace tutti::tools
