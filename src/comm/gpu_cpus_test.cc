#include "comm/gpu_cpus.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tutti::comm {
namespace {

TEST(GpuCpus, AreThoseThatTheKernelCallsLocal) {
  const std::string root = testing::TempDir() + "tutti_gpu_cpus_" + std::to_string(::getpid());
  const std::string folder = root + "/sys/bus/pci/devices/0000:3b:00.0";
  std::filesystem::create_directories(folder);
  EXPECT_TRUE(cpusNear("0000:3B:00.0", root).empty());
  std::ofstream(folder + "/local_cpulist") << "0-1,4-5\n";
  EXPECT_EQ(cpusNear("0000:3B:00.0", root), (std::vector<int32_t>{0, 1, 4, 5}));
  EXPECT_TRUE(cpusNear("0000:3C:00.0", root).empty());
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace tutti::comm
