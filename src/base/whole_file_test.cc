#include "base/whole_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/read_file.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

class WholeFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/whole-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const char* name) const { return folder_ + "/" + name; }
  size_t fileCount() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::string folder_;
};

TEST_F(WholeFile, IsReplacedAsAWhole) {
  EXPECT_TRUE(writeWholeFile(path("f"), "one").ok());
  EXPECT_TRUE(writeWholeFile(path("f"), "two").ok());
  EXPECT_EQ(readFile(path("f")), "two");
  EXPECT_EQ(fileCount(), 1u);
}

TEST_F(WholeFile, IsReadByThoseWhoMay) {
  struct stat info {};
  ASSERT_TRUE(writeWholeFile(path("own"), "").ok());
  ASSERT_EQ(::stat(path("own").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const mode_t mask = ::umask(027);
  EXPECT_TRUE(writeWholeFile(path("all"), "", kForAll).ok());
  ::umask(mask);
  ASSERT_EQ(::stat(path("all").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST_F(WholeFile, StaysWhereASymbolicLinkLeads) {
  ASSERT_TRUE(writeWholeFile(path("target"), "one").ok());
  ASSERT_EQ(::symlink("target", path("link").c_str()), 0);
  EXPECT_TRUE(writeWholeFile(path("link"), "two").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(readFile(path("target")), "two");
}

// A user may name /dev/null or /dev/stdout, and root could replace the first for everybody.
TEST_F(WholeFile, IsWrittenIntoWhatIsNoRegularFile) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  ASSERT_TRUE(checkWritable(path("pipe")).ok());
  std::string heard;
  std::thread reader([&] { heard = readFile(path("pipe")); });
  EXPECT_TRUE(writeWholeFile(path("pipe"), "through").ok());
  reader.join();
  EXPECT_EQ(heard, "through");
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
}

TEST_F(WholeFile, IsRefusedWithItsNameAndLeavesNothing) {
  for (const std::string& wrong : {folder_, path("none/f")}) {
    const Status written = writeWholeFile(wrong, "content");
    ASSERT_FALSE(written.ok());
    EXPECT_THAT(written.message(), HasSubstr("cannot write " + wrong + ": "));
    const Status checked = checkWritable(wrong);
    ASSERT_FALSE(checked.ok());
    EXPECT_EQ(checked.message(), written.message());
  }
  EXPECT_EQ(fileCount(), 0u);
}

TEST_F(WholeFile, IsReadUpToTheBytesAskedFor) {
  std::string content;
  for (int i = 0; content.size() < 300'000; ++i) content += std::to_string(i);
  ASSERT_TRUE(writeWholeFile(path("long"), content).ok());
  EXPECT_EQ(readFile(path("long")), content);
  EXPECT_EQ(readFile(path("long"), 10), content.substr(0, 10));
  EXPECT_EQ(readWholeFile(path("long"), content.size()).value(), content);
  // One byte more tells that the limit was passed.
  EXPECT_EQ(readWholeFile(path("long"), 100'000).value(), content.substr(0, 100'001));
}

TEST_F(WholeFile, IsAskedForWithoutBeingMade) {
  EXPECT_TRUE(checkWritable(path("f")).ok());
  EXPECT_EQ(fileCount(), 0u);
}

}  // namespace
}  // namespace tutti
