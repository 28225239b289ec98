// The order of what copy engines do, on a device that only writes it down.
#include "launch/copy_engines.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/accelerator_testing.h"

namespace tutti::launch {
namespace {

using testing::ElementsAre;

// Streams and events are numbers; 1 is the user's stream.
class FakeDevice final : public device::EmptyAccelerator {
 public:
  std::vector<std::string> log;
  int streams = 0, events = 0;

  Status launch(const device::KernelLaunch& launch, void* stream) override {
    return note("kernel of {} blocks on {}", launch.blocks, stream);
  }
  Status copyOnStream(void*, const void*, size_t bytes, void* stream) override {
    return note("copy of {} on {}", bytes, stream);
  }
  Status record(device::Event* event, void* stream) override {
    return note("event {} on {}", event, stream);
  }
  Status wait(void* stream, device::Event* event) override {
    return note("{} awaits {}", stream, event);
  }
  Result<void*> createStream() override {
    return reinterpret_cast<void*>(uintptr_t{2} + static_cast<uintptr_t>(streams++));
  }
  void destroyStream(void* stream) override { streams -= stream != nullptr ? 1 : 0; }
  Result<device::Event*> createEvent() override {
    return reinterpret_cast<device::Event*>(uintptr_t{1} + static_cast<uintptr_t>(events++));
  }
  void destroyEvent(device::Event* event) override { events -= event != nullptr ? 1 : 0; }

 private:
  template <typename First, typename Second>
  Status note(const char* text, First first, Second second) {
    log.push_back(fmt::format(fmt::runtime(text), plain(first), plain(second)));
    return {};
  }
  template <typename T>
  static uintptr_t plain(T* address) {
    return reinterpret_cast<uintptr_t>(address);
  }
  static uintptr_t plain(uint64_t number) { return number; }
};

void* const kUsers = reinterpret_cast<void*>(uintptr_t{1});

TEST(CopyEnginesTest, TheCopyLiesBetweenTheKernelsAndTheOwnBlockBeside) {
  FakeDevice device;
  {
    CopyEngines engines(device);
    ASSERT_TRUE(engines.open().ok());
    ASSERT_TRUE(engines.open().ok()) << "again, for nothing";
    EXPECT_EQ(device.streams, 1);
    EngineWork work;
    work.toPeers[0].bytes = 100;
    work.toPeerCount = 1;
    ASSERT_TRUE(engines.launch({.blocks = 16}, work, kUsers).ok());
    EXPECT_THAT(device.log, ElementsAre("kernel of 16 blocks on 1", "copy of 100 on 1",
                                        "kernel of 16 blocks on 1"))
        << "in place nothing forks";
    device.log.clear();
    work.toPeers[1].bytes = 101;
    work.toPeerCount = 2;
    ASSERT_TRUE(engines.launch({.blocks = 8}, work, kUsers).ok());
    EXPECT_THAT(device.log, ElementsAre("kernel of 8 blocks on 1", "copy of 100 on 1",
                                        "copy of 101 on 1", "kernel of 8 blocks on 1"))
        << "to two peers";
    device.log.clear();
    work.toPeerCount = 1;
    work.ownBlocks = 64;
    ASSERT_TRUE(engines.launch({.blocks = 16}, work, kUsers).ok());
    EXPECT_THAT(device.log,
                ElementsAre("event 1 on 1", "kernel of 16 blocks on 1", "copy of 100 on 1",
                            "2 awaits 1", "kernel of 64 blocks on 2", "event 2 on 2",
                            "kernel of 16 blocks on 1", "1 awaits 2"));
  }
  EXPECT_EQ(device.streams, 0);
  EXPECT_EQ(device.events, 0);
}

TEST(CopyEnginesTest, KernelsSendWhereThereIsNothingToCopy) {
  FakeDevice device;
  CopyEngines engines(device);
  ASSERT_TRUE(engines.open().ok());
  EngineWork work;
  work.ownByEngine.bytes = 7;
  ASSERT_TRUE(engines.launch({.blocks = 16}, work, kUsers).ok());
  EXPECT_THAT(device.log, ElementsAre("event 1 on 1", "2 awaits 1", "copy of 7 on 2",
                                      "event 2 on 2", "kernel of 16 blocks on 1", "1 awaits 2"));
}

}  // namespace
}  // namespace tutti::launch
