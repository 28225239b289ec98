#include "schedule/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/units.h"

namespace tutti::schedule {
namespace {

TEST(Layout, EveryElementOfABlockIsInExactlyOnePiece) {
  for (const int32_t ranks : {1, 2, 3, 8}) {
    for (const size_t count : {0ul, 1ul, 15ul, 16ul, 17ul, 100ul, 1001ul}) {
      for (const size_t pieceBytes : {1ul, 64ul, 100ul}) {
        const Layout layout = makeLayout({.collective = Collective::kAllReduce,
                                          .rankCount = ranks,
                                          .chunkCount = ranks,
                                          .blockElements = count,
                                          .elementBytes = 4,
                                          .pieceBytes = pieceBytes});
        std::vector<int> covered(count);
        for (int32_t chunk = 0; chunk < layout.chunksPerBlock; ++chunk) {
          const size_t start = static_cast<size_t>(chunk) * layout.chunkElements;
          const size_t end = std::min(start + layout.chunkElements, count);
          for (size_t piece = 0; piece < layout.pieceCount; ++piece) {
            const size_t from = start + piece * layout.pieceElements;
            for (size_t i = from; i < std::min(from + layout.pieceElements, end); ++i) ++covered[i];
          }
        }
        EXPECT_EQ(covered, std::vector<int>(count, 1))
            << ranks << " ranks, " << count << " elements";
      }
    }
  }
}

TEST(Layout, CutsABlockOfBytesAsItDoesOneOfElements) {
  for (const int32_t chunks : {1, 2, 7, 8}) {
    for (const size_t elementBytes : {1, 2, 4, 8}) {
      for (size_t count = 1; count < 700; count += 3) {
        const Layout layout = makeLayout({.collective = Collective::kAllReduce,
                                          .rankCount = 8,
                                          .chunkCount = chunks,
                                          .blockElements = count,
                                          .elementBytes = elementBytes,
                                          .pieceBytes = 64});
        const Chunks cut = cutBlock(count * elementBytes, chunks);
        EXPECT_EQ(cut.bytes, std::min(layout.chunkElements, count) * elementBytes);
        EXPECT_EQ(static_cast<size_t>(cut.filled), divideUp(count, layout.chunkElements));
      }
    }
  }
}

TEST(Layout, ARanksOwnBlockIsWhereNcclPutsIt) {
  const Layout gather = makeLayout({.collective = Collective::kAllGather,
                                    .rank = Rank{2},
                                    .rankCount = 4,
                                    .chunkCount = 4,
                                    .blockElements = 10});
  EXPECT_EQ(gather.firstInputBlock, 2);
  EXPECT_EQ(gather.firstOutputBlock, 0);
  const Layout scatter = makeLayout({.collective = Collective::kReduceScatter,
                                     .rank = Rank{2},
                                     .rankCount = 4,
                                     .chunkCount = 4,
                                     .blockElements = 10});
  EXPECT_EQ(scatter.firstInputBlock, 0);
  EXPECT_EQ(scatter.firstOutputBlock, 2);
}

}  // namespace
}  // namespace tutti::schedule
