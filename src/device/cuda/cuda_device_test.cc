#include "device/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/cuda/context_scope.h"
#include "device/cuda/fake_driver_testing.h"

namespace tutti::device::cuda {
namespace {

using testing::HasSubstr;

class CudaDeviceTest : public testing::Test {
 protected:
  std::unique_ptr<CudaDevice> open(int index) {
    auto device = CudaDevice::open(driver_, index);
    EXPECT_TRUE(device.ok()) << device.status().message();
    return std::move(device).value();
  }
  static size_t callCount(const char* name) {
    return static_cast<size_t>(std::ranges::count(FakeGpus::get().calls, name));
  }

  Driver driver_ = makeFakeDriver();
};

TEST_F(CudaDeviceTest, GivesTheCallerItsContextBack) {
  auto device = open(1);
  EXPECT_EQ(fakeContext(), nullptr);
  auto memory = device->makeMemory(1000);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(fakeContext(), nullptr);
}

TEST_F(CudaDeviceTest, PushesNothingWhenItsContextIsCurrent) {
  auto device = open(1);
  fakeContext() = fakeContextOf(1);
  const size_t before = callCount("cuCtxPushCurrent");
  EXPECT_TRUE(device->record(nullptr, nullptr).ok());
  EXPECT_EQ(callCount("cuCtxPushCurrent"), before);
  fakeContext() = nullptr;
}

TEST_F(CudaDeviceTest, TheCurrentDeviceIsThatOfTheThreadsContext) {
  EXPECT_EQ(currentDevice(driver_).value(), 0);
  fakeContext() = fakeContextOf(1);
  EXPECT_EQ(currentDevice(driver_).value(), 1);
  fakeContext() = nullptr;
}

TEST_F(CudaDeviceTest, AUsersAllocationIsFoundByAnAddressInIt) {
  auto device = open(0);
  auto memory = device->allocate(size_t{3} << 20);
  ASSERT_TRUE(memory.ok());
  auto* base = static_cast<std::byte*>(*memory);
  auto found = device->allocationOf(base + 4096);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->base, base);
  EXPECT_EQ(found->bytes, size_t{4} << 20);
  EXPECT_NE(found->id, 0u);
  EXPECT_EQ(device->allocationId(base + 4096), found->id);
  ASSERT_TRUE(device->free(base).ok());
  EXPECT_EQ(device->allocationId(base), 0u);
  int onTheStack = 0;
  EXPECT_EQ(device->allocationOf(&onTheStack).status().code(), Code::kInvalidUsage);
}

TEST_F(CudaDeviceTest, AUsersAllocationIsTheSameMemoryElsewhere) {
  auto owner = open(0);
  auto peer = open(1);
  auto memory = owner->allocate(size_t{2} << 20);
  ASSERT_TRUE(memory.ok());
  auto found = owner->allocationOf(*memory);
  ASSERT_TRUE(found.ok());
  auto handle = owner->exportAllocation(*found);
  ASSERT_TRUE(handle.ok()) << handle.status().message();
  EXPECT_FALSE(handle->isLegacy);
  auto mapped = peer->importMemory(std::move(handle->descriptor), found->bytes);
  ASSERT_TRUE(mapped.ok());
  EXPECT_NE((*mapped)->address(), *memory);
  *static_cast<int*>(*memory) = 42;
  EXPECT_EQ(*static_cast<int*>((*mapped)->address()), 42);
}

TEST_F(CudaDeviceTest, MemoryOfCudaMallocGoesByAHandleThatIsClosedAgain) {
  auto owner = open(0);
  auto peer = open(1);
  driver_.pointerAttribute = [](void* value, int attribute, DevicePointer) -> DriverResult {
    *static_cast<int*>(value) = attribute == kPointerHasLegacyHandle ? 1 : 0;
    return kSuccess;
  };
  driver_.ipcGet = [](IpcHandle* handle, DevicePointer address) {
    std::memcpy(handle->bytes, &address, sizeof address);
    return fakeResult("cuIpcGetMemHandle");
  };
  driver_.ipcOpen = [](DevicePointer* address, IpcHandle handle, unsigned) {
    std::memcpy(address, handle.bytes, sizeof *address);
    return fakeResult("cuIpcOpenMemHandle");
  };
  driver_.ipcClose = [](DevicePointer) { return fakeResult("cuIpcCloseMemHandle"); };
  int memory = 0;
  auto handle = owner->exportAllocation(
      {.base = reinterpret_cast<std::byte*>(&memory), .bytes = sizeof memory, .id = 9});
  ASSERT_TRUE(handle.ok());
  EXPECT_TRUE(handle->isLegacy);
  auto mapped = peer->importLegacy(handle->legacy, sizeof memory);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ((*mapped)->address(), &memory);
  EXPECT_EQ(callCount("cuIpcCloseMemHandle"), 0u);
  mapped->reset();
  EXPECT_EQ(callCount("cuIpcCloseMemHandle"), 1u);
}

TEST_F(CudaDeviceTest, AnotherDeviceOfTheProcessIsReachedOnce) {
  auto device = open(0);
  EXPECT_TRUE(device->reachDevice(0).ok());
  EXPECT_EQ(callCount("cuCtxEnablePeerAccess"), 0u) << "its own memory it has anyhow";
  EXPECT_TRUE(device->reachDevice(1).ok());
  FakeGpus::get().fails["cuCtxEnablePeerAccess"] = kPeerAccessIsOn;
  EXPECT_TRUE(device->reachDevice(1).ok());
  FakeGpus::get().fails["cuCtxEnablePeerAccess"] = 217;
  EXPECT_FALSE(device->reachDevice(1).ok());
}

TEST_F(CudaDeviceTest, ExportedMemoryIsTheSameMemoryElsewhere) {
  auto owner = open(0);
  auto peer = open(1);
  auto made = owner->makeMemory(size_t{3} << 20);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made.value()->bytes(), size_t{4} << 20) << "rounded up to the granularity";
  auto handle = made.value()->exportHandle();
  ASSERT_TRUE(handle.ok());
  auto mapped = peer->importMemory(std::move(handle).value(), made.value()->bytes());
  ASSERT_TRUE(mapped.ok()) << mapped.status().message();
  EXPECT_NE(mapped.value()->address(), made.value()->address());

  uint64_t seen = 1;
  ASSERT_TRUE(peer->copy(&seen, mapped.value()->address(), sizeof seen).ok());
  EXPECT_EQ(seen, 0u) << "new memory is zeroed";
  const uint64_t written = 0x1122334455667788;
  ASSERT_TRUE(owner->copy(made.value()->address(), &written, sizeof written).ok());
  made.value().reset();  // the owner goes first
  ASSERT_TRUE(peer->copy(&seen, mapped.value()->address(), sizeof seen).ok());
  EXPECT_EQ(seen, written);
}

TEST_F(CudaDeviceTest, TakesHalfMadeMemoryApart) {
  auto device = open(0);
  const size_t before = FakeGpus::get().mappings.size();
  for (const char* call : {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    FakeGpus::get().fails = {{call, 999}};
    auto memory = device->makeMemory(1);
    ASSERT_FALSE(memory.ok()) << call;
    EXPECT_EQ(memory.status().code(), Code::kUnhandledCudaError);
    EXPECT_THAT(std::string(memory.status().message()), HasSubstr(call));
    EXPECT_EQ(FakeGpus::get().mappings.size(), before) << call;
  }
}

TEST_F(CudaDeviceTest, LoadsAnImageOnceAndSaysWhenThereIsNone) {
  auto device = open(0);
  const unsigned char image[4] = {1, 2, 3, 4};
  ASSERT_TRUE(device->findKernel(image, "a", 0).ok());
  ASSERT_TRUE(device->findKernel(image, "b", 0).ok());
  EXPECT_EQ(callCount("cuModuleLoadData"), 1u);
  EXPECT_EQ(callCount("cuFuncGetAttribute"), 2u) << "a function is loaded when it is found";
  EXPECT_EQ(callCount("cuFuncSetAttribute"), 0u);
  ASSERT_TRUE(device->findKernel(image, "c", 184320).ok());
  EXPECT_EQ(FakeGpus::get().sharedBytes, 184320);
  FakeGpus::get().fails["cuFuncSetAttribute"] = 1;
  EXPECT_FALSE(device->findKernel(image, "c", 1 << 20).ok());
  const auto missing = device->findKernel({}, "tuttiFold", 0);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("without a CUDA compiler"));
}

TEST_F(CudaDeviceTest, TellsHostMemoryFromItsOwn) {
  auto device = open(0);
  auto memory = device->makeMemory(1);
  ASSERT_TRUE(memory.ok());
  int local = 0;
  EXPECT_EQ(device->placeOf(&local).value(), MemoryPlace::kUnknownHost);
  EXPECT_EQ(device->placeOf(memory.value()->address()).value(), MemoryPlace::kThisDevice);
}

TEST_F(CudaDeviceTest, FreesWhatItAllocatedAndNothingElse) {
  auto device = open(0);
  auto memory = device->allocate(100);
  ASSERT_TRUE(memory.ok());
  EXPECT_TRUE(device->hasAllocated(*memory));
  EXPECT_TRUE(device->free(*memory).ok());
  EXPECT_FALSE(device->hasAllocated(*memory));
  EXPECT_EQ(device->free(*memory).code(), Code::kInvalidArgument);
}

TEST_F(CudaDeviceTest, KeepsLinesToItselfAndToPeersWithAtomics) {
  auto device = open(0);
  EXPECT_TRUE(device->keepsLinesTo("0000:01:00.0"));
  EXPECT_TRUE(device->keepsLinesTo("0000:02:00.0"));
  EXPECT_FALSE(device->keepsLinesTo("0000:03:00.0")) << "not to be seen";
  driver_.peerAttribute = [](int* value, int attribute, DeviceNumber, DeviceNumber) {
    *value = attribute == kPeerHasAtomics ? 0 : 1;
    return kSuccess;
  };
  EXPECT_FALSE(device->keepsLinesTo("0000:02:00.0"));
  EXPECT_TRUE(device->keepsLinesTo("0000:01:00.0"));
}

TEST_F(CudaDeviceTest, TellsHowManyBlocksItHolds) {
  FakeGpus::get().multiprocessors = 78;
  FakeGpus::get().blocksPerMultiprocessor = 3;
  auto device = open(0);
  EXPECT_EQ(device->multiprocessors(), 78u);
  const unsigned char image[] = {1};
  const Kernel* kernel = device->findKernel(image, "kernel", 0).value();
  EXPECT_EQ(device->blocksPerMultiprocessor(*kernel, 256, 0).value(), 3u);
  FakeGpus::get().fails["cuOccupancyMaxActiveBlocksPerMultiprocessor"] = 1;
  EXPECT_FALSE(device->blocksPerMultiprocessor(*kernel, 256, 0).ok());
}

TEST_F(CudaDeviceTest, NamesWhatADeviceLacks) {
  driver_.deviceAttribute = [](int* value, int attribute, DeviceNumber) {
    *value = attribute == kAttributePosixHandles ? 0 : 1;
    return kSuccess;
  };
  const auto device = CudaDevice::open(driver_, 0);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), Code::kInvalidUsage);
  EXPECT_THAT(std::string(device.status().message()), HasSubstr("TUTTI_DEVICE=host"));
}

TEST_F(CudaDeviceTest, TellsACaptureFromABrokenOneAndFromNone) {
  auto device = open(0);
  FakeGpus& gpus = FakeGpus::get();
  gpus.captureId = 7;
  for (const int status : {kCaptureNone, kCaptureActive, kCaptureBroken}) {
    gpus.captureStatus = status;
    auto capture = device->captureOf(nullptr);
    ASSERT_TRUE(capture.ok());
    EXPECT_EQ(capture->isActive, status == kCaptureActive);
    EXPECT_EQ(capture->isBroken, status == kCaptureBroken);
    EXPECT_EQ(capture->id, 7u);
  }
  gpus.fails["cuStreamGetCaptureInfo"] = 906;  // the legacy stream beside one that is captured
  EXPECT_THAT(std::string(device->captureOf(nullptr).status().message()),
              HasSubstr("cuStreamGetCaptureInfo"));
}

// What is on the user's streams must be in the thread's own mode, or it could slip by a capture.
TEST_F(CudaDeviceTest, OnlyCallsOnTheUsersStreamsAndQuestionsAreSubjectToCaptures) {
  int argument = 0;
  {
    auto device = open(0);
    auto words = device->makeWords(64);
    auto made = device->makeMemory(1000);
    ASSERT_TRUE(words.ok() && made.ok());
    auto handle = (*made)->exportHandle();
    ASSERT_TRUE(handle.ok());
    EXPECT_TRUE(device->importMemory(std::move(handle).value(), (*made)->bytes()).ok());
    EXPECT_TRUE(device->copy((*words)->hostAddress(), (*words)->hostAddress(), 8).ok());
    auto memory = device->allocate(1000);
    ASSERT_TRUE(memory.ok());
    EXPECT_TRUE(device->exportAllocation(device->allocationOf(*memory).value()).ok());
    EXPECT_TRUE(device->free(*memory).ok());
    EXPECT_TRUE(device->reachDevice(1).ok());
    const unsigned char image[] = {1};
    const Kernel* kernel = device->findKernel(image, "kernel", 0).value();
    auto stream = device->createStream();
    auto urgent = device->createUrgentStream();
    auto event = device->createEvent();
    ASSERT_TRUE(stream.ok() && urgent.ok() && event.ok());
    EXPECT_TRUE(device->captureOf(*stream).ok());
    EXPECT_NE(device->streamId(*stream).value(), device->streamId(*urgent).value());
    EXPECT_TRUE(device->launch({.kernel = kernel, .argument = &argument}, *stream).ok());
    EXPECT_TRUE(device->record(*event, *stream).ok());
    EXPECT_TRUE(device->wait(*urgent, *event).ok());
    EXPECT_TRUE(device->isDone(*event).ok());
    device->destroyEvent(*event);
    device->destroyStream(*urgent);
    device->destroyStream(*stream);
  }
  EXPECT_THAT(
      FakeGpus::get().strictCalls,
      testing::IsSubsetOf({"cuDevicePrimaryCtxRetain", "cuDeviceGetAttribute", "cuDeviceGetCount",
                           "cuCtxPushCurrent", "cuCtxPopCurrent", "cuMemExportToShareableHandle",
                           "cuStreamGetCaptureInfo", "cuStreamGetId", "cuLaunchKernelEx",
                           "cuEventRecord", "cuStreamWaitEvent"}));
  EXPECT_TRUE(FakeGpus::get().strictCalls.contains("cuLaunchKernelEx"));
  EXPECT_TRUE(FakeGpus::get().strictCalls.contains("cuEventRecord"));
}

TEST_F(CudaDeviceTest, OnlyALaunchThatAsksForItStartsBeforeItsTurn) {
  auto device = open(0);
  auto stream = device->createStream();
  ASSERT_TRUE(stream.ok());
  const std::array<unsigned char, 256> argument{};
  for (const bool early : {false, true}) {
    ASSERT_TRUE(
        device
            ->launch(
                {.blocks = 2, .threads = 512, .argument = argument.data(), .startsEarly = early},
                *stream)
            .ok());
    const FakeLaunch& launch = FakeGpus::get().launches.back();
    EXPECT_EQ(launch.startsEarly, early);
    EXPECT_EQ(static_cast<void*>(launch.stream), *stream);
    EXPECT_EQ(launch.blocks, 2u);
  }
  device->destroyStream(*stream);
}

TEST_F(CudaDeviceTest, AnErrorOfALaunchNamesItsShape) {
  auto device = open(0);
  FakeGpus::get().fails = {{"cuLaunchKernelEx", 700}};
  const Status status = device->launch({.kernel = nullptr, .blocks = 3, .threads = 512}, nullptr);
  EXPECT_THAT(std::string(status.message()), HasSubstr("3 blocks of 512 threads on device 0"));
}

// ---- graphs

class CapturedCudaDeviceTest : public CudaDeviceTest {
 protected:
  void SetUp() override {
    device_ = open(0);
    event_ = device_->createEvent().value();
    gpus().captureStatus = kCaptureActive;
  }
  void TearDown() override { device_->destroyEvent(event_); }

  static FakeGpus& gpus() { return FakeGpus::get(); }
  static GraphNode nodeOf(uintptr_t number) { return reinterpret_cast<GraphNode>(number); }
  static std::set<GraphNode> nodes(std::initializer_list<uintptr_t> numbers) {
    std::set<GraphNode> made;
    for (const uintptr_t number : numbers) made.insert(nodeOf(number));
    return made;
  }
  // The one there is.
  static std::set<GraphNode> followedBy(std::string_view call) {
    std::vector<std::set<GraphNode>> found;
    for (const auto& [node, one] : gpus().eventNodes) {
      if (one.first == call) found.push_back(one.second);
    }
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? std::set<GraphNode>{} : found[0];
  }

  std::unique_ptr<CudaDevice> device_;
  Event* event_ = nullptr;
};

TEST_F(CapturedCudaDeviceTest, AGraphWaitsBesideWhatTheStreamHas) {
  gpus().captureLast = {nodeOf(1)};
  ASSERT_TRUE(device_->waitInGraph(nullptr, event_).ok());
  EXPECT_THAT(followedBy("cuGraphAddEventWaitNode"), testing::IsEmpty());
  EXPECT_THAT(gpus().captureLast, testing::ElementsAre(nodeOf(1), gpus().eventNodes.begin()->first))
      << "what comes next follows both";
  for (const char* call : {"cuGraphAddEventWaitNode", "cuStreamUpdateCaptureDependencies"}) {
    gpus().fails = {{call, 801}};
    EXPECT_THAT(std::string(device_->waitInGraph(nullptr, event_).message()), HasSubstr(call));
  }
}

// The driver's edges are changed only where they differ.
TEST_F(CapturedCudaDeviceTest, ARecordInAGraphMovesBehindTheLastCall) {
  RecordInGraph place;
  const std::vector<std::vector<uintptr_t>> turns = {{1}, {1}, {2, 3}, {3, 4, 5}, {5}, {}, {6}};
  for (const auto& turn : turns) {
    gpus().captureLast.clear();
    for (const uintptr_t number : turn) gpus().captureLast.push_back(nodeOf(number));
    const Status status = device_->recordInGraph(event_, nullptr, place);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(followedBy("cuGraphAddEventRecordNode"),
              std::set(gpus().captureLast.begin(), gpus().captureLast.end()));
  }
}

TEST_F(CapturedCudaDeviceTest, ARecordThatCannotMoveIsBehindSomethingStill) {
  RecordInGraph place;
  gpus().captureLast = {nodeOf(1)};
  ASSERT_TRUE(device_->recordInGraph(event_, nullptr, place).ok());
  gpus().captureLast = {nodeOf(2)};
  for (const char* call : {"cuGraphAddDependencies", "cuGraphRemoveDependencies"}) {
    gpus().fails = {{call, 1}};
    EXPECT_FALSE(device_->recordInGraph(event_, nullptr, place).ok());
    EXPECT_TRUE(followedBy("cuGraphAddEventRecordNode").contains(nodeOf(1)));
  }
  EXPECT_EQ(followedBy("cuGraphAddEventRecordNode"), nodes({1, 2}));
}

TEST_F(CapturedCudaDeviceTest, AnObjectThatAGraphSharesGoesWithIt) {
  auto object = std::make_shared<int>(3);
  const std::weak_ptr<int> seen = object;
  ASSERT_TRUE(device_->shareWithGraph(nullptr, std::move(object)).ok());
  EXPECT_EQ(seen.use_count(), 1);
  destroyFakeGraph();
  EXPECT_TRUE(seen.expired());
  for (const char* call : {"cuUserObjectCreate", "cuGraphRetainUserObject"}) {
    gpus().fails = {{call, 2}};
    auto other = std::make_shared<int>(3);
    EXPECT_FALSE(device_->shareWithGraph(nullptr, other).ok());
    EXPECT_EQ(other.use_count(), 1) << call << ": nobody has it";
  }
}

TEST_F(CapturedCudaDeviceTest, AStreamWithoutACaptureHasNoGraph) {
  gpus().captureStatus = kCaptureNone;
  RecordInGraph place;
  EXPECT_FALSE(device_->waitInGraph(nullptr, event_).ok());
  EXPECT_FALSE(device_->recordInGraph(event_, nullptr, place).ok());
  EXPECT_FALSE(device_->shareWithGraph(nullptr, std::make_shared<int>(3)).ok());
  EXPECT_TRUE(gpus().eventNodes.empty());
}

// Memory that a graph of a communicator used which is gone, at each of the calls that may free.
TEST_F(CudaDeviceTest, WhatIsKeptGoesOnceItsUsersHaveGone) {
  auto device = open(0);
  const size_t before = FakeGpus::get().mappings.size();
  const auto keep = [&] {
    auto users = std::make_shared<int>(0);
    device->keepFor(users, std::shared_ptr(device->makeMemory(1000).value()));
    return users;
  };
  auto first = keep();
  auto second = keep();
  EXPECT_EQ(FakeGpus::get().mappings.size(), before + 2);
  first.reset();
  EXPECT_EQ(FakeGpus::get().mappings.size(), before + 2) << "the driver's threads free nothing";
  auto third = keep();
  EXPECT_EQ(FakeGpus::get().mappings.size(), before + 2) << "the first has gone";
  second.reset();
  ASSERT_TRUE(device->makeWords(64).ok());
  EXPECT_EQ(FakeGpus::get().mappings.size(), before + 1);
  third.reset();
  ASSERT_TRUE(device->free(device->allocate(1000).value()).ok());
  EXPECT_EQ(FakeGpus::get().mappings.size(), before);
}

}  // namespace
}  // namespace tutti::device::cuda
