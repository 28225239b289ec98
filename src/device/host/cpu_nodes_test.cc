#include "device/host/cpu_nodes.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace tutti::device::host {
namespace {

// A machine of files, which go with it.
class CpuNodesTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(root_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + "/sys/devices/system/node/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  CpuNodes nodes() const { return CpuNodes(root_ + "/"); }

 private:
  std::string root_ = testing::TempDir() + "tutti_nodes_XXXXXX";
};

TEST_F(CpuNodesTest, NamesTheNodeThatHoldsAllCpusOfAThread) {
  write("online", "0-1\n");
  write("node0/cpulist", "0-1,4-5\n");
  write("node1/cpulist", "2-3,6-7\n");
  EXPECT_EQ(nodes().nodeOf({0, 5}), 0);
  EXPECT_EQ(nodes().nodeOf({2, 3, 6, 7}), 1);
  EXPECT_EQ(nodes().nodeOf({1, 2}), -1);
  EXPECT_EQ(nodes().nodeOf({64}), -1);
}

TEST_F(CpuNodesTest, NamesNoneOnAMachineOfOneNodeOrWithoutNodes) {
  EXPECT_EQ(nodes().nodeOf({0}), -1);
  write("online", "0\n");
  write("node0/cpulist", "0-7\n");
  EXPECT_EQ(nodes().nodeOf({0}), -1);
  EXPECT_EQ(nodes().nodeOfThread(), -1);
}

TEST_F(CpuNodesTest, TakesNumbersUpToWhatIsNone) {
  write("online", "0,1,x\n");
  write("node0/cpulist", "0-3-9\n");
  write("node1/cpulist", "4-99999999\n");
  EXPECT_EQ(nodes().nodeOf({3}), 0);
  EXPECT_EQ(nodes().nodeOf({4}), -1);
}

}  // namespace
}  // namespace tutti::device::host
