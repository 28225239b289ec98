#include "topology/hwloc_xml.h"

#include <gmock/gmock.h>

#include "topology/topology.h"

namespace tutti::topology {
namespace {

using testing::HasSubstr;

// In the shape of `lstopo machine.xml` (hwloc 2): two packages, a root port, a switch with two ways
// down, HBM beside the second package's memory.
constexpr std::string_view kMachine =
    R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f,0xffffffff">
    <info name="Architecture" value="x86_64"/>
    <object type="Package" os_index="0" cpuset="0x0000ffff">
      <info name="CPUVendor" value="GenuineIntel"/>
      <info name="CPUFamilyNumber" value="6"/>
      <info name="CPUModelNumber" value="143"/>
      <object type="NUMANode" os_index="0" cpuset="0x0000ffff" nodeset="0x1"/>
      <object type="Core" os_index="0" cpuset="0x1"><object type="PU" os_index="0"/></object>
      <object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0000:[00-05]">
        <object type="Bridge" bridge_type="1-1" pci_busid="0000:00:01.0" pci_type="0604 [8086:352a] [8086:0000] 11" pci_link_speed="63.015385">
          <object type="Bridge" bridge_type="1-1" pci_busid="0000:01:00.0" pci_type="0604 [1000:c030] [1000:0000] b0" pci_link_speed="31.507692">
            <object type="PCIDev" pci_busid="0000:03:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="63.015385"/>
            <object type="PCIDev" pci_busid="0000:04:00.0" pci_type="0207 [15b3:1021] [15b3:0041] 00" pci_link_speed="0.000000">
              <object type="OSDev" name="ib0" osdev_type="2"/>
              <object type="OSDev" name="mlx5_0" osdev_type="3"/>
            </object>
          </object>
        </object>
        <object type="PCIDev" pci_busid="0000:00:1f.0" pci_type="0601 [8086:1b81] [8086:0000] 11" pci_link_speed="0.000000"/>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x0000000f,0xffff0000">
      <object type="NUMANode" os_index="1" cpuset="0x0000000f,0xffff0000"/>
      <object type="NUMANode" os_index="2" cpuset="0x0000000f,0xffff0000" subtype="HBM"/>
    </object>
  </object>
</topology>
)";

Result<Description> parsed(std::string_view text) {
  TUTTI_TRY_ASSIGN(const auto document, XmlDocument::parse(text, "hwloc.xml"));
  return parseHwlocXml(*document);
}

std::string replaced(std::string_view from, std::string_view to) {
  std::string result(kMachine);
  const size_t at = result.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return result.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  const Result<Description> description = parsed(text);
  return description.ok() ? "" : std::string(description.status().message());
}

TEST(Hwloc, ShowsProcessorsAndWhatHangsBelowThem) {
  const Result<Description> description = parsed(kMachine);
  ASSERT_TRUE(description.ok()) << description.status().message();
  const std::vector<CpuNode>& cpus = description.value().cpus;
  ASSERT_EQ(cpus.size(), 2u);
  EXPECT_EQ(cpus[0].arch, CpuArch::kX86);
  EXPECT_EQ(cpus[1].vendor, CpuVendor::kIntel);
  EXPECT_EQ(cpus[1].model, 143);
  EXPECT_EQ(cpus[0].affinity, "0000ffff");
  EXPECT_EQ(cpus[1].affinity, "0000000f,ffff0000");
  ASSERT_EQ(cpus[0].devices.size(), 1u);
  const PciDevice& pciSwitch = cpus[0].devices[0];
  EXPECT_EQ(pciSwitch.busId, "0000:01:00.0");
  EXPECT_EQ(pciSwitch.linkSpeed, "16.0 GT/s PCIe");
  EXPECT_EQ(pciSwitch.linkWidth, 16);
  ASSERT_EQ(pciSwitch.children.size(), 2u);
  EXPECT_EQ(pciSwitch.children[0].deviceClass, 0x030200u);
  EXPECT_EQ(pciSwitch.children[0].linkSpeed, "32.0 GT/s PCIe");
  EXPECT_EQ(pciSwitch.children[0].ids.vendor, "0x10de");
  EXPECT_EQ(pciSwitch.children[1].nics.at(0).ports.at(0).name, "mlx5_0");
  EXPECT_EQ(pciSwitch.children[1].linkWidth, 0);
}

TEST(Hwloc, WithGpusIsASkeleton) {
  const Result<Topology> topology = buildTopology(parsed(kMachine).value());
  ASSERT_FALSE(topology.ok());
  EXPECT_THAT(std::string(topology.status().message()), HasSubstr("--profile"));
}

TEST(Hwloc, IsRefusedWithItsPlace) {
  EXPECT_THAT(refusal(replaced("version=\"2.0\"", "version=\"1.0\"")),
              HasSubstr("hwloc.xml:3:2: <topology>: hwloc XML of version \"1.0\""));
  EXPECT_THAT(refusal(replaced("0000:03:00.0", "../../../..")),
              HasSubstr("hwloc.xml:15:35: <object> pci_busid: wanted a bus id"));
  EXPECT_THAT(refusal(replaced("\"63.015385\"", "\"fast\"")),
              HasSubstr("<object> pci_link_speed: \"fast\""));
  EXPECT_THAT(refusal("<topology version=\"2.0\"><object type=\"Machine\"/></topology>"),
              HasSubstr("there is no NUMANode"));
}

}  // namespace
}  // namespace tutti::topology
