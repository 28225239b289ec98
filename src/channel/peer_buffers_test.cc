#include "channel/peer_buffers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>

#include "bootstrap/test_job.h"
#include "device/accelerator_testing.h"

namespace tutti::channel {
namespace {

using device::Allocation;
using device::DeviceMemory;
using device::SharingHandle;

// What a peer has mapped lies this much further for it, so that a mixed-up address shows.
constexpr uintptr_t kShift = uintptr_t{1} << 40;

class FakeMapping final : public DeviceMemory {
 public:
  FakeMapping(void* address, size_t bytes, std::atomic<int>& count)
      : address_(address), bytes_(bytes), count_(count) {
    ++count_;
  }
  ~FakeMapping() override { --count_; }
  void* address() const override { return address_; }
  size_t bytes() const override { return bytes_; }
  Result<UniqueFd> exportHandle() const override { return internalError("not asked for"); }

 private:
  void* const address_;
  const size_t bytes_;
  std::atomic<int>& count_;
};

// One allocation, which a test replaces.
class FakeGpu final : public device::EmptyAccelerator {
 public:
  Allocation memory;
  bool canImport = true;
  bool canExport = true;
  std::atomic<int> mappings{0};
  std::atomic<int> reached{0};

  Result<Allocation> allocationOf(const void*) override { return memory; }
  uint64_t allocationId(const void*) override { return memory.id; }
  Result<SharingHandle> exportAllocation(const Allocation& allocation) override {
    if (!canExport) return Status(Code::kInvalidUsage, "not made to be shared");
    SharingHandle handle;
    std::memcpy(handle.legacy.data(), &allocation.base, sizeof allocation.base);
    handle.isLegacy = true;
    return handle;
  }
  Result<std::unique_ptr<DeviceMemory>> importLegacy(const std::array<std::byte, 64>& handle,
                                                     size_t bytes) override {
    if (!canImport) return internalError("no room for a mapping");
    std::byte* base = nullptr;
    std::memcpy(&base, handle.data(), sizeof base);
    return std::unique_ptr<DeviceMemory>(
        std::make_unique<FakeMapping>(base + kShift, bytes, mappings));
  }
  Status reachDevice(int32_t) override {
    ++reached;
    return {};
  }
  Status copy(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
};

constexpr size_t kBytes = size_t{8} << 20;

// Three ranks, of which the first two are in one process.
class PeerBuffersTest : public testing::Test {
 protected:
  static constexpr int32_t kRanks = 3;

  void SetUp() override {
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      bootstrap::PeerInfo info;
      info.rank = rank;
      info.processHash = rank < 2 ? 7 : 8;
      info.deviceIndex = rank;
      peers_.push_back(info);
      gpu(rank).memory = {.base = baseOf(rank), .bytes = kBytes, .id = 1};
    }
    results_ = job_.run({0, 1, 2}, nullptr);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      auto& bootstrap = results_[static_cast<size_t>(rank)].bootstrap;
      ASSERT_NE(bootstrap, nullptr);
      buffers_.push_back(std::make_unique<PeerBuffers>(
          PeerBuffers::Parts{.bootstrap = *bootstrap,
                             .handoff = handoff_,
                             .peers = peers_,
                             .accelerator = gpu(rank),
                             .clock = steadyClock(),
                             .timeout = std::chrono::seconds(5),
                             .alive = alive_[static_cast<size_t>(rank)].data()}));
    }
  }

  static std::byte* baseOf(int32_t rank) {
    return reinterpret_cast<std::byte*>((static_cast<uintptr_t>(rank) + 1) << 32);
  }
  FakeGpu& gpu(int32_t rank) { return gpus_[static_cast<size_t>(rank)]; }
  PeerBuffers& at(int32_t rank) { return *buffers_[static_cast<size_t>(rank)]; }
  // Everyone's mail is looked at until `isDone`, or for long enough to say that it is not.
  bool pollUntil(const std::function<bool()>& isDone, uint64_t finished = 0) {
    for (int round = 0; round < 2000; ++round) {
      for (int32_t rank = 0; rank < kRanks; ++rank) at(rank).poll(finished);
      if (isDone()) return true;
      at(0).settle(std::chrono::microseconds(100), finished);
      bootstrap::pauseFor(std::chrono::milliseconds(1));
    }
    return false;
  }
  std::optional<wire::GpuReach> find(int32_t rank, size_t offset = 0, size_t bytes = kBytes,
                                     bool isCaptured = false) {
    wire::GpuReach reach{};
    const bool isFound = at(rank).find({.buffer = gpu(rank).memory.base + offset,
                                        .bytes = bytes,
                                        .launch = 5,
                                        .isCaptured = isCaptured},
                                       reach);
    return isFound ? std::optional(reach) : std::nullopt;
  }
  bool reaches(int32_t rank) { return find(rank).has_value(); }

  bootstrap::TestJob job_{kRanks};
  bootstrap::Handoff handoff_;
  std::vector<bootstrap::PeerInfo> peers_;
  std::array<FakeGpu, kRanks> gpus_;
  std::array<std::array<uint32_t, wire::kGpuMaxAlive>, kRanks> alive_{};
  std::vector<bootstrap::RankResult> results_;
  std::vector<std::unique_ptr<PeerBuffers>> buffers_;
  const int handle_ = 0;
};

TEST_F(PeerBuffersTest, ABufferIsReachedOnceAllPeersHaveMappedIt) {
  ASSERT_TRUE(at(0).add(&handle_, baseOf(0), kBytes).ok());
  EXPECT_FALSE(reaches(0)) << "before anybody answered";
  ASSERT_TRUE(pollUntil([&] { return reaches(0); }));
  const auto reach = find(0, 4096, 4096);
  ASSERT_TRUE(reach.has_value());
  EXPECT_EQ(reach->output[1], baseOf(0) + 4096) << "of the same process: as it is";
  EXPECT_EQ(reach->output[2], baseOf(0) + kShift + 4096) << "of another: as that one mapped it";
  EXPECT_EQ(reach->alive, nullptr);
  EXPECT_EQ(gpu(1).reached.load(), 1);
  EXPECT_EQ(gpu(2).mappings.load(), 1);
}

TEST_F(PeerBuffersTest, OnlyWhatIsRegisteredIsReached) {
  ASSERT_TRUE(at(0).add(&handle_, baseOf(0) + 4096, 4096).ok());
  ASSERT_TRUE(pollUntil([&] { return find(0, 4096, 4096).has_value(); }));
  EXPECT_FALSE(find(0, 4096, 4097).has_value());
  EXPECT_FALSE(find(0, 4095, 16).has_value());
  EXPECT_FALSE(find(0, 0, 16).has_value());
}

TEST_F(PeerBuffersTest, MemoryThatTookTheAddressOfFreedOneIsNotTakenForIt) {
  ASSERT_TRUE(at(0).add(&handle_, baseOf(0), kBytes).ok());
  ASSERT_TRUE(pollUntil([&] { return reaches(0); }));
  gpu(0).memory.id = 2;
  EXPECT_FALSE(reaches(0));
  EXPECT_TRUE(pollUntil([&] { return gpu(2).mappings == 0; }, 5)) << "its peers let it go";
  EXPECT_FALSE(reaches(0));

  const int again = 0;
  ASSERT_TRUE(at(0).add(&again, baseOf(0), kBytes).ok());
  EXPECT_TRUE(pollUntil([&] { return reaches(0); }));
}

TEST_F(PeerBuffersTest, PeersHearOfFreedMemoryThatNobodyCallsWith) {
  ASSERT_TRUE(at(0).add(&handle_, baseOf(0), kBytes).ok());
  ASSERT_TRUE(pollUntil([&] { return gpu(2).mappings == 1; }));
  gpu(0).memory.id = 0;
  EXPECT_TRUE(pollUntil([&] { return gpu(2).mappings == 0; }));
}

TEST_F(PeerBuffersTest, AMappingStaysUntilTheLastCallThatUsedItHasEnded) {
  ASSERT_TRUE(at(0).add(&handle_, baseOf(0), kBytes).ok());
  ASSERT_TRUE(pollUntil([&] { return reaches(0); }));  // in launch 5
  at(0).remove(&handle_);
  EXPECT_FALSE(reaches(0));
  for (int round = 0; round < 20; ++round) pollUntil([] { return true; }, 4);
  EXPECT_EQ(gpu(2).mappings.load(), 1);
  EXPECT_TRUE(pollUntil([&] { return gpu(2).mappings == 0; }, 5));
}

TEST_F(PeerBuffersTest, TwoRegistrationsOfAnAllocationAreOneMapping) {
  const int second = 0;
  ASSERT_TRUE(at(0).add(&handle_, baseOf(0), 4096).ok());
  ASSERT_TRUE(at(0).add(&second, baseOf(0) + 4096, 4096).ok());
  ASSERT_TRUE(pollUntil([&] { return find(0, 4096, 4096).has_value(); }));
  EXPECT_EQ(gpu(2).mappings.load(), 1);
  at(0).remove(&handle_);
  EXPECT_FALSE(find(0, 0, 4096).has_value());
  EXPECT_TRUE(find(0, 4096, 4096).has_value());
}

TEST_F(PeerBuffersTest, WhatOnePeerCannotMapIsReachedByNone) {
  gpu(2).canImport = false;
  ASSERT_TRUE(at(0).add(&handle_, baseOf(0), kBytes).ok());
  at(0).settle(std::chrono::milliseconds(0), 0);
  for (int round = 0; round < 50; ++round) pollUntil([] { return true; });
  EXPECT_FALSE(reaches(0));
}

TEST_F(PeerBuffersTest, AGraphsCallLearnsThatItsBufferIsGone) {
  EXPECT_TRUE(at(0).addForGraph(baseOf(0), kBytes));
  EXPECT_FALSE(at(0).addForGraph(baseOf(0), 4096)) << "offered already";
  ASSERT_TRUE(pollUntil([&] { return find(0, 0, kBytes, true).has_value(); }));
  EXPECT_FALSE(reaches(0)) << "nobody registered it for other calls";
  const auto reach = find(0, 0, kBytes, true);
  ASSERT_NE(reach->alive, nullptr);
  EXPECT_EQ(*reach->alive, 1u);
  gpu(0).memory.id = 2;
  at(0).poll(0);
  EXPECT_EQ(*reach->alive, 0u);
}

TEST_F(PeerBuffersTest, ARankKnowsWhereItHasTheSamePlaceOfItsPeersWindows) {
  constexpr size_t kOffset = 8192;
  PeerBuffers::Places theirs{};
  const auto findOf2 = [&](size_t offset, size_t bytes, bool isCaptured = false) {
    return at(2).findInWindow(
        {.buffer = baseOf(2) + kOffset + offset, .bytes = bytes, .isCaptured = isCaptured}, theirs);
  };
  ASSERT_TRUE(at(2).add(&handle_, baseOf(2), 4096).ok());
  EXPECT_FALSE(findOf2(0, 4096)) << "registered, but in no window";
  const auto kind = PeerBuffers::Kind::kWindow;
  const int window = 0;
  ASSERT_TRUE(at(2).add(&window, baseOf(2) + kOffset, 4096, kind).ok());
  ASSERT_TRUE(findOf2(16, 4080));
  EXPECT_EQ(theirs[0], nullptr) << "it has told of none yet";
  for (const int32_t rank : {0, 1})
    ASSERT_TRUE(at(rank).add(&window, baseOf(rank), 2048, kind).ok());
  ASSERT_TRUE(
      pollUntil([&] { return findOf2(16, 2032) && theirs[0] != nullptr && theirs[1] != nullptr; }));
  EXPECT_EQ(theirs[0], baseOf(0) + kShift + 16);
  EXPECT_EQ(theirs[1], baseOf(1) + kShift + 16);
  ASSERT_TRUE(findOf2(16, 2033));
  EXPECT_EQ(theirs[0], nullptr) << "its window is shorter";
  EXPECT_FALSE(findOf2(16, 4081));

  EXPECT_TRUE(findOf2(0, 16, true));
  for (const int32_t rank : {0, 1}) at(rank).remove(&window);
  EXPECT_TRUE(pollUntil([&] { return findOf2(0, 16) && theirs[0] == nullptr; }));
  EXPECT_EQ(gpu(2).mappings.load(), 2) << "graphs may write there";
  at(2).remove(&window);
  EXPECT_FALSE(findOf2(0, 16));
  auto graphs = std::make_shared<int>();
  at(2).leaveToGraphs(graphs);
  buffers_[2].reset();
  EXPECT_EQ(gpu(2).mappings.load(), 2) << "though it has gone";
  graphs.reset();
  gpu(2).keepFor({}, nullptr);  // as any other communicator that goes
  EXPECT_EQ(gpu(2).mappings.load(), 0);
}

TEST_F(PeerBuffersTest, RefusesWhatPeersCouldNotMap) {
  EXPECT_EQ(at(0).add(&handle_, baseOf(0) + 4096, kBytes).code(), Code::kInvalidUsage);
  gpu(0).canExport = false;
  EXPECT_EQ(at(0).add(&handle_, baseOf(0), kBytes).code(), Code::kInvalidUsage);
  EXPECT_FALSE(at(0).addForGraph(baseOf(0), kBytes));
}

}  // namespace
}  // namespace tutti::channel
