#include "base/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace tutti {
namespace {

constexpr size_t kBytes = 10'000;
constexpr SegmentPurpose kPurpose{
    .name = "tutti-test", .what = "a test", .instead = "another test"};

UniqueFd makeMemfd(size_t bytes, int seals) {
  UniqueFd fd(::memfd_create("tutti-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(Segment, IsSharedByBothMappingsAndStartsZeroed) {
  Segment segment = createSegment(kBytes, kPurpose).value();
  const UniqueMapping other = mapSegment(segment.fd, kBytes, SegmentAccess::kReadWrite).value();
  auto* here = static_cast<unsigned char*>(segment.memory.get());
  auto* there = static_cast<unsigned char*>(other.get());
  ASSERT_NE(here, there);
  for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(there[i], 0);
  here[kBytes - 1] = 42;
  EXPECT_EQ(there[kBytes - 1], 42);
  segment = {};
  EXPECT_EQ(there[kBytes - 1], 42);
}

TEST(Segment, CannotBeResizedByAnyone) {
  const Segment segment = createSegment(kBytes, kPurpose).value();
  EXPECT_NE(::ftruncate(segment.fd.get(), 0), 0);
  EXPECT_NE(::ftruncate(segment.fd.get(), 2 * kBytes), 0);
  EXPECT_NE(::fcntl(segment.fd.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(Segment, ThatIsNotFullySealedIsRefused) {
  for (const int seals :
       {0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_GROW | F_SEAL_SEAL}) {
    const UniqueFd fd = makeMemfd(kBytes, seals);
    const Status status = mapSegment(fd, kBytes, SegmentAccess::kReadWrite).takeStatus();
    EXPECT_EQ(status.code(), Code::kRemoteError) << seals;
    EXPECT_NE(status.message().find("not sealed"), std::string_view::npos) << status.message();
  }
}

TEST(Segment, OfAnotherSizeIsRefused) {
  for (const size_t bytes : {size_t{0}, kBytes - 1, kBytes + 1}) {
    const UniqueFd fd = makeMemfd(bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    const Status status = mapSegment(fd, kBytes, SegmentAccess::kReadWrite).takeStatus();
    EXPECT_EQ(status.code(), Code::kRemoteError) << bytes;
    EXPECT_NE(status.message().find("wanted 10000"), std::string_view::npos) << status.message();
  }
}

TEST(Segment, OfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make another user's segment";
  const UniqueFd fd = makeMemfd(kBytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  ASSERT_EQ(::fchown(fd.get(), 4711, 4711), 0);
  const Status status = mapSegment(fd, kBytes, SegmentAccess::kReadWrite).takeStatus();
  EXPECT_EQ(status.code(), Code::kRemoteError);
  EXPECT_NE(status.message().find("4711"), std::string_view::npos) << status.message();
}

TEST(SegmentDeathTest, MappedForReadingCannotBeWritten) {
  const Segment segment = createSegment(kBytes, kPurpose).value();
  const UniqueMapping other = mapSegment(segment.fd, kBytes, SegmentAccess::kRead).value();
  *static_cast<char*>(segment.memory.get()) = 5;
  EXPECT_EQ(*static_cast<const char*>(other.get()), 5);
  EXPECT_DEATH(*static_cast<volatile char*>(other.get()) = 6, "");
}

TEST(Segment, ThatIsNoMemoryAtAllIsRefused) {
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd reading(ends[0]);
  const UniqueFd writing(ends[1]);
  EXPECT_EQ(mapSegment(reading, kBytes, SegmentAccess::kReadWrite).takeStatus().code(),
            Code::kRemoteError);
  EXPECT_EQ(mapSegment(UniqueFd(), kBytes, SegmentAccess::kReadWrite).takeStatus().code(),
            Code::kRemoteError);
}

TEST(Segment, LeavesNoNameBehind) {
  const Segment segment = createSegment(kBytes, kPurpose).value();
  struct stat info {};
  ASSERT_EQ(::fstat(segment.fd.get(), &info), 0);
  EXPECT_EQ(info.st_nlink, 0u);
}

TEST(Segment, ReservedHasItsPages) {
  const UniqueFd fd = makeMemfd(kBytes, 0);
  struct stat info {};
  ASSERT_EQ(::fstat(fd.get(), &info), 0);
  EXPECT_EQ(info.st_blocks, 0);
  EXPECT_TRUE(reserveSegment(fd, kBytes, kPurpose).ok());
  ASSERT_EQ(::fstat(fd.get(), &info), 0);
  EXPECT_GE(static_cast<size_t>(info.st_blocks) * 512, kBytes);
}

// A file system of one megabyte stands for a machine that has no more memory to promise.
TEST(Segment, ReservedBeyondWhatThereIsIsAnErrorNotASignal) {
  std::array<char, 32> folder = {"/tmp/tutti-segment-XXXXXX"};
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  if (::mount("tutti-test", folder.data(), "tmpfs", 0, "size=1m") != 0) {
    ::rmdir(folder.data());
    GTEST_SKIP() << "needs the right to mount a small file system";
  }
  UniqueFd fd(::open(folder.data(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  EXPECT_TRUE(static_cast<bool>(fd));
  const Status status = reserveSegment(fd, size_t{2} << 20, kPurpose);
  EXPECT_EQ(status.code(), Code::kSystemError);
  EXPECT_NE(status.message().find("2097152 bytes for a test"), std::string_view::npos)
      << status.message();
  EXPECT_NE(status.message().find("CommitLimit"), std::string_view::npos) << status.message();
  fd.reset();
  EXPECT_EQ(::umount(folder.data()), 0);
  EXPECT_EQ(::rmdir(folder.data()), 0);
}

TEST(Segment, BeyondTheFileSizeLimitIsAnErrorNotASignal) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = kBytes - 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = createSegment(kBytes, kPurpose).takeStatus();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(status.code(), Code::kSystemError);
  EXPECT_NE(status.message().find("ulimit -f"), std::string_view::npos) << status.message();
}

}  // namespace
}  // namespace tutti
