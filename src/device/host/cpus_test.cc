#include "device/host/cpus.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tutti::device::host {
namespace {

TEST(QuotaCpus, RoundsUpAndKnowsNoQuota) {
  EXPECT_EQ(quotaCpus("max 100000\n"), 0);
  EXPECT_EQ(quotaCpus("-1\n 100000\n"), 0);
  EXPECT_EQ(quotaCpus("100000 100000\n"), 1);
  EXPECT_EQ(quotaCpus("100001 100000\n"), 2);
  EXPECT_EQ(quotaCpus("5000 100000\n"), 1);
  EXPECT_EQ(quotaCpus("150000\n 100000\n"), 2);
}

TEST(QuotaCpus, TakesGarbageForNoQuota) {
  for (const char* text : {"", " ", "\n", "100000", "100000 ", "100000 0", "0 100000", "x y",
                           "100000 x", "99999999999999999999 1"}) {
    EXPECT_EQ(quotaCpus(text), 0) << text;
  }
}

// A file system root of its own, with a process in the groups given.
class UsableCpus : public testing::Test {
 protected:
  UsableCpus()
      : root_(std::filesystem::path(testing::TempDir()) /
              ("tutti-cpus-" + std::to_string(::getpid()))) {}
  ~UsableCpus() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const auto file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  int32_t usable() { return usableCpus(root_.string() + "/"); }

  const std::filesystem::path root_;
};

TEST_F(UsableCpus, AreTheAffinityMasksWithoutControlGroups) {
  EXPECT_GE(usable(), 1);
  EXPECT_LE(usableCpus(), usable());
}

TEST_F(UsableCpus, AreCappedByTheQuotaOfAnOuterGroup) {
  write("proc/self/cgroup", "0::/pod/job\n");
  write("sys/fs/cgroup/pod/cpu.max", "90000 100000\n");
  write("sys/fs/cgroup/pod/job/cpu.max", "max 100000\n");
  EXPECT_EQ(usable(), 1);
}

TEST_F(UsableCpus, AreCappedByAQuotaAtTheRootOfTheNamespace) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(usable(), 1);
}

TEST_F(UsableCpus, AreCappedByALegacyQuota) {
  write("proc/self/cgroup", "7:blkio:/\n4:cpu,cpuacct:/pod\n2:cpuset:/\nrubbish\n");
  write("sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(usable(), 1);
}

TEST_F(UsableCpus, IgnoreQuotasOfOtherControllers) {
  write("proc/self/cgroup", "3:cpuset:/pod\n");
  write("sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
  const int32_t capped = usable();
  std::filesystem::remove_all(root_);
  EXPECT_EQ(capped, usable());
}

}  // namespace
}  // namespace tutti::device::host
