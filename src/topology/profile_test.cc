#include "topology/profile.h"

#include <gmock/gmock.h>

#include "topology/topology.h"
#include "topology/xml.h"

namespace tutti::topology {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Two accelerators, a NIC and a server's display adapter.
constexpr std::string_view kSkeleton =
    R"(<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="25" modelid="1">
    <pci busid="0001:00:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
    <pci busid="0002:00:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
    <pci busid="0101:00:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16"/>
    <pci busid="0000:08:00.0" class="0x030000" link_speed="2.5 GT/s PCIe" link_width="1"/>
  </cpu>
</system>
)";
constexpr std::string_view kProfile =
    R"(<profile version="1" name="two H100" sm="90" nvswitch="18" gdr="1">
  <gpu busid="0001:00:00.0"/>
  <gpu busid="0002:00:00.0" gdr="0"><nvlink target="0001:00:00.0" count="4"/></gpu>
  <nic busid="0101:00:00.0" name="mlx5_0" speed="400000" gdr="1"/>
</profile>
)";

Result<Profile> profileOf(std::string_view text) {
  TUTTI_TRY_ASSIGN(const auto document, XmlDocument::parse(text, "p.xml"));
  return parseProfile(*document);
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result(text);
  const size_t at = result.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return result.replace(at, from.size(), to);
}

Description skeleton(std::string_view text = kSkeleton) {
  return parseXml(text, "skeleton.xml").value();
}

std::string refusal(std::string_view skeletonText, std::string_view profileText) {
  const Result<Profile> profile = profileOf(profileText);
  if (!profile.ok()) return std::string(profile.status().message());
  const Result<Description> whole = complete(skeleton(skeletonText), profile.value());
  return whole.ok() ? "" : std::string(whole.status().message());
}

TEST(Profiles, CompleteASkeleton) {
  EXPECT_THAT(std::string(buildTopology(skeleton()).status().message()),
              testing::ContainsRegex("^skeleton.xml:[0-9]+:[0-9]+: 2 PCI devices look like GPUs"));
  const Description whole = complete(skeleton(), profileOf(kProfile).value()).value();
  const Gpu& first = *whole.cpus[0].devices[0].gpu;
  const Gpu& second = *whole.cpus[0].devices[1].gpu;
  EXPECT_EQ(first.smVersion, 90);
  EXPECT_EQ(second.rank, 1);
  EXPECT_TRUE(first.directNet);
  EXPECT_FALSE(second.directNet);
  EXPECT_EQ(first.nvLinks.at(0).count, 18);
  EXPECT_EQ(second.nvLinks.size(), 2u);
  EXPECT_EQ(whole.cpus[0].devices[2].nics.at(0).ports.at(0).speedMbps, 400'000);
  EXPECT_THAT(whole.assumptions, testing::ElementsAre("completed from profile two H100 (p.xml)"));
}

TEST(Profiles, MakeAMachineOfASkeleton) {
  const std::string text = replaced(kProfile, R"(<nvlink target="0001:00:00.0" count="4"/>)", "");
  const Result<Topology> topology =
      buildTopology(complete(skeleton(), profileOf(text).value()).value());
  ASSERT_TRUE(topology.ok()) << topology.status().message();
  EXPECT_EQ(nodesOf(topology.value(), NodeKind::kGpu).size(), 2u);
  EXPECT_EQ(nodesOf(topology.value(), NodeKind::kNvSwitch).size(), 1u);
}

TEST(Profiles, KeepTheNumbersThatTheMachineKnows) {
  Description machine = skeleton();
  machine.cpus[0].devices[0].gpu = Gpu{.device = 5, .rank = 7, .smVersion = 90};
  const Description whole = complete(machine, profileOf(kProfile).value()).value();
  EXPECT_EQ(whole.cpus[0].devices[0].gpu->device, 5);
  EXPECT_EQ(whole.cpus[0].devices[0].gpu->rank, 7);
}

TEST(Profiles, OfAnotherMachineAreRefusedWithEveryDifference) {
  const std::string text =
      replaced(replaced(kProfile, "<gpu busid=\"0001:00:00.0\"/>", "<gpu busid=\"0009:00:00.0\"/>"),
               "0101:00:00.0", "0102:00:00.0");
  EXPECT_THAT(refusal(kSkeleton, text),
              AllOf(HasSubstr("profile two H100 (p.xml) does not fit the machine of skeleton.xml"),
                    HasSubstr("0001:00:00.0: the machine has a GPU, the profile nothing"),
                    HasSubstr("0009:00:00.0: the profile has a GPU, the machine nothing"),
                    HasSubstr("0102:00:00.0: the profile has a NIC, the machine nothing")));
  EXPECT_THAT(refusal(replaced(kSkeleton, "class=\"0x020700\"", "class=\"0x010000\""), kProfile),
              HasSubstr("0101:00:00.0: the profile has a NIC, the machine a device of class "
                        "0x010000"));
}

TEST(Profiles, ThatAreWrongAreRefusedWithTheirPlace) {
  EXPECT_THAT(refusal(kSkeleton, replaced(kProfile, "version=\"1\"", "version=\"3\"")),
              HasSubstr("p.xml:1:2: <profile>: wanted <profile version=\"1\">"));
  EXPECT_THAT(refusal(kSkeleton, replaced(kProfile, " sm=\"90\"", "")),
              HasSubstr("p.xml:2:4: <gpu>: no compute capability"));
  EXPECT_THAT(refusal(kSkeleton, replaced(kProfile, "0002:00:00.0", "0001:00:00.0")),
              HasSubstr("p.xml:3:8: <gpu> busid: 0001:00:00.0 is there twice"));
  EXPECT_THAT(refusal(kSkeleton, replaced(kProfile, "0101:00:00.0", "a NIC")),
              HasSubstr("p.xml:4:4: <nic>: wanted a bus id"));
  EXPECT_THAT(refusal(kSkeleton, replaced(kProfile, "400000", "-4")),
              HasSubstr("p.xml:4:43: <nic> speed: \"-4\""));
  EXPECT_THAT(refusal(kSkeleton, replaced(kProfile, "<nic ", "<disk ")),
              HasSubstr("p.xml:4:4: <disk>: wanted <gpu> or <nic>"));
}

}  // namespace
}  // namespace tutti::topology
