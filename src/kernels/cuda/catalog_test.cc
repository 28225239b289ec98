// The choice of a kernel's shape: what it promises the kernels, for every rank count and many
// sizes.
#include "kernels/cuda/catalog.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "kernels/cuda/choosing.h"
#include "kernels/gpu_program.h"

namespace tutti::kernels::cuda {
namespace {

GpuRequest requestOf(Collective collective, int32_t ranks, uint64_t count, int32_t perDevice) {
  return {.collective = collective,
          .type = DataType::kFloat32,
          .op = ReduceOp::kSum,
          .count = count,
          .rankCount = ranks,
          .ranksPerDevice = perDevice};
}

class GpuCatalogTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(GpuCatalogTest, AllLinesOfAMessageHaveAPlace) {
  for (const int32_t perDevice : {1, GetParam()}) {
    for (uint64_t count = 1; count < (1 << 20); count += count / 3 + 1) {
      const auto choice = choose(requestOf(Collective::kAllReduce, GetParam(), count, perDevice));
      ASSERT_TRUE(choice.has_value());
      if (choice->protocol != "lines") continue;
      const size_t room = wire::gpuLinesPerPeer(GetParam()) * wire::kGpuLinePayload;
      const int32_t parts = choice->shape == wire::GpuAlgorithm::kTwoShot ? GetParam() : 1;
      EXPECT_LE(choice->chunkBytes, room) << count;
      EXPECT_GE(choice->chunkBytes * static_cast<uint64_t>(choice->blocks * parts), count * 4)
          << count;
    }
  }
}

TEST_P(GpuCatalogTest, HalfAMegabyteGoesByLinesOfManyRanksInTwoStages) {
  for (const auto collective :
       {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce}) {
    const auto choice = choose(requestOf(collective, GetParam(), 1 << 17, 1));
    ASSERT_TRUE(choice.has_value());
    EXPECT_EQ(choice->protocol, "lines");
    EXPECT_EQ(choice->shape == wire::GpuAlgorithm::kTwoShot, GetParam() > 2);
  }
}

TEST_P(GpuCatalogTest, OnlySmallKernelsOfRanksWithAGpuEachStartEarly) {
  EXPECT_TRUE(choose(requestOf(Collective::kAllReduce, GetParam(), 256, 1))->startsEarly);
  EXPECT_FALSE(choose(requestOf(Collective::kAllReduce, GetParam(), 256, 2))->startsEarly);
  EXPECT_FALSE(choose(requestOf(Collective::kAllReduce, GetParam(), 1 << 17, 1))->startsEarly);
}

TEST_P(GpuCatalogTest, MessagesFitTheirSlots) {
  for (uint64_t count = 1; count < (uint64_t{1} << 31); count += count * 2 + 1) {
    for (const auto collective : {Collective::kAllReduce, Collective::kAllGather}) {
      const auto choice = choose(requestOf(collective, GetParam(), count, 1));
      ASSERT_TRUE(choice.has_value());
      if (choice->protocol != "slots") continue;
      EXPECT_LE(choice->chunkBytes, wire::gpuSlotBytes(GetParam()));
      EXPECT_EQ(choice->chunkBytes % 16, 0u);
      EXPECT_GT(choice->chunkBytes, 0u);
      EXPECT_LE(choice->blocks, wire::kGpuMaxBlocks);
    }
  }
}

// Whole rows that cover the vector, over links that keep them, of as many ranks as have places.
TEST_P(GpuCatalogTest, WideLinesCoverTheVectorByRows) {
  bool isAny = false;
  for (int32_t which = 0; which < kCollectiveCount; ++which) {
    for (uint64_t count = 1; count < (uint64_t{1} << 26); count += count / 3 + 1) {
      GpuRequest request = requestOf(static_cast<Collective>(which), GetParam(), count, 1);
      const auto without = choose(request);
      EXPECT_TRUE(!without || without->protocol != "wide lines");
      request.keepsLines = true;
      const auto choice = choose(request);
      if (!choice || choice->protocol != "wide lines") continue;
      isAny = true;
      EXPECT_LE(GetParam(), wire::kGpuRowRanks);
      EXPECT_EQ(choice->chunkBytes % wire::kGpuRowPayload, 0u);
      const int32_t parts = choice->shape != wire::GpuAlgorithm::kTwoShot  ? 1
                            : request.collective == Collective::kAllReduce ? GetParam()
                                                                           : GetParam() - 1;
      const uint64_t rows = choice->chunkBytes / wire::kGpuRowPayload;
      EXPECT_GE(static_cast<uint64_t>(choice->chunkBytes) * static_cast<uint64_t>(parts),
                4 * count);
      EXPECT_LT((rows - 1) * wire::kGpuRowPayload * static_cast<uint64_t>(parts), 4 * count);
      EXPECT_GE(rows, static_cast<uint64_t>(choice->blocks)) << "a block has nothing";
      EXPECT_LE(choice->blocks, wire::kGpuMaxBlocks);
      EXPECT_EQ(choice->threads, 32 * wire::kGpuRowWarps);
    }
  }
  EXPECT_EQ(isAny, GetParam() <= wire::kGpuRowRanks);
}

// What a setting asks for goes so as far as there is room for its length, and kernels were tried.
TEST_P(GpuCatalogTest, WideLinesThatAreAskedForHaveTheirBounds) {
  const auto isWide = [](GpuRequest request) {
    request.keepsLines = true;
    request.wideBytes = std::numeric_limits<int64_t>::max();
    return choose(request)->protocol == "wide lines";
  };
  const bool hasRows = GetParam() <= wire::kGpuRowRanks;
  EXPECT_EQ(isWide(requestOf(Collective::kAllReduce, GetParam(), 1, 1)), hasRows);
  EXPECT_EQ(isWide(requestOf(Collective::kAllReduce, GetParam(), 1 << 28, 1)), hasRows);
  EXPECT_FALSE(isWide(requestOf(Collective::kAllReduce, GetParam(), (1 << 28) + 1, 1)));
  EXPECT_FALSE(isWide(requestOf(Collective::kGather, GetParam(), 1 << 16, 1)));
  EXPECT_FALSE(isWide(requestOf(Collective::kAllReduce, GetParam(), 0, 1)));
}

// All blocks of a lane wait for each other: those of all ranks on a GPU have to be there at once,
// by either way; two of 256 threads on a multiprocessor, one of 512.
TEST_P(GpuCatalogTest, LanesOfAllRanksFitTheGpuTogether) {
  for (const int32_t perDevice : {1, 2, GetParam()}) {
    for (const int32_t most : {1, 5, 16, wire::kGpuMaxBlocks}) {
      for (const bool hasBulk : {false, true}) {
        GpuRequest request = requestOf(Collective::kAllReduce, GetParam(), 1 << 26, perDevice);
        request.maxBlocks = most;
        request.hasBulk = hasBulk;
        const auto choice = choose(request);
        if (GetParam() == 2 || !choice || choice->protocol != "slots") continue;
        EXPECT_TRUE(choice->isApart);
        EXPECT_EQ(choice->isBulk, hasBulk && most < wire::kGpuMaxBlocks);
        for (const bool goesByBulk : {false, choice->isBulk}) {
          const GpuGrid grid = gridOf(*choice, choice->blocks, GetParam(), goesByBulk);
          EXPECT_EQ(grid.threads, choice->isBulk ? 512 : 256);
          EXPECT_LE(grid.blocks * perDevice, choice->isBulk ? 104 : 208) << most;
          EXPECT_EQ(grid.sharedBytes != 0, goesByBulk);
          if (goesByBulk == choice->isBulk && most < wire::kGpuMaxBlocks) {
            EXPECT_LE(grid.blocks, std::max(most, choice->isBulk ? 4 : 3));
          }
        }
        EXPECT_FALSE(choiceThatShares(request, *choice).has_value());
        request = requestOf(Collective::kAllGather, GetParam(), 1 << 26, perDevice);
        request.maxBlocks = most;
        request.hasBulk = hasBulk;
        const auto gather = choose(request);
        ASSERT_TRUE(gather.has_value());
        const auto sharing = choiceThatShares(request, *gather);
        ASSERT_TRUE(sharing.has_value());
        EXPECT_EQ(sharing->blocks, gather->blocks) << "ranks of either kind may meet";
        EXPECT_EQ(sharing->chunkBytes, gather->chunkBytes);
        EXPECT_FALSE(sharing->isApart);
      }
    }
  }
}

// An H20 has 78 multiprocessors, an L4 58, a part of an H100 16: what waits for each other must be
// there at once on any of them. As many of each kernel's blocks fit as its launch bounds say.
TEST_P(GpuCatalogTest, BlocksOfAllRanksFitSmallGpus) {
  for (const int32_t multiprocessors : {5, 14, 16, 32, 42, 56, 58, 78, 84, 108, 114, 132, 148}) {
    for (const int32_t perDevice : {1, 2, GetParam()}) {
      if (perDevice > mostSharers(GetParam(), multiprocessors)) continue;
      for (int32_t which = 0; which <= static_cast<int32_t>(Collective::kScatter); ++which) {
        for (const uint64_t count : {uint64_t{100}, uint64_t{40'000}, uint64_t{1} << 26}) {
          GpuRequest request =
              requestOf(static_cast<Collective>(which), GetParam(), count, perDevice);
          request.multiprocessors = multiprocessors;
          request.keepsLines = count % 3 == 0;
          SCOPED_TRACE(std::to_string(multiprocessors) + " multiprocessors, " +
                       std::to_string(perDevice) + " ranks of each, collective " +
                       std::to_string(which) + " of " + std::to_string(count));
          if (goesAsTransfers(request)) {
            const int32_t blocks = shapeTransfer(count * 4, request).blocks;
            const bool isOneWay = request.collective == Collective::kReduce ||
                                  request.collective == Collective::kBroadcast;
            EXPECT_LE((isOneWay ? 1 : 2) * blocks * perDevice,
                      (folds(request.collective) ? 2 : 3) * multiprocessors);
            continue;
          }
          const auto choice = choose(request);
          if (!choice) continue;
          const GpuGrid grid = gridOf(*choice, choice->blocks, GetParam(), choice->isBulk);
          EXPECT_LE(grid.blocks * perDevice, (grid.threads <= 256 ? 2 : 1) * multiprocessors);
        }
      }
      GpuRequest sends = requestOf(Collective::kSend, GetParam(), 1, perDevice);
      sends.multiprocessors = multiprocessors;
      for (const uint64_t bytes : {uint64_t{8}, uint64_t{1} << 16, uint64_t{1} << 28}) {
        EXPECT_LE(shapeTransfer(bytes, sends).blocks * transfersAtOnce(GetParam()) * perDevice,
                  3 * multiprocessors)
            << multiprocessors << ' ' << perDevice << ' ' << bytes;
      }
    }
  }
}

// Where copy engines of multiprocessors move, a block has the same part of four lanes, or folds
// those of two.
TEST_P(GpuCatalogTest, LanesShareBlocks) {
  if (GetParam() == 2) return;
  GpuRequest request = requestOf(Collective::kAllReduce, GetParam(), 1 << 26, 1);
  request.hasBulk = true;
  EXPECT_EQ(gridOf(*choose(request), 64, GetParam(), false).blocks, 3 * 64) << "nothing is asked";
  request.savesBlocks = true;
  EXPECT_EQ(gridOf(*choose(request), 32, GetParam(), true).blocks, 32);
  EXPECT_EQ(choose(request)->blocks, 32);
  request.hasBulk = false;
  EXPECT_FALSE(choose(request)->isBulk) << "by threads, fewer blocks would only be slower";
  request.hasBulk = true;
  request.savesBlocks = false;
  request.maxBlocks = 32;
  const auto fold = choose(request);
  EXPECT_EQ(fold->blocks, 32);
  EXPECT_EQ(gridOf(*fold, 32, GetParam(), true).blocks, 8 + 16 + 8);
  EXPECT_EQ(gridOf(*fold, 32, GetParam(), false).blocks, 3 * 16);
  EXPECT_EQ(gridOf(*fold, 5, GetParam(), true).blocks, 2 + 4 + 2);
  request.collective = Collective::kAllGather;
  const auto move = choose(request);
  EXPECT_EQ(move->blocks, 40);
  EXPECT_EQ(gridOf(*move, 40, GetParam(), true).blocks, 3 * 10);
  // With what a kernel declares by itself, of the 227 KB that a block of compute capability 9.0 may
  // have.
  EXPECT_LE(wire::gpuBulkBytes(GetParam()), 184u << 10);
  EXPECT_EQ(gridOf(*move, 40, GetParam(), true).sharedBytes,
            mostSharedBytes(move->kernel, GetParam()));
  EXPECT_EQ(mostSharedBytes("tuttiMoveSharing4", GetParam()), 0u);
}

TEST(GpuBulkTest, NeedsAlignedMessagesThatGoAsTheyAre) {
  alignas(16) static const char buffer[32] = {};
  GpuRequest request = requestOf(Collective::kAllReduce, 4, 1 << 20, 1);
  EXPECT_FALSE(mayGoByBulk(request, buffer, buffer)) << "GPUs without";
  request.hasBulk = true;
  EXPECT_TRUE(mayGoByBulk(request, buffer, buffer));
  EXPECT_FALSE(mayGoByBulk(request, buffer + 4, buffer));
  EXPECT_FALSE(mayGoByBulk(request, buffer, buffer + 8));
  request.count += 1;
  EXPECT_TRUE(mayGoByBulk(request, buffer, buffer)) << "one vector";
  request.collective = Collective::kReduceScatter;
  EXPECT_FALSE(mayGoByBulk(request, buffer, buffer)) << "the second rank's part is not aligned";
  request.count += 3;
  EXPECT_TRUE(mayGoByBulk(request, buffer, buffer));
  request.op = ReduceOp::kPreMulSum;
  EXPECT_FALSE(mayGoByBulk(request, buffer, buffer));
}

TEST(GpuBulkTest, IsInCodeOfComputeCapability9) {
  EXPECT_TRUE(canBulk("80 90", 90, 227 << 10));
  EXPECT_TRUE(canBulk("80 90", 100, 227 << 10)) << "as PTX";
  EXPECT_FALSE(canBulk("80 90", 80, 227 << 10));
  EXPECT_FALSE(canBulk("80 90", 86, 227 << 10));
  EXPECT_FALSE(canBulk("80", 90, 227 << 10)) << "as PTX of 8.0";
  EXPECT_FALSE(canBulk("90", 80, 227 << 10)) << "no code at all";
  EXPECT_FALSE(canBulk("", 90, 227 << 10));
  EXPECT_FALSE(canBulk("80 90", 0, 227 << 10)) << "a CPU rank";
  EXPECT_FALSE(canBulk("80 90", 120, 99 << 10)) << "too little shared memory";
}

// As many as are asked for, of those that may be, and none without its part.
TEST_P(GpuCatalogTest, AtLeastSoManyBlocksAsAreAskedForHaveAPartEach) {
  for (const int32_t asked : {2, 7, 16, 1000}) {
    for (uint64_t count = 1; count < (uint64_t{1} << 28); count += count / 2 + 1) {
      for (int32_t which = 0; which < kCollectiveCount; ++which) {
        GpuRequest request = requestOf(static_cast<Collective>(which), GetParam(), count, 1);
        request.maxBlocks = 32;
        const auto usual = choose(request);
        request.minBlocks = asked;
        if (!usual) continue;
        const auto choice = choose(request);
        EXPECT_EQ(choice->kernel, usual->kernel);
        EXPECT_GE(choice->blocks, usual->blocks);
        EXPECT_LE(choice->blocks, 32);
        const int32_t parts =
            choice->shape == wire::GpuAlgorithm::kTwoShot
                ? (request.collective == Collective::kAllReduce ? GetParam() : GetParam() - 1)
                : 1;
        const uint64_t part =
            (count * 4 + static_cast<uint64_t>(parts) - 1) / static_cast<uint64_t>(parts);
        const uint64_t unit = choice->protocol == "lines" ? 2 * wire::kGpuLinePayload : 16;
        if (part >= unit * 1000) {
          EXPECT_GE(gridOf(*choice, choice->blocks, GetParam(), false).blocks,
                    std::min(asked, 30) - 1)
              << count;
        }
        if (choice->blocks <= usual->blocks) continue;
        EXPECT_LT(static_cast<uint64_t>(choice->blocks - 1) * choice->chunkBytes, part)
            << choice->kernel << ", " << count << ": the last block has nothing";
      }
    }
  }
}

TEST_P(GpuCatalogTest, TransfersHaveAtLeastSoManyBlocksAsAreAskedFor) {
  GpuRequest request = requestOf(Collective::kSend, GetParam(), 1, 1);
  for (uint64_t bytes = 1; bytes < (1 << 24); bytes += bytes / 3 + 1) {
    request.minBlocks = 1;
    const TransferShape usual = shapeTransfer(bytes, request);
    request.minBlocks = 6;
    const TransferShape shape = shapeTransfer(bytes, request);
    if (shape.messages == wire::GpuMessages::kLines) {
      const uint64_t lines = (bytes + wire::kGpuLinePayload - 1) / wire::kGpuLinePayload;
      EXPECT_LE(shape.blocks, wire::kGpuTransferLineBlocks);
      EXPECT_LE(lines, static_cast<uint64_t>(shape.blocks) * wire::gpuTransferLines(GetParam()));
    } else {
      EXPECT_GE(shape.blocks, usual.blocks) << bytes;
      EXPECT_LE(shape.blocks, wire::kGpuMaxBlocks);
    }
    if (bytes >= 4096) {
      EXPECT_GE(shape.blocks, 6) << bytes;
    }
    request.maxBlocks = 3;
    EXPECT_LE(shapeTransfer(bytes, request).blocks, 3);
    request.maxBlocks = wire::kGpuMaxBlocks;
  }
}

TEST(GpuMessageTest, LongFoldsOfTwoRanksHaveLongMessages) {
  constexpr uint64_t k64MiB = uint64_t{1} << 24;  // floats
  constexpr uint32_t kPass = 192 * 16;
  for (const auto collective :
       {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter}) {
    EXPECT_EQ(choose(requestOf(collective, 2, k64MiB, 1))->chunkBytes, 18 * kPass);
  }
  EXPECT_EQ(choose(requestOf(Collective::kBroadcast, 2, 4 * k64MiB, 1))->chunkBytes, 9 * kPass);
  EXPECT_EQ(choose(requestOf(Collective::kAllReduce, 4, k64MiB, 1))->chunkBytes, 5 * kPass);
}

TEST_P(GpuCatalogTest, TransfersOfAllPairsFitTheGpusTogether) {
  const GpuRequest request = requestOf(Collective::kSend, GetParam(), 1, GetParam());
  const int32_t blocks = shapeTransfer(uint64_t{1} << 30, request).blocks;
  EXPECT_GE(blocks, 1);
  EXPECT_LE(blocks, wire::kGpuMaxBlocks);
  EXPECT_LE(blocks * 2 * (GetParam() - 1) * GetParam(), 3 * 104);
}

TEST_P(GpuCatalogTest, AllLinesOfATransferHaveAPlace) {
  for (const int32_t perDevice : {1, GetParam()}) {
    const GpuRequest request = requestOf(Collective::kSend, GetParam(), 1, perDevice);
    for (uint64_t bytes = 1; bytes < (1 << 20); bytes += bytes / 3 + 1) {
      const TransferShape shape = shapeTransfer(bytes, request);
      if (shape.messages != wire::GpuMessages::kLines) continue;
      EXPECT_LE(shape.blocks, wire::kGpuTransferLineBlocks);
      const uint64_t lines = (bytes + wire::kGpuLinePayload - 1) / wire::kGpuLinePayload;
      const auto blocks = static_cast<uint64_t>(shape.blocks);
      EXPECT_LE((lines + blocks - 1) / blocks, wire::gpuTransferLines(GetParam())) << bytes;
    }
    EXPECT_EQ(shapeTransfer(1024, request).messages, wire::GpuMessages::kLines);
    EXPECT_NE(shapeTransfer(1 << 20, request).messages, wire::GpuMessages::kLines);
  }
}

// Two ranks over NVLink; where links take wide lines apart, or a request says so, otherwise.
TEST_P(GpuCatalogTest, MiddlingTransfersOfTwoRanksGoByRows) {
  GpuRequest request = requestOf(Collective::kSend, GetParam(), 1, 1);
  request.keepsLines = true;
  for (uint64_t bytes = 1; bytes < (1 << 26); bytes += bytes / 3 + 1) {
    request.collective = Collective::kSend;
    const TransferShape shape = shapeTransfer(bytes, request);
    request.collective = Collective::kRecv;
    EXPECT_EQ(shapeTransfer(bytes, request).blocks, shape.blocks) << "both ends alike";
    const bool isMiddling = GetParam() == 2 && bytes > (16 << 10) && bytes <= (16 << 20);
    EXPECT_EQ(shape.messages == wire::GpuMessages::kWideLines, isMiddling) << bytes;
    if (!isMiddling) continue;
    EXPECT_LE(shape.blocks, wire::gpuTransferRowBlocks(GetParam()));
    EXPECT_FALSE(shape.tellsPlace);
    request.wideBytes = 0;
    EXPECT_NE(shapeTransfer(bytes, request).messages, wire::GpuMessages::kWideLines);
    request.wideBytes = -1;
  }
  request.lineBytes = request.wideBytes = 0;
  EXPECT_EQ(shapeTransfer(8, request).messages, wire::GpuMessages::kSlots);
  request.wideBytes = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(shapeTransfer(8, request).messages == wire::GpuMessages::kWideLines, GetParam() == 2);
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuCatalogTest, ::testing::Range(2, wire::kGpuMaxRanks + 1));

}  // namespace
}  // namespace tutti::kernels::cuda
