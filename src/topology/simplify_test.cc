#include "topology/simplify.h"

#include <gmock/gmock.h>

namespace tutti::topology {
namespace {

using testing::ElementsAre;

PciDevice bridge(const std::string& busId, const std::string& speed, int32_t lanes,
                 std::vector<PciDevice> children) {
  return {.busId = busId,
          .deviceClass = 0x060400,
          .linkSpeed = speed,
          .linkWidth = lanes,
          .children = std::move(children)};
}

PciDevice gpu(const std::string& busId) {
  return {.busId = busId,
          .deviceClass = 0x030200,
          .linkSpeed = "32.0 GT/s PCIe",
          .linkWidth = 16,
          .gpu = Gpu{}};
}

Description with(std::vector<PciDevice> devices) {
  return {.cpus = {CpuNode{.devices = std::move(devices)}}};
}

// Root port, switch port upwards, two ports downwards: one switch remains.
TEST(Simplify, LeavesOneBridgeOfASwitch) {
  Description description = with(
      {bridge("0000:00:01.0", "16.0 GT/s PCIe", 16,
              {bridge("0000:01:00.0", "32.0 GT/s PCIe", 16,
                      {bridge("0000:02:00.0", "32.0 GT/s PCIe", 16, {gpu("0000:03:00.0")}),
                       bridge("0000:02:01.0", "16.0 GT/s PCIe", 8, {gpu("0000:04:00.0")})})})});
  joinBridges(description);
  const PciDevice& top = description.cpus[0].devices.at(0);
  EXPECT_EQ(top.busId, "0000:01:00.0");
  EXPECT_EQ(top.linkSpeed, "16.0 GT/s PCIe");  // the root port's
  ASSERT_EQ(top.children.size(), 2u);
  EXPECT_EQ(top.children[0].busId, "0000:03:00.0");
  EXPECT_EQ(top.children[0].linkSpeed, "32.0 GT/s PCIe");
  EXPECT_EQ(top.children[1].linkSpeed, "16.0 GT/s PCIe");
  EXPECT_EQ(top.children[1].linkWidth, 8);
}

TEST(Simplify, KeepsWhatIsKnownOfALink) {
  PciDevice below = gpu("0000:03:00.0");
  below.linkSpeed.clear();
  Description description = with({bridge("0000:00:01.0", "8.0 GT/s PCIe", 8, {below}),
                                  bridge("0000:00:02.0", "", 0, {gpu("0000:04:00.0")})});
  joinBridges(description);
  EXPECT_EQ(description.cpus[0].devices[0].linkSpeed, "8.0 GT/s PCIe");
  EXPECT_EQ(description.cpus[0].devices[1].linkSpeed, "32.0 GT/s PCIe");
}

TEST(Simplify, DropsDisplaysAndTheBridgesThatLedToThem) {
  Description description = with(
      {bridge(
           "0000:00:01.0", "", 0,
           {bridge("0000:01:00.0", "", 0, {{.busId = "0000:02:00.0", .deviceClass = 0x030000}})}),
       gpu("0000:05:00.0")});
  dropUnnamedGpus(description);
  ASSERT_EQ(description.cpus[0].devices.size(), 1u);
  EXPECT_EQ(description.cpus[0].devices[0].busId, "0000:05:00.0");
  EXPECT_THAT(description.assumptions, ElementsAre(testing::StartsWith("0000:02:00.0: a display")));
}

}  // namespace
}  // namespace tutti::topology
