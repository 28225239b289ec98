#include "device/host/cpu_nodes.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/mapping.h"
#include "device/host/shared_allocations.h"

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

constexpr size_t kBytes = 64 << 10;
constexpr unsigned long kFirstNode = 1;
constexpr unsigned long kBits = 65;

// Of a mapping that begins there, as the kernel shows it: "default", "prefer:0".
std::string policyOf(const void* memory) {
  std::ostringstream start;
  start << std::hex << reinterpret_cast<uintptr_t>(memory) << ' ';
  std::ifstream maps("/proc/self/numa_maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (!line.starts_with(start.str())) continue;
    const size_t from = start.str().size();
    return line.substr(from, line.find(' ', from) - from);
  }
  return "none";
}

// This thread is bound to the first of two nodes.
class MemoryOfNodesTest : public CpuNodesTest {
 protected:
  void SetUp() override {
    CpuNodesTest::SetUp();
    const UniqueMapping probe = mapPrivate(kBytes, "of a test").value();
    if (::syscall(SYS_mbind, probe.get(), kBytes, MPOL_PREFERRED, &kFirstNode, kBits, 0U) != 0)
      GTEST_SKIP() << "mbind: " << std::strerror(errno);
    ASSERT_EQ(policyOf(probe.get()), "prefer:0");
    write("online", "0-1\n");
    write("node0/cpulist", "0-4095\n");
    write("node1/cpulist", "4096\n");
  }
};

// Also where a peer is the first that writes there.
TEST_F(MemoryOfNodesTest, LiesOnTheNodeOfWhoAllocatesIt) {
  const CpuNodes nodes = this->nodes();
  SharedAllocations allocations(nodes);
  void* memory = allocations.allocate(kBytes).value();
  ASSERT_NE(allocations.find(memory, kBytes).serial, 0u);
  EXPECT_EQ(policyOf(memory), "prefer:0");
  EXPECT_EQ(policyOf(allocations.allocateOwn(kBytes).start), "prefer:0");
  EXPECT_TRUE(allocations.free(memory).ok());
}

TEST_F(MemoryOfNodesTest, LiesWhereItIsTouchedFirstWithoutANode) {
  write("node0/cpulist", "4095\n");  // not this thread's
  const CpuNodes nodes = this->nodes();
  SharedAllocations allocations(nodes);
  EXPECT_EQ(policyOf(allocations.allocate(kBytes).value()), "default");
}

TEST_F(MemoryOfNodesTest, LiesWhereThePolicyOfItsThreadSays) {
  const CpuNodes nodes = this->nodes();
  SharedAllocations allocations(nodes);
  std::thread([&] {
    ASSERT_EQ(::syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &kFirstNode, kBits), 0);
    EXPECT_EQ(policyOf(allocations.allocate(kBytes).value()), "default");
  }).join();
}

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
