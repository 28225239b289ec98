#include "observe/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "observe/proc_files.h"
#include "observe/process_report.h"
#include "observe/recorder.h"
#include "observe/tar.h"

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
  EXPECT_EQ(readProcFile(folder_ + "/tutti-job-host-1.tar"), "a");
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

TEST_F(FolderTest, AFileIsReplacedAsAWhole) {
  EXPECT_TRUE(writeFileWhole(folder_ + "/f.tar", "one").ok());
  EXPECT_TRUE(writeFileWhole(folder_ + "/f.tar", "two").ok());
  EXPECT_EQ(readProcFile(folder_ + "/f.tar"), "two");
  EXPECT_FALSE(writeFileWhole(folder_, "no folder is overwritten").ok());
  EXPECT_THAT(all(), ElementsAre("f.tar"));
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
  ExitMarks exits;
  Board board = Board::create(2, "the \"job\"", 500).value();
  Recorder recorder(Board::open(UniqueFd(::dup(board.fd()))).value(), 1, "node1", exits);
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

}  // namespace
}  // namespace tutti::observe
