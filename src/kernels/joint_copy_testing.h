// A link whose ends are both of this process, for tests of messages that both ends copy.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "kernels/joint_copy.h"
#include "kernels/remote_memory_testing.h"
#include "wire/link.h"

namespace tutti::kernels {

// How the ends reach each other's memory.
enum class Way { kKernel, kOneProcess, kMapped };

class JointLinkTest : public testing::TestWithParam<Way> {
 protected:
  static constexpr size_t kGuard = 64;  // bytes behind what is received

  JointLinkTest(size_t messageBytes, uint32_t slotCount)
      : sent_(messageBytes), received_(messageBytes + kGuard, std::byte{0x5a}) {
    const wire::LinkGeometry geometry{.slotCount = slotCount, .slotBytes = 128};
    const size_t bytes = wire::linkBytes(geometry);
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kCacheLineBytes, bytes)));
    std::uninitialized_fill_n(memory_.get(), bytes, std::byte{0});
    sender_.view = receiver_.view = wire::viewLink(memory_.get(), geometry);
    sender_.isReceiverHere = receiver_.isSenderHere = GetParam() == Way::kOneProcess;
    sender_.receiverProcess = receiver_.senderProcess = ::getpid();
    sender_.mayWrite = true;
    SeededRng rng(1);
    for (std::byte& byte : sent_) byte = static_cast<std::byte>(rng.below(256));
  }

  void SetUp() override {
    if (GetParam() == Way::kKernel && !readsThroughKernel()) GTEST_SKIP() << kNotThroughKernel;
  }

  bool isAllThere() const {
    const auto end = received_.begin() + static_cast<std::ptrdiff_t>(sent_.size());
    return std::equal(sent_.begin(), sent_.end(), received_.begin()) &&
           std::all_of(end, received_.end(),
                       [](std::byte byte) { return byte == std::byte{0x5a}; });
  }

  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  wire::LinkPort sender_;
  wire::LinkPort receiver_;
  std::vector<std::byte> sent_;
  std::vector<std::byte> received_;
  JointReceive receive_;
};

}  // namespace tutti::kernels
