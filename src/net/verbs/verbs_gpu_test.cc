// Memory of GPUs: adapters reach it by a descriptor, or by its address where the kernel helps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/fd.h"
#include "base/mapping.h"
#include "net/verbs/verbs_testing.h"

namespace tutti::net::verbs {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kBytes = 64 << 10;

// A GPU's memory is a file here, as its driver's descriptors are.
class VerbsGpu : public Verbs {
 protected:
  VerbsGpu()
      : fd_(::memfd_create("gpu", MFD_CLOEXEC)),
        memory_((::ftruncate(fd_.get(), kBytes) == 0
                     ? ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0)
                     : nullptr),
                kBytes) {
    machine_.usual();
    options_.peerMemoryMarks = {};
  }
  std::span<std::byte> bytes() { return {static_cast<std::byte*>(memory_.get()), kBytes}; }
  GpuRegion region(int fd) { return {.bytes = bytes(), .dmaBuffer = fd, .obstacles = {}}; }

  UniqueFd fd_;
  UniqueMapping memory_;
};

// The adapters' writes are seen when a byte was read back, on each port of the lane.
TEST_F(VerbsGpu, WhatIsReceivedThereIsSeenAfterAFlush) {
  connectUsual();
  std::vector<std::byte> out(20'000, std::byte{7});
  const auto outMemory = lanes_.sender->enroll(out).value();
  auto inMemory = lanes_.receiver->enrollGpu(region(fd_.get()));
  ASSERT_TRUE(inMemory.ok()) << inMemory.status().message();
  const auto place = bytes().first(out.size());
  for (int round = 0; round < 3; ++round) {
    std::ranges::fill(place, std::byte{0});
    const auto receive = post(*lanes_.receiver, place, *inMemory).value();
    const auto send = post(*lanes_.sender, out, outMemory).value();
    ASSERT_TRUE(await(*lanes_.sender, send).ok());
    ASSERT_EQ(await(*lanes_.receiver, receive).value(), out.size());
    EXPECT_THAT(place, Each(std::byte{0}));
    auto flush = lanes_.receiver->flush(place, *inMemory);
    ASSERT_TRUE(flush.ok() && *flush);
    const auto flushed = await(*lanes_.receiver, *flush);
    ASSERT_TRUE(flushed.ok()) << flushed.status().message();
    EXPECT_THAT(place, Each(std::byte{7}));
  }
  lanes_.sender->release(outMemory);
  lanes_.receiver->release(*inMemory);
}

TEST_F(VerbsGpu, AFlushThatFailsEndsTheLane) {
  connectUsual();
  std::vector<std::byte> out(20'000, std::byte{7});
  const auto outMemory = lanes_.sender->enroll(out).value();
  const auto inMemory = lanes_.receiver->enrollGpu(region(fd_.get())).value();
  const auto place = bytes().first(out.size());
  const auto receive = post(*lanes_.receiver, place, inMemory).value();
  const auto send = post(*lanes_.sender, out, outMemory).value();
  ASSERT_TRUE(await(*lanes_.sender, send).ok());
  ASSERT_TRUE(await(*lanes_.receiver, receive).ok());
  order("complete 1 10");
  const auto flush = lanes_.receiver->flush(place, inMemory).value();
  EXPECT_THAT(std::string(await(*lanes_.receiver, flush).status().message()),
              testing::HasSubstr("a flush over mlx5_0:1 ended with status 10"));
  lanes_.sender->release(outMemory);
  lanes_.receiver->release(inMemory);
}

TEST_F(VerbsGpu, AGpuSendsFromItsMemory) {
  connectUsual();
  std::ranges::fill(bytes(), std::byte{9});
  std::vector<std::byte> in(20'000);
  const auto outMemory = lanes_.sender->enrollGpu(region(fd_.get())).value();
  const auto inMemory = lanes_.receiver->enroll(in).value();
  const auto receive = post(*lanes_.receiver, in, inMemory).value();
  const auto send = post(*lanes_.sender, bytes().first(in.size()), outMemory).value();
  ASSERT_TRUE(await(*lanes_.sender, send).ok());
  ASSERT_TRUE(await(*lanes_.receiver, receive).ok());
  EXPECT_THAT(in, Each(std::byte{9}));
  EXPECT_FALSE(lanes_.sender->flush(bytes(), outMemory).value());
  lanes_.sender->release(outMemory);
  lanes_.receiver->release(inMemory);
}

TEST_F(VerbsGpu, AdaptersSayWhetherTheyReachIt) {
  auto fabric = openFabric();
  ASSERT_TRUE(fabric.ok());
  const std::vector<Adapter>& adapters = (*fabric)->caps().adapters;
  ASSERT_EQ(adapters.size(), (*fabric)->caps().deviceCount);
  EXPECT_EQ(adapters[0].name, "mlx5_0");
  EXPECT_EQ(adapters[0].place, "0000:17:00.0");
  EXPECT_TRUE(adapters[0].takesDmaBuffers);
  EXPECT_FALSE(adapters[0].takesGpuMemory);
}

TEST_F(VerbsGpu, WithoutDescriptorsTheKernelMustFindIt) {
  order("without dmabuf");
  {
    auto fabric = openFabric();
    ASSERT_TRUE(fabric.ok());
    EXPECT_THAT((*fabric)->caps().adapters, IsEmpty());
  }
  options_.peerMemoryMarks = {"/proc/self/exe"};
  connectUsual();
  EXPECT_TRUE(fabric_->caps().adapters.at(0).takesGpuMemory);
  auto memory = lanes_.receiver->enrollGpu(region(-1));
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  lanes_.receiver->release(*memory);
}

TEST_F(VerbsGpu, SaysThatItCannotBeRegistered) {
  connectUsual();
  order("fail dmabuf");
  const auto refused = lanes_.receiver->enrollGpu(region(fd_.get()));
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("registration of a GPU's memory of 65536 bytes for mlx5_0"));
}

}  // namespace
}  // namespace tutti::net::verbs
