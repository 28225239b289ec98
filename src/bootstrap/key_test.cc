#include "bootstrap/key.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"

namespace tutti::bootstrap {
namespace {

using ::testing::HasSubstr;

// A file of its own that goes with the test.
class SecretFileTest : public ::testing::Test {
 protected:
  void SetUp() override { fd = UniqueFd(::mkstemp(path.data())); }
  void TearDown() override { ::unlink(path.c_str()); }

  void write(const std::string& text, mode_t mode) {
    ASSERT_EQ(::ftruncate(fd.get(), 0), 0);
    ASSERT_EQ(::pwrite(fd.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    ASSERT_EQ(::fchmod(fd.get(), mode), 0);
  }
  void expectRefused(const char* why) {
    const Result<std::string> content = readSecretFile(path);
    ASSERT_FALSE(content.ok());
    EXPECT_EQ(content.status().code(), Code::kInvalidUsage);
    EXPECT_THAT(std::string(content.status().message()), HasSubstr(why));
  }

  std::string path = ::testing::TempDir() + "tutti-secret-XXXXXX";
  UniqueFd fd;
  const std::string secret = "0123456789abcdef0123";
};

TEST_F(SecretFileTest, ReadsAPrivateFile) {
  write(secret, 0600);
  const Result<std::string> content = readSecretFile(path);
  ASSERT_TRUE(content.ok());
  EXPECT_EQ(content.value(), secret);
}

TEST_F(SecretFileTest, WithoutAPathThereIsNoSecret) {
  const Result<std::string> content = readSecretFile("");
  ASSERT_TRUE(content.ok());
  EXPECT_TRUE(content.value().empty());
}

TEST_F(SecretFileTest, RefusesAFileThatOthersCanUse) {
  for (mode_t mode : {0640u, 0604u, 0620u, 0602u}) {
    write(secret, mode);
    expectRefused("others can use it, wanted 600");
  }
}

TEST_F(SecretFileTest, RefusesTooShortAndTooLongFiles) {
  write("short", 0600);
  expectRefused("has 5 bytes, wanted 16 to 4096");
  write(std::string(4097, 'x'), 0600);
  expectRefused("has 4097 bytes");
}

TEST_F(SecretFileTest, RefusesLinksDirectoriesAndMissingFiles) {
  write(secret, 0600);
  const std::string link = path + "-link";
  ASSERT_EQ(::symlink(path.c_str(), link.c_str()), 0);
  EXPECT_EQ(readSecretFile(link).status().code(), Code::kSystemError);
  ::unlink(link.c_str());
  EXPECT_FALSE(readSecretFile(::testing::TempDir()).ok());
  EXPECT_EQ(readSecretFile(path + "-missing").status().code(), Code::kSystemError);
}

TEST(Key, DependsOnSecretJobAndFile) {
  UniqueId id;
  const Key key = deriveJobKey(id, "");
  const auto differs = [&](const UniqueId& other, std::string_view file) {
    const Key changed = deriveJobKey(other, file);
    return !std::equal(key.bytes().begin(), key.bytes().end(), changed.bytes().begin());
  };
  EXPECT_FALSE(differs(id, ""));
  EXPECT_TRUE(differs(id, "file"));
  UniqueId otherSecret = id;
  otherSecret.secret[31] = 1;
  EXPECT_TRUE(differs(otherSecret, ""));
  UniqueId otherJob = id;
  otherJob.job[0] = 1;
  EXPECT_TRUE(differs(otherJob, ""));
}

}  // namespace
}  // namespace tutti::bootstrap
