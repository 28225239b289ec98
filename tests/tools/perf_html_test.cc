#include "tools/perf_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

Row makeRow(size_t bytes, double seconds) {
  Row row{.bytes = bytes, .count = bytes / 4, .type = DataType::kFloat32, .op = ReduceOp::kSum};
  row.outOfPlace = {.seconds = seconds, .algorithmGBs = 1, .busGBs = 1.5, .wrong = 0};
  row.inPlace = {.seconds = 2 * seconds, .algorithmGBs = 0.5, .busGBs = 0.75, .wrong = 0};
  return row;
}

std::string render(const std::vector<Row>& rows, const PageFacts& facts = {}) {
  const PerfOptions options;
  const RunInfo info{.rankCount = 4, .libraryVersion = 22809};
  return pageOf({.options = options, .info = info, .rows = rows, .summary = {}, .facts = facts});
}

size_t count(const std::string& text, std::string_view part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Every cx and cy of the page.
std::vector<double> coordinates(const std::string& page) {
  std::vector<double> values;
  for (const std::string name : {" cx=\"", " cy=\""}) {
    for (size_t at = page.find(name); at != std::string::npos; at = page.find(name, at + 1)) {
      values.push_back(std::stod(page.substr(at + name.size())));
    }
  }
  return values;
}

TEST(PerfHtml, PageSaysWhatWasMeasuredWhereAndHow) {
  const std::string page = render({makeRow(1024, 1e-6)}, {.date = "2026-11-20 19:00 UTC",
                                                          .machine = "box: 2 cores",
                                                          .commandLine = "tutti perf all_reduce"});
  for (const char* text : {"all_reduce, 4 ranks", "2026-11-20 19:00 UTC", "box: 2 cores",
                           "tutti perf all_reduce", "22809", "1 KB"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
}

TEST(PerfHtml, PageNeedsNothingElse) {
  const std::string page = render({makeRow(8, 1e-6), makeRow(64, 2e-6)});
  EXPECT_THAT(page, Not(HasSubstr("http")));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
}

TEST(PerfHtml, TextFromOutsideIsEscaped) {
  const std::string page = render({}, {.date = "", .machine = "<b>&\"", .commandLine = "a < b"});
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;&amp;&quot;"));
  EXPECT_THAT(page, HasSubstr("a &lt; b"));
}

TEST(PerfHtml, EachTypeAndReductionHasATimeAndABandwidthPlot) {
  Row other = makeRow(8, 1e-6);
  other.op = ReduceOp::kMax;
  const std::string page = render({makeRow(8, 1e-6), makeRow(64, 2e-6), other});
  EXPECT_EQ(count(page, "<figure>"), 4);
  EXPECT_THAT(page, HasSubstr("<h2>float, sum</h2>"));
  EXPECT_THAT(page, HasSubstr("<h2>float, max</h2>"));
}

TEST(PerfHtml, PointsLieInsideTheirPlot) {
  std::vector<Row> rows;
  for (size_t bytes = 8; bytes <= size_t{1} << 28; bytes *= 4) {
    rows.push_back(makeRow(bytes, 2e-7 + static_cast<double>(bytes) * 3e-10));
  }
  const std::vector<double> values = coordinates(render(rows));
  EXPECT_GE(values.size(), 2 * 2 * rows.size());
  for (const double value : values) {
    EXPECT_GE(value, 0);
    EXPECT_LE(value, 360);
  }
}

TEST(PerfHtml, LargerTimesLieHigher) {
  const std::string page = render({makeRow(8, 1e-6), makeRow(64, 1e-4)});
  const std::string circle = "<circle class=\"out\" cx=\"";
  const size_t first = page.find(circle, page.find("<figure>"));
  const size_t second = page.find(circle, first + 1);
  const auto heightAt = [&page](size_t at) {
    return std::stod(page.substr(page.find("cy=", at) + 4));
  };
  EXPECT_GT(heightAt(first), heightAt(second));  // pixels count downwards
}

TEST(PerfHtml, TheCurveOfASizeMeasuredTwiceGoesBetween) {
  const std::string page = render({makeRow(8, 1e-6), makeRow(8, 3e-6), makeRow(8, 2e-6)});
  const std::string path = "<path class=\"curve out\" d=\"M";
  const size_t curve = page.find(path, page.find("<figure>")) + path.size();
  const double height = std::stod(page.substr(page.find(' ', curve)));
  const std::string circle = "<circle class=\"out\"";
  size_t at = page.find("<figure>");
  std::vector<double> heights;
  for (int i = 0; i < 3; ++i) {
    at = page.find(circle, at + 1);
    heights.push_back(std::stod(page.substr(page.find("cy=", at) + 4)));
  }
  EXPECT_EQ(height, heights[2]);
  EXPECT_LT(height, heights[0]);
  EXPECT_GT(height, heights[1]);
}

TEST(PerfHtml, OneSizeOrNoneOrZeroBytesMakeAPage) {
  EXPECT_THAT(render({makeRow(8, 1e-6)}), HasSubstr("</html>"));
  EXPECT_THAT(render({}), HasSubstr("</html>"));
  const std::string page = render({makeRow(0, 1e-6)});
  EXPECT_THAT(page, HasSubstr("</html>"));
  for (const char* text : {"nan", "inf"}) EXPECT_THAT(page, Not(HasSubstr(text)));
}

TEST(PerfHtml, WrongElementsStandOut) {
  Row row = makeRow(8, 1e-6);
  row.inPlace.wrong = 7;
  EXPECT_THAT(render({row}), HasSubstr("<td class=\"bad\">7</td>"));
}

TEST(PerfHtml, FactsOfThisProcessAreKnown) {
  const PageFacts facts = gatherPageFacts();
  EXPECT_THAT(facts.date, testing::MatchesRegex("20.*-.*-.* .*:.* UTC"));
  EXPECT_THAT(facts.commandLine, HasSubstr("test"));
  EXPECT_THAT(facts.machine, HasSubstr(" CPUs, "));
}

}  // namespace
}  // namespace tutti::tools
