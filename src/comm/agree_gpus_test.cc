#include "comm/agree_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<InitRecord> ranksOn(std::vector<uint64_t> gpus, int32_t multiprocessors) {
  std::vector<InitRecord> records(gpus.size());
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].peer.rank = static_cast<int32_t>(i);
    records[i].gpuHash = gpus[i];
    records[i].multiprocessors = multiprocessors;
    records[i].maxBlocks = wire::kGpuMaxBlocks;
  }
  return records;
}

TEST(GpuLimits, GoByTheGpuWithTheFewestMultiprocessors) {
  std::vector<InitRecord> records = ranksOn({1, 2, 3}, 132);
  EXPECT_EQ(limitsOf(records).multiprocessors, 132);
  records[1].multiprocessors = 58;
  EXPECT_EQ(limitsOf(records).multiprocessors, 58);
  EXPECT_EQ(limitsOf(records).ranksPerDevice, 1);
}

// Kernels of ranks that wait for each other have to be on the GPU at once, or none goes on.
TEST(ObstacleToPeers, NamesMoreRanksThanAGpuHolds) {
  EXPECT_THAT(obstacleToPeers(ranksOn(std::vector<uint64_t>(8, 7), 132)), IsEmpty());
  EXPECT_THAT(obstacleToPeers(ranksOn(std::vector<uint64_t>(8, 7), 46)), IsEmpty());
  EXPECT_THAT(obstacleToPeers(ranksOn(std::vector<uint64_t>(8, 7), 14)),
              HasSubstr("8 ranks share a GPU; of 8 ranks 2 can, with 14 multiprocessors"));
  EXPECT_THAT(obstacleToPeers(ranksOn({1, 2, 3, 4, 5, 6, 7, 8}, 14)), IsEmpty());
}

}  // namespace
}  // namespace tutti::comm
