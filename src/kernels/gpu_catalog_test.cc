#include "kernels/gpu_catalog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

namespace tutti::kernels::cuda {
namespace {

bool isNamed(const GpuChoice& choice, int32_t rankCount) {
  return std::ranges::any_of(kernelNames(choice.image, rankCount), [&](const char* name) {
    return name != nullptr && std::string_view(name) == choice.kernel;
  });
}

// What is not loaded at init would be loaded by a call, which may wait for kernels that wait for
// it.
TEST(GpuCatalog, EveryKernelThatACallMayNeedIsNamed) {
  for (int32_t rankCount = 1; rankCount <= wire::kGpuMaxRanks; ++rankCount) {
    for (int32_t collective = 0; collective < kCollectiveCount; ++collective) {
      for (uint64_t count = 1; count <= uint64_t{1} << 30; count *= 8) {
        const GpuRequest request{.collective = static_cast<Collective>(collective),
                                 .count = count,
                                 .rankCount = rankCount};
        const auto choice = choose(request);
        if (choice) {
          EXPECT_TRUE(isNamed(*choice, rankCount)) << choice->kernel << ", " << rankCount;
        }
        if (goesAsTransfers(request)) {
          const GpuChoice transfers = transferKernelOf(request);
          EXPECT_TRUE(isNamed(transfers, rankCount)) << transfers.kernel << ", " << rankCount;
          EXPECT_TRUE(takesTransfers(transfers.kernel));
        }
      }
    }
    EXPECT_TRUE(isNamed(transferKernel(), rankCount));
  }
}

// Of the bytes that a rank sends to each: 4 and 16 MB, and what engines carry.
TEST(GpuCatalog, WhatStoresPlainlyIsOneCallUpToWhereEnginesAreFaster) {
  for (const Collective collective : {Collective::kAllGather, Collective::kAllToAll}) {
    for (const int32_t rankCount : {2, 4}) {
      for (const uint64_t megabytes : {4, 16, 32}) {
        const GpuRequest request{.collective = collective,
                                 .type = DataType::kInt8,
                                 .count = megabytes << 20,
                                 .rankCount = rankCount,
                                 .storesPlainly = true};
        const bool isOne = rankCount > 2 || megabytes < 32;
        EXPECT_EQ(goesAsTransfers(request), !isOne) << megabytes;
        if (!isOne) continue;
        const auto choice = choose(request);
        ASSERT_TRUE(choice);
        EXPECT_NE(kernelThatShares(request, *choice), nullptr) << megabytes;
        EXPECT_TRUE(makeCall(request, *choice).storesPlainly);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::kernels::cuda
