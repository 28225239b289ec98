#include "launch/device_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "device/accelerator_testing.h"

namespace tutti::launch {
namespace {

using testing::Each;
using testing::HasSubstr;

class Words final : public device::SharedWords {
 public:
  explicit Words(size_t bytes) : memory_(bytes) {}
  void* hostAddress() const override { return const_cast<std::byte*>(memory_.data()); }
  void* deviceAddress() const override { return hostAddress(); }

 private:
  std::vector<std::byte> memory_;
};

// What is put on its stream runs at once, but words are written when it is not stuck.
class FakeGpu final : public device::EmptyAccelerator {
 public:
  std::vector<std::byte> memory = std::vector<std::byte>(64 << 10);
  bool isStuck = false;
  bool hasFailed = false;

  Result<void*> createUrgentStream() override { return static_cast<void*>(this); }
  Result<device::Event*> createEvent() override { return reinterpret_cast<device::Event*>(this); }
  Result<std::unique_ptr<device::SharedWords>> makeWords(size_t bytes) override {
    return std::unique_ptr<device::SharedWords>(std::make_unique<Words>(bytes));
  }
  Result<const device::Kernel*> findKernel(std::span<const unsigned char>, const char*,
                                           uint32_t) override {
    return reinterpret_cast<const device::Kernel*>(this);
  }
  Result<device::MemoryPlace> placeOf(const void* address) override {
    const auto* byte = static_cast<const std::byte*>(address);
    const bool isHere = byte >= memory.data() && byte < memory.data() + memory.size();
    return isHere ? device::MemoryPlace::kThisDevice : device::MemoryPlace::kUnknownHost;
  }
  Status copyOnStream(void* to, const void* from, size_t bytes, void* stream) override {
    EXPECT_EQ(stream, this);
    std::memcpy(to, from, bytes);
    return {};
  }
  Status writeWord(void* word, uint32_t value, void* stream) override {
    EXPECT_EQ(stream, this);
    if (!isStuck) std::memcpy(word, &value, sizeof value);
    return {};
  }
  Result<bool> isDone(device::Event*) override {
    if (hasFailed) return Status(Code::kUnhandledCudaError, "the GPU has failed");
    return true;
  }
};

class DeviceFolderTest : public testing::Test {
 protected:
  std::byte* place(size_t number) { return gpu_.memory.data() + number * 4096; }
  Result<kernels::GpuFolder::Ticket> copy(void* to, const void* from) {
    const std::array<const void*, 1> sources = {from};
    const std::array<void*, 1> destinations = {to};
    return folder_->start({.type = DataType::kInt8},
                          {.sources = sources, .destinations = destinations, .elementCount = 4096});
  }

  FakeGpu gpu_;
  std::unique_ptr<DeviceFolder> folder_ = DeviceFolder::open(gpu_).value();
};

TEST_F(DeviceFolderTest, CopiesWithinTheGpusMemory) {
  std::memset(place(0), 7, 4096);
  auto ticket = copy(place(1), place(0));
  ASSERT_TRUE(ticket.ok()) << ticket.status().message();
  EXPECT_TRUE(folder_->isDone(*ticket).value());
  EXPECT_THAT(std::span(place(1), 4096), Each(std::byte{7}));
}

// By way of pinned memory; what comes back is there when the ticket is through, not before.
TEST_F(DeviceFolderTest, MemoryThatTheGpuDoesNotKnowGoesByWayOfPinned) {
  std::vector<std::byte> in(4096, std::byte{5}), out(4096, std::byte{0});
  auto there = copy(place(0), in.data());
  ASSERT_TRUE(there.ok());
  auto back = copy(out.data(), place(0));
  ASSERT_TRUE(back.ok());
  EXPECT_THAT(out, Each(std::byte{0}));
  EXPECT_TRUE(folder_->isDone(*back).value());
  EXPECT_THAT(out, Each(std::byte{5}));
}

// What is under way keeps its part of the pinned memory.
TEST_F(DeviceFolderTest, PinnedMemoryIsHandedOutAgain) {
  std::vector<std::byte> in(4096);
  for (size_t i = 0; i < 3 * DeviceFolder::kBounceBytes / in.size(); ++i) {
    std::memset(in.data(), static_cast<int>(i % 256), in.size());
    ASSERT_TRUE(copy(place(i % 8), in.data()).ok());
    EXPECT_EQ(*place(i % 8), static_cast<std::byte>(i % 256));
  }
}

TEST_F(DeviceFolderTest, IsNotDoneBeforeTheGpuIs) {
  gpu_.isStuck = true;
  auto ticket = copy(place(1), place(0));
  ASSERT_TRUE(ticket.ok());
  EXPECT_FALSE(folder_->isDone(*ticket).value());
  EXPECT_FALSE(folder_->isIdle());
  gpu_.isStuck = false;
  ASSERT_TRUE(copy(place(1), place(0)).ok());
  EXPECT_TRUE(folder_->isDone(*ticket).value());
  EXPECT_TRUE(folder_->isIdle());
}

// A GPU that has failed is asked now and then, so nobody waits for it for good.
TEST_F(DeviceFolderTest, AGpuThatHasFailedEndsTheWait) {
  gpu_.isStuck = true;
  auto ticket = copy(place(1), place(0));
  ASSERT_TRUE(ticket.ok());
  gpu_.hasFailed = true;
  Status failure;
  for (int looks = 0; looks < 100'000 && failure.ok(); ++looks)
    failure = folder_->isDone(*ticket).takeStatus();
  EXPECT_THAT(std::string(failure.message()), HasSubstr("the GPU has failed"));
}

TEST_F(DeviceFolderTest, ScalesNothing) {
  const std::array<const void*, 2> sources = {place(0), place(1)};
  const std::array<void*, 1> destinations = {place(2)};
  auto ticket = folder_->start(
      {},
      {.sources = sources, .destinations = destinations, .elementCount = 16, .scaledSource = 0});
  EXPECT_THAT(std::string(ticket.status().message()), HasSubstr("scales none"));
}

}  // namespace
}  // namespace tutti::launch
