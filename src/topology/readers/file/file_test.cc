#include "topology/readers/file/file.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace tutti::topology::file {
namespace {

using testing::HasSubstr;

class Files : public testing::Test {
 protected:
  Files() {
    std::string pattern = testing::TempDir() + "tutti-file-XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~Files() override {
    std::error_code none;
    std::filesystem::remove_all(folder_, none);
  }

  std::string path(const char* name) const { return folder_ + "/" + name; }
  static std::string refusal(const std::string& path) {
    const Result<std::string> text = read(path, 1000);
    return text.ok() ? "" : std::string(text.status().message());
  }

  std::string folder_;
};

TEST_F(Files, ReadWhatWasWritten) {
  const std::string text(300'000, 'x');
  ASSERT_TRUE(write(path("a"), text).ok());
  EXPECT_EQ(read(path("a"), text.size()).value(), text);
  ASSERT_TRUE(write(path("a"), "shorter").ok());
  EXPECT_EQ(read(path("a"), 100).value(), "shorter");
}

TEST_F(Files, LeaveNothingBesideThem) {
  ASSERT_TRUE(write(path("a"), "text").ok());
  EXPECT_FALSE(write(path("no such folder/a"), "text").ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

// A device, a pipe nobody writes to, a folder: whatever a setting may name by mistake.
TEST_F(Files, AreRefusedWhereTheyAreNone) {
  EXPECT_THAT(refusal(path("absent")), HasSubstr("absent"));
  EXPECT_THAT(refusal(folder_), HasSubstr("is no regular file"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(path("pipe")), HasSubstr("is no regular file"));
  EXPECT_THAT(refusal("/dev/zero"), HasSubstr("is no regular file"));
}

TEST_F(Files, AreReadNoFurtherThanOneByteTooFar) {
  ASSERT_TRUE(write(path("large"), "").ok());
  ASSERT_EQ(::truncate(path("large").c_str(), off_t{1} << 40), 0);
  EXPECT_EQ(read(path("large"), 300'000).value().size(), 300'001U);
}

}  // namespace
}  // namespace tutti::topology::file
