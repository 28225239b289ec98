#include "topology/xml.h"

#include <gmock/gmock.h>

#include "base/rng.h"
#include "topology/machines_testing.h"

namespace tutti::topology {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// A small machine with everything that may be wrong about one.
constexpr std::string_view kMachine =
    R"(<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:10:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:11:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="80" rank="0" gdr="1">
          <nvlink target="0000:12:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:12:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="80" rank="1" gdr="1">
          <c2c bw="45000" count="2"/>
        </gpu>
      </pci>
      <pci busid="0000:13:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="200000" port="1" latency="0.5" guid="0x1" maxconn="10" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
)";

std::string with(std::string_view from, std::string_view to) {
  std::string text(kMachine);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// What reading and building say; "" when both succeed.
std::string fault(std::string_view text) {
  const Result<Description> description = parseXml(text, "m.xml");
  if (!description.ok()) return std::string(description.status().message());
  const Result<Topology> topology = buildTopology(description.value());
  return topology.ok() ? "" : std::string(topology.status().message());
}

TEST(Xml, OfAMachineIsRead) {
  const Result<Description> description = parseXml(kMachine, "m.xml");
  ASSERT_TRUE(description.ok());
  const CpuNode& cpu = description.value().cpus.at(0);
  EXPECT_EQ(cpu.vendor, CpuVendor::kIntel);
  const PciDevice& bridge = cpu.devices.at(0);
  EXPECT_EQ(bridge.children.at(0).gpu->nvLinks.at(0).count, 4);
  EXPECT_EQ(bridge.children.at(1).gpu->c2c->mbPerSecond, 45000);
  EXPECT_EQ(bridge.children.at(2).nics.at(0).ports.at(0).speedMbps, 200000);
  EXPECT_EQ(fault(kMachine), "");
}

TEST(Xml, TakesHexadecimalNumbersAndUnknownAttributes) {
  const Result<Description> description =
      parseXml(with(R"(dev="1" sm)", R"(dev="0x1f" keep="1" mlopart="2" sm)"), "m.xml");
  ASSERT_TRUE(description.ok());
  EXPECT_EQ(description.value().cpus[0].devices[0].children[1].gpu->device, 31);
}

TEST(Xml, NamesWhatItLeavesOut) {
  const Result<Description> description = parseXml(with("<nic>", "<nic><gin dev=\"0\"/>"), "m.xml");
  ASSERT_TRUE(description.ok());
  ASSERT_EQ(description.value().assumptions.size(), 1u);
  EXPECT_EQ(description.value().assumptions[0], "m.xml:15: <gin> is not known: left out");
}

TEST(Xml, KeepsNamesWithMarks) {
  Description description = parseXml(kMachine, "m.xml").value();
  description.cpus[0].devices[0].children[2].nics[0].ports[0].name = R"(a<b>&"c")";
  const Result<Description> again = parseXml(writeXml(description), "again");
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again.value() == description);
}

TEST(Xml, IsRefusedWithItsPlace) {
  const struct {
    std::string text;
    std::string wanted;
  } cases[] = {
      {"", "m.xml:1:1: No document element found|m.xml:1:1: no XML element"},
      {"hello", "m.xml:1:[0-9]+: "},
      {std::string(kMachine.substr(0, 500)), "m.xml:[0-9]+:[0-9]+: "},
      {std::string(kMachine.substr(0, kMachine.size() - 12)), "m.xml:[0-9]+:[0-9]+: "},
      {with("<system version=\"1\">", "<system version=\"7\">"),
       "m.xml:1:2: <system>: version \"7\""},
      {"<graphs version=\"1\"></graphs>", "m.xml:1:2: <graphs>: wanted <system>"},
      {with("count=\"4\"", "count=\"-4\""),
       "m.xml:6:41: <nvlink> count: \"-4\": wanted a number from 1 to 1024"},
      {with("45000", "-45000"), "m.xml:11:16: <c2c> bw: \"-45000\": wanted a number from 0"},
      {with("45000", "nan"), "m.xml:11:16: <c2c> bw: \"nan\""},
      {with("200000", "-1"), "m.xml:16:38: <net> speed: \"-1\""},
      {with("sm=\"80\"", "sm=\"eighty\""), "m.xml:5:22: <gpu> sm: \"eighty\""},
      {with("dev=\"0\"", ""), "m.xml:5:10: <gpu>: attribute dev is missing"},
      {with("0000:11:00.0", "0000:12:00.0"),
       "m.xml:9:8: bus id 0000:12:00.0 is there twice; the other is in line 4"},
      {with("target=\"0000:12:00.0\"", "target=\"0000:77:00.0\""),
       "m.xml:6:12: an NVLink leads to 0000:77:00.0, where no GPU"},
      {with("target=\"0000:12:00.0\"", "target=\"0000:11:00.0\""),
       "m.xml:6:12: an NVLink leads from 0000:11:00.0 to itself"},
      {with("target=\"0000:12:00.0\"", "target=\"../../etc\""),
       "m.xml:6:19: <nvlink> target: \"../../etc\": wanted a bus id"},
      {with("tclass=\"0x030200\"", "tclass=\"0x020000\""),
       "m.xml:6:51: <nvlink> tclass: 0x020000 is no GPU"},
      {with("rank=\"1\"", "rank=\"0\""),
       "m.xml:10:10: two GPUs have rank 0; the other is in line 5"},
      {with("rank=\"1\"", "rank=\"1\" rank=\"1\""), "m.xml:10:39: attribute rank is there twice"},
      {with("<net ", "<tent "), "m.xml:15:10: a NIC has no port"},
      {with("mlx5_0", "&lol;"), "m.xml:16:16: <net> name: entity &lol is not accepted"},
      {"<!DOCTYPE system [<!ENTITY lol \"lol\">]>\n" + std::string(kMachine),
       "m.xml:1:[0-9]+: a document type"},
      {std::string(kMachine) + "<system version=\"1\"/>", "m.xml:22:2: a second element"},
      {"<system version=\"1\"></system>", "m.xml:1:2: <system>: there is no <cpu> in it"},
      {with("modelid=\"143\">", "modelid=\"143\"/><cpu numaid=\"0\">"),
       "m.xml:2:[0-9]+: there are two CPUs with numaid 0"},
      {std::string(kMachine).replace(30, 1, 1, '\0'), "m.xml:[0-9]+:[0-9]+: a zero byte"},
  };
  for (const auto& each : cases) {
    const std::string said = fault(each.text);
    EXPECT_THAT(said, MatchesRegex("(" + each.wanted + ")(.|\n)*")) << each.text.substr(0, 200);
  }
}

TEST(Xml, WithUnequalEndsOfALinkIsRefused) {
  const std::string text = with(R"(<c2c bw="45000" count="2"/>)",
                                R"(<nvlink target="0000:11:00.0" count="2" tclass="0x030200"/>)");
  EXPECT_THAT(fault(text),
              HasSubstr("m.xml:11:12: GPU 1 has 2 NVLinks to GPU 0, which has 4 back"));
}

TEST(Xml, IsRefusedBeforeItBecomesLarge) {
  std::string deep = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int i = 0; i < 10'000; ++i) deep += "<pci busid=\"0000:00:00.0\">";
  for (int i = 0; i < 10'000; ++i) deep += "</pci>";
  EXPECT_THAT(fault(deep + "</cpu></system>"),
              HasSubstr("elements within elements, more than 64 deep"));
  std::string many = "<system version=\"1\">";
  for (int i = 0; i < 200'000; ++i) many += "<a/>";
  EXPECT_THAT(fault(many + "</system>"), HasSubstr("more than 65536 elements"));
  EXPECT_EQ(fault(std::string(5_MiB, ' ')), "m.xml:1:4194305: more than 4194304 bytes");
  EXPECT_EQ(fault(std::string(5_MiB, '\n')), "m.xml:4194305:1: more than 4194304 bytes");
  std::string wide = "<system version=\"1\" ";
  for (int i = 0; i < 300'000; ++i) wide += fmt::format("a{}=\"\" ", i);
  EXPECT_THAT(fault(wide + "/>"), HasSubstr("more than 32 attributes"));
  EXPECT_THAT(fault("<system version=\"" + std::string(10'000, '1') + "\"/>"),
              HasSubstr("a value longer than 4096 bytes"));
}

std::string repeated(int count, std::string (*line)(int)) {
  std::string text = "<system version=\"1\">\n";
  for (int i = 0; i < count; ++i) text += line(i);
  return text + "</system>\n";
}

// What grows with the square of a file: sockets joined to each other, paths between all ends.
TEST(Xml, IsRefusedWhereItDescribesMoreThanAMachine) {
  EXPECT_THAT(
      fault(repeated(20'000, [](int i) { return fmt::format("<cpu numaid=\"{}\"/>\n", i); })),
      HasSubstr("m.xml:258:2: more than 256 CPUs on one host"));
  const std::string ports = repeated(30'000, [](int i) {
    return fmt::format("{}<nic><net dev=\"{}\"/></nic>\n", i == 0 ? "<cpu numaid=\"0\">" : "", i);
  });
  EXPECT_THAT(fault(std::string(ports).insert(ports.rfind("</system>"), "</cpu>")),
              HasSubstr(":7: more than 288 CPUs, GPUs and network ports on one host"));
  EXPECT_THAT(fault(repeated(20'000,
                             [](int i) {
                               return fmt::format("<cpu numaid=\"0\" host_hash=\"0x{:x}\"/>\n", i);
                             })),
              HasSubstr("m.xml:2050:2: more than 2048 CPUs, GPUs and network ports"));
}

TEST(Xml, MayNameItsDocumentType) {
  EXPECT_EQ(fault("<?xml version=\"1.0\"?>\n<!DOCTYPE system SYSTEM \"/dev/zero\">\n" +
                  std::string(kMachine)),
            "");
}

TEST(Xml, InOtherEncodingsIsReadOrRefused) {
  EXPECT_EQ(fault("\xef\xbb\xbf" + std::string(kMachine)), "");
  std::string wide = "\xff\xfe";
  for (const char c : kMachine) wide += {c, '\0'};
  EXPECT_THAT(fault(wide), HasSubstr("m.xml:1:4: a zero byte"));
}

// Each mutation must end in a description or in one error; the sanitizers watch.
TEST(Xml, SurvivesMutations) {
  constexpr int kRounds = 3000;
  SeededRng rng(20261121);
  std::vector<std::string> seeds = {std::string(kMachine)};
  for (const char* name : {"gh200", "power9_ac922", "workstation_2x4090"})
    seeds.push_back(readText(goldenFolder() / (std::string(name) + ".xml")));
  for (int round = 0; round < kRounds; ++round) {
    std::string text = seeds[rng.next() % seeds.size()];
    const uint64_t changes = 1 + rng.next() % 4;
    for (uint64_t i = 0; i < changes && !text.empty(); ++i) {
      const size_t at = rng.next() % text.size();
      const size_t length = std::min<size_t>(text.size() - at, rng.next() % 40);
      switch (rng.next() % 5) {
        case 0: text[at] = static_cast<char>(rng.next()); break;
        case 1: text.erase(at, length); break;
        case 2: text.insert(at, text.substr(rng.next() % text.size(), length)); break;
        case 3: text[at] = static_cast<char>('0' + rng.next() % 10); break;
        default: text.resize(at); break;
      }
    }
    const Result<Description> description = parseXml(text, "mutant");
    if (!description.ok()) continue;
    const Result<Topology> topology = buildTopology(description.value());
    if (topology.ok()) static_cast<void>(computePaths(topology.value()));
  }
}

}  // namespace
}  // namespace tutti::topology
