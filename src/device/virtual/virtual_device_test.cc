#include "device/virtual/virtual_device.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "base/units.h"
#include "device/registry.h"

namespace tutti::device::virt {
namespace {

TEST(VirtualDevice, GivesOutMoreMemoryThanThereIs) {
  VirtualDevice device(7);
  const size_t huge = 4 * static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* memory = device.allocate(huge).value();
  auto* bytes = static_cast<char*>(memory);
  EXPECT_EQ(bytes[huge - 1], 0);
  bytes[huge / 2] = 1;
  EXPECT_EQ(bytes[huge / 2], 1);
  EXPECT_TRUE(device.free(memory).ok());
  EXPECT_EQ(device.free(memory).code(), Code::kInvalidArgument);
}

TEST(VirtualDevice, IsOneOfTheRegistry) {
  const auto device = openDevice(DeviceKind::kVirtual, {.index = 5}).value();
  EXPECT_TRUE(device->caps().isVirtual);
  EXPECT_EQ(device->caps().index, 5);
}

TEST(VirtualDevice, TakesAnyStreamAndRunsNothing) {
  VirtualDevice device(0);
  int notAStream = 0;
  EXPECT_TRUE(device.resolve(&notAStream).ok());
  EXPECT_EQ(device.enqueue(nullptr, {}).code(), Code::kInternalError);
}

}  // namespace
}  // namespace tutti::device::virt
