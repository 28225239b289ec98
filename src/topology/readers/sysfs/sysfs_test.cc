#include "topology/readers/sysfs/sysfs.h"

#include <gmock/gmock.h>

#include "topology/readers/sysfs/fake_machine_testing.h"
#include "topology/topology.h"

namespace tutti::topology::sysfs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Sysfs : public testing::Test {
 protected:
  Description read() {
    Result<Description> description = sysfs::read({.root = machine_.root(), .hostHash = 7});
    EXPECT_TRUE(description.ok());
    return std::move(description).value();
  }

  FakeMachine machine_;
};

TEST_F(Sysfs, ShowsProcessorsByNumaNode) {
  machine_.intel();
  machine_.numaNode(0, "0000ffff");
  machine_.numaNode(1, "ffff0000");
  machine_.numaNode(2, "00000000");  // memory alone
  const Description description = read();
  ASSERT_EQ(description.cpus.size(), 2u);
  EXPECT_EQ(description.cpus[1].numaId, 1);
  EXPECT_EQ(description.cpus[1].affinity, "ffff0000");
  EXPECT_EQ(description.cpus[0].vendor, CpuVendor::kIntel);
  EXPECT_EQ(description.cpus[0].model, 143);
  EXPECT_EQ(description.cpus[0].hostHash, 7u);
}

TEST_F(Sysfs, HangsDevicesBelowTheirBridgesAndNumaNodes) {
  machine_.intel();
  machine_.numaNode(0, "0f");
  machine_.numaNode(1, "f0");
  machine_.pci("0000:00:01.0", {.path = "pci0000:00", .deviceClass = "0x060400", .numa = 0});
  machine_.pci("0000:01:00.0",
               {.path = "pci0000:00/0000:00:01.0", .deviceClass = "0x030200", .numa = 0});
  machine_.pci("0000:80:01.0", {.path = "pci0000:80", .deviceClass = "0x020000", .numa = 1});
  machine_.interface("eth0", {.device = "0000:80:01.0", .speed = "100000"});
  machine_.pci("0000:00:1f.0", {.path = "pci0000:00", .deviceClass = "0x060100", .numa = 0});
  const Description description = read();
  ASSERT_EQ(description.cpus[0].devices.size(), 1u);
  const PciDevice& bridge = description.cpus[0].devices[0];
  EXPECT_EQ(bridge.busId, "0000:00:01.0");
  ASSERT_EQ(bridge.children.size(), 1u);
  EXPECT_EQ(bridge.children[0].linkSpeed, "16.0 GT/s PCIe");
  EXPECT_EQ(bridge.children[0].linkWidth, 16);
  EXPECT_FALSE(bridge.children[0].gpu);
  ASSERT_EQ(description.cpus[1].devices.size(), 1u);
  const NetPort& port = description.cpus[1].devices[0].nics.at(0).ports.at(0);
  EXPECT_EQ(port.name, "eth0");
  EXPECT_EQ(port.speedMbps, 100'000);
  EXPECT_THAT(description.assumptions, ElementsAre());
}

TEST_F(Sysfs, FindsAVirtualMachinesInterfaceBehindItsPciDevice) {
  machine_.numaNode(0, "3");
  machine_.pci(
      "0000:00:03.0",
      {.path = "pci0000:00", .deviceClass = "0x020000", .speed = "Unknown", .width = "255"});
  machine_.interface("eth0", {.device = "0000:00:03.0", .below = "virtio2", .speed = "-1"});
  const Description description = read();
  ASSERT_EQ(description.cpus[0].devices.size(), 1u);
  const PciDevice& device = description.cpus[0].devices[0];
  EXPECT_EQ(device.linkSpeed, "");
  EXPECT_EQ(device.linkWidth, 0);
  EXPECT_EQ(device.nics.at(0).ports.at(0).name, "eth0");
  EXPECT_EQ(device.nics.at(0).ports.at(0).speedMbps, 0);
}

TEST_F(Sysfs, AnAdapterStandsForItsInterfaces) {
  machine_.numaNode(0, "3");
  machine_.pci("0000:10:00.0", {.path = "pci0000:00", .deviceClass = "0x020700"});
  machine_.interface("ib0", {.device = "0000:10:00.0", .speed = "100000"});
  machine_.adapter("mlx5_0", {.device = "0000:10:00.0", .rate = "400 Gb/sec (4X NDR)"});
  machine_.pci("0000:11:00.0", {.path = "pci0000:00", .deviceClass = "0x020000"});
  machine_.interface("eth1", {.device = "0000:11:00.0", .speed = "25000"});
  machine_.adapter("mlx5_1", {.device = "0000:11:00.0", .state = "1: DOWN"});
  const std::vector<PciDevice> devices = read().cpus[0].devices;
  ASSERT_EQ(devices.size(), 2u);
  const NetPort& port = devices[0].nics.at(0).ports.at(0);
  EXPECT_EQ(port.name, "mlx5_0");
  EXPECT_EQ(port.speedMbps, 400'000);
  EXPECT_EQ(port.guid, 0xe41d2d0300aabbccu);
  EXPECT_EQ(devices[1].nics.at(0).ports.at(0).name, "eth1");
}

TEST_F(Sysfs, LeavesOutInterfacesThatAreDown) {
  machine_.numaNode(0, "3");
  machine_.pci("0000:10:00.0", {.path = "pci0000:00", .deviceClass = "0x020000"});
  machine_.interface("eth0", {.device = "0000:10:00.0", .state = "down"});
  machine_.interface("lo", {.state = "unknown", .type = "772"});
  const Description description = read();
  EXPECT_TRUE(description.cpus[0].devices.empty());
  EXPECT_TRUE(description.cpus[0].nics.empty());
}

TEST_F(Sysfs, TakesVirtualInterfacesWhereThereAreNoOthers) {
  machine_.numaNode(0, "3");
  machine_.interface("eth0", {.speed = "10000"});
  Description description = read();
  ASSERT_EQ(description.cpus[0].nics.size(), 1u);
  EXPECT_EQ(description.cpus[0].nics[0].ports.at(0).speedMbps, 10'000);
  machine_.pci("0000:10:00.0", {.path = "pci0000:00", .deviceClass = "0x020000"});
  machine_.interface("ens1", {.device = "0000:10:00.0"});
  description = read();
  EXPECT_TRUE(description.cpus[0].nics.empty());
  EXPECT_EQ(description.cpus[0].devices.size(), 1u);
}

TEST_F(Sysfs, SaysHowManyDevicesTellNoNumaNode) {
  machine_.numaNode(0, "1");
  machine_.numaNode(1, "2");
  for (const char* busId : {"0000:10:00.0", "0000:11:00.0"})
    machine_.pci(busId, {.path = "pci0000:00", .deviceClass = "0x030200", .numa = -1});
  const Description description = read();
  EXPECT_EQ(description.cpus[0].devices.size(), 2u);
  EXPECT_THAT(description.assumptions,
              testing::Contains("the NUMA node of 2 PCI devices is not known: 0 assumed"));
}

TEST_F(Sysfs, OfAnEmptyContainerIsOneCpu) {
  const Description description = read();
  ASSERT_EQ(description.cpus.size(), 1u);
  EXPECT_EQ(description.cpus[0].numaId, -1);
  EXPECT_THAT(description.assumptions, ElementsAre(HasSubstr("/proc/cpuinfo names no processor"),
                                                   HasSubstr("no PCI devices are known")));
  EXPECT_TRUE(buildTopology(description).ok());
}

TEST_F(Sysfs, OfArmAndPowerNamesTheArchitecture) {
  machine_.cpuInfo("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n");
  EXPECT_EQ(read().cpus[0].arch, CpuArch::kArm64);
  machine_.cpuInfo("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n");
  EXPECT_EQ(read().cpus[0].arch, CpuArch::kPower);
}

TEST_F(Sysfs, LeavesOutADeviceThatHangsTooDeep) {
  std::string path = "pci0000:00";
  for (int i = 0; i < 40; ++i) path += fmt::format("/0000:{:02x}:00.0", i + 1);
  machine_.pci("0000:ff:00.0", {.path = path, .deviceClass = "0x030200"});
  EXPECT_THAT(read().assumptions, testing::Contains(HasSubstr("more than 32 bridges deep")));
}

// This very machine, whatever it is, makes a topology, but for GPUs, which only NVML describes.
TEST(SysfsOfThisMachine, IsATopology) {
  const Result<Description> description = sysfs::read({});
  ASSERT_TRUE(description.ok());
  const Result<Topology> topology = buildTopology(description.value());
  if (topology.ok()) return;
  EXPECT_THAT(topology.status().message(), HasSubstr("look like GPUs"));
}

}  // namespace
}  // namespace tutti::topology::sysfs
