#include "observe/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>

#include "base/proc_files.h"
#include "base/read_file.h"
#include "observe/bundle_page.h"
#include "observe/process_report.h"
#include "observe/recorder.h"
#include "observe/tar.h"
#include "observe/time_line.h"

namespace tutti::observe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FolderTest : public testing::Test {
 protected:
  FolderTest() : folder_(testing::TempDir() + "bundleXXXXXX") { ::mkdtemp(folder_.data()); }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> all() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string folder_;
};

TEST_F(FolderTest, BundlesOfOneNameStandBesideEachOther) {
  EXPECT_EQ(writeBundle(folder_, "tutti-job-host-1", "a").value(),
            folder_ + "/tutti-job-host-1.tar");
  EXPECT_EQ(writeBundle(folder_, "tutti-job-host-1", "b").value(),
            folder_ + "/tutti-job-host-1-2.tar");
  EXPECT_THAT(all(), ElementsAre("tutti-job-host-1-2.tar", "tutti-job-host-1.tar"));
  EXPECT_EQ(readFile(folder_ + "/tutti-job-host-1.tar"), "a");
}

TEST_F(FolderTest, OnlyItsOwnerReadsABundle) {
  const std::string path = writeBundle(folder_, "x", "content").value();
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(FolderTest, AFolderThatIsNoneIsAnErrorThatNamesIt) {
  std::ofstream(folder_ + "/file") << "mine";
  for (const char* wrong : {"/none", "/file", "/none/below"}) {
    const auto written = writeBundle(folder_ + wrong, "x", "content");
    ASSERT_FALSE(written.ok());
    EXPECT_THAT(written.status().message(), HasSubstr(folder_ + wrong + "/x.tar: "));
  }
  EXPECT_THAT(all(), ElementsAre("file"));
}

TEST(Tar, HoldsNamesAndContentsInBlocks) {
  Tar tar(1'000'000'000);
  tar.add("why.txt", "because");
  tar.add("process-1/empty", "");
  const std::string bytes = tar.finish();
  EXPECT_EQ(bytes.size() % 10240, 0u);
  EXPECT_STREQ(bytes.c_str(), "why.txt");
  EXPECT_EQ(bytes.substr(124, 11), "00000000007");
  EXPECT_EQ(bytes.substr(257, 5), "ustar");
  EXPECT_STREQ(bytes.c_str() + 512, "because");
  EXPECT_STREQ(bytes.c_str() + 1024, "process-1/empty");
  uint64_t sum = 0;
  for (size_t i = 0; i < 512; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(bytes[i]);
  EXPECT_EQ(numberOf<uint64_t>(bytes.substr(148, 6), 8), sum);
}

TEST(BundleName, IsPlainWhateverTheJobIsCalled) {
  EXPECT_THAT(bundleStem("../a b\n\xff", 7),
              testing::MatchesRegex("tutti-\\.\\._a_b__-[-A-Za-z0-9._]+-7"));
  EXPECT_THAT(bundleStem("", 7), testing::StartsWith("tutti-none-"));
}

TEST(Sockets, OfTheProcessAreToldWithTheirQueues) {
  constexpr std::string_view kTable =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
      "inode\n"
      "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 "
      "11 1 0 100 0 0 10 0\n"
      "   1: 0100007F:1F90 0200007F:0050 01 00000010:00000020 01:00000014 00000003  1000        0 "
      "12 2 0 20 4 30 10 -1\n"
      "garbage\n";
  const std::string text = describeSockets(kTable, {12});
  EXPECT_THAT(text,
              testing::MatchesRegex("ESTABLISHED +127.0.0.1:8080 +127.0.0.2:80 +16 +32 +3\n"));
  EXPECT_THAT(describeSockets(kTable, {11}), HasSubstr("LISTEN"));
  EXPECT_THAT(describeSockets(kTable, {}), IsEmpty());
}

TEST(SettingsText, HidesWhereRanksMeet) {
  const Settings settings = Settings::parse(
      {.environment = {"NCCL_COMM_ID=secret:77", "NCCL_DEBUG=WARN", "OTHER=x"}, .files = {}});
  const std::string text = describeSettings(settings, Shown::kChanged);
  EXPECT_EQ(text, "NCCL_DEBUG=WARN (environment)\nNCCL_COMM_ID=not shown (environment)\n");
  EXPECT_THAT(describeSettings(settings, Shown::kAll),
              HasSubstr("TUTTI_TIMEOUT_MS=10000 (default)"));
}

TEST(Threads, OfAProcessAreNamedAndSaidWhatTheyDo) {
  const std::string text = threadReport(::getpid());
  EXPECT_THAT(text, HasSubstr(fmt::format("process {} (", ::getpid())));
  EXPECT_THAT(text, HasSubstr("runs"));
  EXPECT_THAT(threadReport(-1), HasSubstr("ended"));
}

TEST(Bundle, HoldsTheVerdictTheRanksAndTheGuiltyProcess) {
  ProcessRecorders siblings;
  Board board = Board::create(2, "the \"job\"", 500).value();
  Recorder recorder(Board::open(UniqueFd(::dup(board.fd()))).value(), 1, "node1", siblings);
  recorder.end(recorder.begin({.count = 8, .sequence = 1}), EntryState::kFailed);
  board.giveVerdict({.code = Code::kRemoteError, .guilty = 1, .text = "rank 1 is to blame"});
  std::vector<Examination> found;
  found.push_back(conclude(board.name(), look(board)));
  EXPECT_THAT(processesToBlame(found, 1), ElementsAre(1, ::getpid()));
  EXPECT_THAT(processesOf(found), ElementsAre(::getpid()));
  const std::string json = toJson(found);
  EXPECT_THAT(json, HasSubstr(R"("name": "the \"job\"", "wrong": true)"));
  EXPECT_THAT(json, HasSubstr("\"state\": \"failed\""));
  const std::string archive = makeBundle(
      {.cause = "a test", .found = std::move(found), .processes = {::getpid()}, .settings = {}});
  EXPECT_THAT(archive, HasSubstr("a test\n\ncommunicator the \"job\": rank 1 is to blame\n"));
  EXPECT_THAT(archive, HasSubstr("AllReduce #1 (8 of float, sum), failed"));
  EXPECT_THAT(archive, HasSubstr(fmt::format("process-{}/limits", ::getpid())));
}

// ---- the time line

Evidence evidenceOf(std::vector<OperationNote> history, std::vector<WaitNote> waits = {}) {
  Evidence evidence;
  evidence.now = 10'000'000'000;
  evidence.ranks.resize(2);
  RankView& here = evidence.ranks[0];
  here.life = Life::kReady;
  here.hostName = "a<b";
  here.history = std::move(history);
  here.waits = std::move(waits);
  evidence.ranks[1].rank = 1;
  evidence.ranks[1].life = Life::kElsewhere;
  evidence.states.resize(2);
  evidence.activities.resize(2);
  return evidence;
}

OperationNote timed(uint64_t number, int64_t began, int64_t ended) {
  return {.state = ended == 0 ? EntryState::kRunning : EntryState::kDone,
          .sequence = number,
          .number = number,
          .began = began,
          .ended = ended};
}

TEST(TimeLine, PutsOperationsOfAGroupInLanesOfTheirOwn) {
  const std::vector<Bar> bars = barsOf(evidenceOf(
      {timed(4, 50, 60), timed(3, 30, 0), timed(2, 20, 45), timed(1, 10, 20), timed(5, 0, 0)},
      {{.peer = 1, .number = 3, .since = 40}}));
  std::vector<std::tuple<int32_t, int64_t, int64_t>> seen;
  for (const Bar& bar : bars) seen.emplace_back(bar.lane, bar.begin, bar.end);
  constexpr int64_t kNow = 10'000'000'000;
  EXPECT_THAT(seen,
              ElementsAre(std::tuple(0, 40, kNow), std::tuple(1, 10, 20), std::tuple(1, 20, 45),
                          std::tuple(1, 50, 60), std::tuple(2, 30, kNow)));
  EXPECT_EQ(bars.back().kind, Bar::Kind::kRunning);
  EXPECT_THAT(bars.front().text, HasSubstr("rank 0 waits for a message from rank 1"));
}

TEST(TimeLine, BecomesATrace) {
  std::vector<Examination> found;
  found.push_back(conclude("j\"", evidenceOf({timed(1, 2000, 5000)})));
  const std::string trace = traceOf(found);
  EXPECT_THAT(trace, HasSubstr(R"("name": "communicator j\"")"));
  EXPECT_THAT(trace, HasSubstr(R"("ts": 2.000, "dur": 3.000)"));
  EXPECT_THAT(traceOf({}), HasSubstr("traceEvents"));
}

TEST(Page, ShowsTheTimeLineAndHidesMarkupOfOthers) {
  std::vector<Examination> found;
  found.push_back(conclude("<script>", evidenceOf({timed(1, 2000, 5000)})));
  const std::vector<std::string> files = {"why.txt"};
  const std::string page = pageOf("<cause>", found, files);
  EXPECT_THAT(page, HasSubstr("Communicator &lt;script&gt;"));
  EXPECT_THAT(page, HasSubstr("a&lt;b"));
  EXPECT_THAT(page, HasSubstr("<rect class=\"done\""));
  EXPECT_THAT(page, HasSubstr("<a href=\"why.txt\">"));
  EXPECT_EQ(page.find("<script>"), std::string::npos);
  found.front() = conclude("quiet", evidenceOf({timed(1, 0, 0)}));
  EXPECT_THAT(pageOf("", found, files), HasSubstr("No times are known"));
}

}  // namespace
}  // namespace tutti::observe
