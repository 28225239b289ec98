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
        GpuRequest request{.collective = static_cast<Collective>(collective),
                           .count = count,
                           .rankCount = rankCount};
        for (const bool keepsLines : {false, true}) {
          request.keepsLines = keepsLines;
          const auto choice = choose(request);
          if (!choice) continue;
          EXPECT_TRUE(isNamed(*choice, rankCount)) << choice->kernel << ", " << rankCount;
          const auto sharing = choiceThatShares(request, *choice);
          EXPECT_TRUE(!sharing || isNamed(*sharing, rankCount)) << rankCount;
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

TEST(GpuCatalog, ImagesRunOnTheirGenerationAndByPtxOnAllAfterTheLast) {
  for (const auto& [capability, doRun] : std::vector<std::pair<int32_t, bool>>{
           {75, false}, {80, true}, {86, true}, {89, true}, {90, true}, {100, true}, {120, true}})
    EXPECT_EQ(doRunOn("80 90", capability), doRun) << capability;
  EXPECT_FALSE(doRunOn("86 90", 80));
  EXPECT_FALSE(doRunOn("80 100", 90));
  EXPECT_FALSE(doRunOn("", 90));
}

}  // namespace
}  // namespace tutti::kernels::cuda
