#include "topology/fuse.h"

#include <gmock/gmock.h>

#include "topology/topology.h"
#include "topology/xml.h"

namespace tutti::topology {
namespace {

using testing::HasSubstr;

PciDevice gpuAt(const std::string& busId, int32_t device, int32_t rank) {
  return {.busId = busId,
          .deviceClass = 0x030200,
          .linkSpeed = "16.0 GT/s PCIe",
          .linkWidth = 16,
          .gpu = Gpu{.device = device, .rank = rank, .smVersion = 90}};
}

PciDevice switchAt(const std::string& busId, std::vector<PciDevice> below) {
  return {.busId = busId,
          .deviceClass = 0x060400,
          .linkSpeed = "16.0 GT/s PCIe",
          .linkWidth = 16,
          .children = std::move(below)};
}

Nic nicOf(const std::string& name, int32_t device, int64_t speedMbps) {
  return {.ports = {{.name = name, .device = device, .speedMbps = speedMbps, .port = 1}}};
}

// What a container with one GPU and one NIC of a node sees.
Description part(int32_t rank, std::vector<PciDevice> devices, int32_t numaId = 0) {
  CpuNode cpu{.hostHash = 5, .numaId = numaId, .arch = CpuArch::kX86, .vendor = CpuVendor::kAmd};
  cpu.devices = std::move(devices);
  return {.source = fmt::format("rank {}", rank), .cpus = {cpu}};
}

TEST(Fuse, JoinsWhatEachRankSeesOfANode) {
  const Description one = part(0, {switchAt("0000:10:00.0", {gpuAt("0000:11:00.0", 0, 0)})});
  const Description other = part(1, {switchAt("0000:10:00.0", {gpuAt("0000:12:00.0", 1, 1)})});
  const Result<Description> fused = fuse({one, other});
  ASSERT_TRUE(fused.ok()) << fused.status().message();
  ASSERT_EQ(fused.value().cpus.size(), 1u);
  EXPECT_EQ(fused.value().cpus[0].devices.at(0).children.size(), 2u);
  const Result<Topology> topology = buildTopology(fused.value());
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(nodesOf(topology.value(), NodeKind::kGpu).size(), 2u);
}

TEST(Fuse, GivesTheSameInAnyOrder) {
  const Description one = part(0, {gpuAt("0000:11:00.0", 0, 0)});
  const Description other = part(1, {gpuAt("0000:12:00.0", 1, 1), gpuAt("0000:13:00.0", 2, 2)});
  const Description third = part(3, {gpuAt("0000:12:00.0", 1, -1)}, -1);
  const std::string wanted = writeXml(fuse({one, other, third}).value());
  EXPECT_EQ(writeXml(fuse({third, other, one}).value()), wanted);
  EXPECT_EQ(writeXml(fuse({other, one, third}).value()), wanted);
}

TEST(Fuse, OfEqualPartsIsThePart) {
  const Description one = part(0, {gpuAt("0000:11:00.0", 0, 0)});
  EXPECT_TRUE(fuse({one, one, one}).value() == one);
  EXPECT_TRUE(fuse({one}).value() == one);
}

TEST(Fuse, TakesFactsThatOneRankKnows) {
  Description one = part(0, {gpuAt("0000:11:00.0", 0, -1)});
  Description other = part(1, {gpuAt("0000:11:00.0", 0, 1)});
  one.cpus[0].devices[0].gpu->smVersion = 0;
  one.cpus[0].devices[0].linkSpeed.clear();
  other.cpus[0].devices[0].gpu->nvLinks = {
      {.targetBusId = "ffff:ff:ff.0", .target = NvLinkTarget::kSwitch, .count = 18}};
  one.cpus[0].nics = {nicOf("eth0", 0, 0)};
  other.cpus[0].nics = {nicOf("eth0", 0, 25'000)};
  const Description fused = fuse({one, other}).value();
  const PciDevice& device = fused.cpus[0].devices.at(0);
  EXPECT_EQ(device.gpu->rank, 1);
  EXPECT_EQ(device.gpu->smVersion, 90);
  EXPECT_EQ(device.gpu->nvLinks.at(0).count, 18);
  EXPECT_EQ(device.linkSpeed, "16.0 GT/s PCIe");
  ASSERT_EQ(fused.cpus[0].nics.size(), 1u);
  EXPECT_EQ(fused.cpus[0].nics[0].ports[0].speedMbps, 25'000);
}

TEST(Fuse, NumbersPortsAnewWhereTwoAreEqual) {
  Description one = part(0, {});
  Description other = part(1, {});
  one.cpus[0].nics = {nicOf("eth0", 0, 25'000)};
  other.cpus[0].nics = {nicOf("eth1", 0, 25'000)};
  const Description fused = fuse({one, other}).value();
  EXPECT_EQ(fused.cpus[0].nics.at(0).ports[0].device, 0);
  EXPECT_EQ(fused.cpus[0].nics.at(1).ports[0].device, 1);
}

TEST(Fuse, KeepsHostsApart) {
  Description other = part(1, {gpuAt("0000:11:00.0", 0, 1)});
  other.cpus[0].hostHash = 6;
  const Description fused = fuse({part(0, {gpuAt("0000:11:00.0", 0, 0)}), other}).value();
  EXPECT_EQ(buildTopology(fused).value().hosts.size(), 2u);
}

TEST(Fuse, WithoutNumaNodesFindsThePlacesThatOthersKnow) {
  Description whole = part(0, {gpuAt("0000:11:00.0", 0, 0)}, 0);
  whole.cpus.push_back(
      part(0, {switchAt("0000:80:00.0", {gpuAt("0000:81:00.0", 1, -1)})}, 1).cpus[0]);
  const Description blind = part(1, {switchAt("0000:80:00.0", {gpuAt("0000:81:00.0", 1, 1)})}, -1);
  const Description fused = fuse({blind, whole}).value();
  ASSERT_EQ(fused.cpus.size(), 2u);
  EXPECT_EQ(fused.cpus[1].devices.at(0).children.at(0).gpu->rank, 1);
  EXPECT_EQ(fused.cpus[0].devices.size(), 1u);
}

TEST(Fuse, RefusesContradictionsAndNamesBothSides) {
  const Description one = part(0, {gpuAt("0000:11:00.0", 0, 0)});
  Description other = part(1, {gpuAt("0000:11:00.0", 0, 1)});
  EXPECT_THAT(std::string(fuse({one, other}).status().message()),
              HasSubstr("the topologies of rank 0 and rank 1 contradict each other: GPU "
                        "0000:11:00.0 has rank 0 and 1"));
  other.cpus[0].devices[0].gpu->rank = 0;
  other.cpus[0].devices[0].gpu->smVersion = 80;
  EXPECT_THAT(std::string(fuse({one, other}).status().message()),
              HasSubstr("compute capability 90 and 80"));
  other = part(1, {});
  other.cpus[0].vendor = CpuVendor::kIntel;
  EXPECT_THAT(std::string(fuse({one, other}).status().message()),
              HasSubstr("two kinds of processor"));
  EXPECT_FALSE(fuse({}).ok());
}

}  // namespace
}  // namespace tutti::topology
