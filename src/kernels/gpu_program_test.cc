// Programs as kernels get them: run here by all ranks' blocks on the host, word for word.
#include "kernels/gpu_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/units.h"

namespace tutti::kernels::cuda {
namespace {

using schedule::Algorithm;

GpuRequest requestOf(Collective collective, int32_t ranks, uint64_t count) {
  return {.collective = collective,
          .type = DataType::kInt64,
          .count = count,
          .rankCount = ranks,
          .ranksPerDevice = 1,
          .keepsLines = true};
}

const GpuProgramWay* find(const std::vector<GpuProgramWay>& ways, std::string_view name) {
  for (const GpuProgramWay& way : ways)
    if (way.algorithm->name == name) return &way;
  return nullptr;
}

// All ranks and blocks of a call, in turns: a block goes on until a step's message or room is
// missing, as a kernel's does.
class Machine {
 public:
  Machine(const GpuRequest& request, const GpuProgramWay& way, Rank root)
      : request_(request), way_(way), ranks_(static_cast<size_t>(request.rankCount)) {
    const auto blocks =
        static_cast<size_t>(schedule::blockCount(request.collective, request.rankCount));
    const size_t all = blocks * request.count;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      One& rank = ranks_[r];
      fillProgram(request, way, {.rank = Rank{static_cast<int32_t>(r)}, .root = root}, rank.launch);
      // Both buffers have room for the whole vector, at the place of each chunk.
      rank.input.resize(all);
      for (size_t i = 0; i < all; ++i) rank.input[i] = valueOf(r, i);
      rank.output.assign(all, kPoison);
      for (int32_t b = 0; b < way.blocks; ++b) rank.blocks.push_back({.block = b});
    }
  }

  static int64_t valueOf(size_t rank, size_t element) {
    return static_cast<int64_t>((rank + 1) * 1'000'003 + element * 7);
  }
  static constexpr int64_t kPoison = -77;

  // False where all wait.
  bool run() {
    bool isMoving = true;
    while (isMoving) {
      isMoving = false;
      for (size_t r = 0; r < ranks_.size(); ++r)
        for (At& at : ranks_[r].blocks)
          while (advance(r, at)) isMoving = true;
    }
    for (const One& rank : ranks_)
      for (const At& at : rank.blocks)
        if (at.piece < rank.launch.call.pieceCount) return false;
    return true;
  }
  bool hasLeftOver() const {
    return std::ranges::any_of(links_, [](const auto& link) { return !link.second.empty(); });
  }
  const std::vector<int64_t>& output(size_t rank) const { return ranks_[rank].output; }

 private:
  struct At {
    int32_t block = 0;
    uint32_t piece = 0;
    uint32_t word = 0;
  };
  struct One {
    wire::GpuProgramLaunch launch{};
    std::vector<int64_t> input, output;
    std::vector<At> blocks;
  };
  using Link = std::deque<std::vector<int64_t>>;

  Link& link(size_t from, size_t to, int32_t block) { return links_[{from, to, block}]; }

  bool advance(size_t r, At& at) {
    One& rank = ranks_[r];
    const wire::GpuProgramCall& call = rank.launch.call;
    if (at.piece >= call.pieceCount) return false;
    const uint16_t* words = rank.launch.words + at.word;
    const auto sources = wire::gpuSourceCount(words[1]);
    const auto destinations = wire::gpuDestinationCount(words[1]);
    const auto range = wire::gpuRangeOf(call, words[0], at.block, at.piece);
    if (range.elements > 0 && !runStep(r, at, range)) return false;
    at.word += 2 + sources + destinations;
    if (at.word == call.wordCount) {
      at.word = 0;
      ++at.piece;
    }
    return true;
  }

  // Chunks lie where the whole vector has them, whatever the rank's buffer holds of it.
  int64_t* localAt(One& rank, uint16_t word, uint64_t first) {
    const bool isInput = (word & wire::kGpuProgramPlace) == wire::kGpuProgramInput;
    const int32_t chunk = word & ~wire::kGpuProgramPlace;
    const wire::GpuProgramCall& call = rank.launch.call;
    const uint64_t offset = wire::gpuChunkOffset(call, chunk, 0) + first;
    std::vector<int64_t>& buffer = isInput ? rank.input : rank.output;
    EXPECT_LT(offset, buffer.size());
    return buffer.data() + offset;
  }

  bool runStep(size_t r, const At& at, const wire::GpuProgramRange& range) {
    One& rank = ranks_[r];
    const uint16_t* words = rank.launch.words + at.word;
    const auto sources = size_t{wire::gpuSourceCount(words[1])};
    const auto destinations = size_t{wire::gpuDestinationCount(words[1])};
    const auto isLink = [](uint16_t word) {
      return (word & wire::kGpuProgramPlace) == wire::kGpuProgramLink;
    };
    const auto peerIn = [](uint16_t word) {
      return static_cast<size_t>(word & ~wire::kGpuProgramPlace);
    };
    const std::span<const uint16_t> from(words + 2, sources), to(words + 2 + sources, destinations);
    for (const uint16_t word : from)
      if (isLink(word) && link(peerIn(word), r, at.block).empty()) return false;
    for (const uint16_t word : to)
      if (isLink(word) && link(r, peerIn(word), at.block).size() == wire::kGpuProgramSlots)
        return false;
    std::vector<int64_t> sum(range.elements);
    for (const uint16_t word : from) {
      std::vector<int64_t> message;
      const int64_t* data = nullptr;
      if (isLink(word)) {
        Link& incoming = link(peerIn(word), r, at.block);
        message = std::move(incoming.front());
        incoming.pop_front();
        EXPECT_EQ(message.size(), range.elements);
        data = message.data();
      } else {
        data = localAt(rank, word, range.first);
      }
      for (size_t i = 0; i < range.elements; ++i) sum[i] += data[i];
    }
    for (const uint16_t word : to) {
      if (isLink(word)) {
        link(r, peerIn(word), at.block).push_back(sum);
      } else {
        std::ranges::copy(sum, localAt(rank, word, range.first));
      }
    }
    return true;
  }

  const GpuRequest request_;
  const GpuProgramWay way_;
  std::vector<One> ranks_;
  std::map<std::tuple<size_t, size_t, int32_t>, Link> links_;
};

// Element `i` of the whole vector on a rank, where the collective says what it is.
std::optional<int64_t> wanted(const GpuRequest& request, size_t rank, size_t root, size_t i) {
  const size_t block = i / request.count;
  const auto ranks = static_cast<size_t>(request.rankCount);
  int64_t sum = 0;
  for (size_t r = 0; r < ranks; ++r) sum += Machine::valueOf(r, i);
  switch (request.collective) {
    case Collective::kAllReduce: return sum;
    case Collective::kReduceScatter: return block == rank ? std::optional(sum) : std::nullopt;
    case Collective::kReduce: return rank == root ? std::optional(sum) : std::nullopt;
    case Collective::kBroadcast: return Machine::valueOf(root, i);
    case Collective::kAllGather: return Machine::valueOf(block, i);
    case Collective::kAllToAll:
      return Machine::valueOf(block, rank * request.count + i % request.count);
    case Collective::kGather:
      return rank == root ? std::optional(Machine::valueOf(block, i)) : std::nullopt;
    case Collective::kScatter:
      return block == rank ? std::optional(Machine::valueOf(root, i)) : std::nullopt;
    case Collective::kSend:
    case Collective::kRecv: return std::nullopt;
  }
  return std::nullopt;
}

void checkRun(const GpuRequest& request, const GpuProgramWay& way, int32_t root) {
  SCOPED_TRACE(testing::Message() << name(request.collective) << " by " << way.algorithm->name
                                  << ", " << request.rankCount << " ranks, count " << request.count
                                  << ", root " << root << ", "
                                  << programKernel(request, way).protocol);
  Machine machine(request, way, Rank{root});
  ASSERT_TRUE(machine.run()) << "all wait";
  EXPECT_FALSE(machine.hasLeftOver());
  for (size_t rank = 0; rank < static_cast<size_t>(request.rankCount); ++rank) {
    const std::vector<int64_t>& output = machine.output(rank);
    for (size_t i = 0; i < output.size(); ++i) {
      const auto want = wanted(request, rank, static_cast<size_t>(root), i);
      ASSERT_EQ(output[i], want.value_or(Machine::kPoison)) << "rank " << rank << ", element " << i;
    }
  }
}

class GpuProgramTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(GpuProgramTest, EveryAlgorithmGivesWhatTheCollectiveSays) {
  for (int32_t c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (isPointToPoint(collective)) continue;
    // Chunks of lines, of lines in several blocks, and of several pieces of slots; none a round
    // number.
    for (const uint64_t count : {uint64_t{1}, uint64_t{1237}, uint64_t{40'009}}) {
      if (count > 2000 && GetParam() > 9) continue;  // the same, but long
      const GpuRequest request = requestOf(collective, GetParam(), count);
      for (const GpuProgramWay& way : programWays(request))
        checkRun(request, way, hasRoot(collective) ? GetParam() / 2 : 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuProgramTest, ::testing::Values(2, 3, 4, 7, 9, 16, 17, 33));

TEST(GpuProgram, AtLeastSoManyBlocksAsAreAskedForHaveAPartEach) {
  for (const uint64_t count : {1, 5, 3000, 500'009}) {
    GpuRequest request = requestOf(Collective::kAllReduce, 3, count);
    const auto usual = programWays(request);
    request.minBlocks = 7;
    const auto ways = programWays(request);
    ASSERT_EQ(ways.size(), usual.size());
    for (size_t i = 0; i < ways.size(); ++i) {
      EXPECT_GE(ways[i].blocks, usual[i].blocks);
      if (count > 3000) {
        EXPECT_GE(ways[i].blocks, 7);
      }
      checkRun(request, ways[i], 0);
    }
    EXPECT_EQ(programTransferBlocks(request, 7 * wire::kGpuProgramLinePayload), 7);
    EXPECT_EQ(programTransferBlocks(request, 1), 1);
  }
}

TEST(GpuProgram, LongChunksGoPieceByPiece) {
  GpuRequest request = requestOf(Collective::kAllReduce, 3, 500'009);
  request.maxBlocks = 2;
  for (const GpuProgramWay& way : programWays(request)) {
    wire::GpuProgramLaunch launch{};
    EXPECT_EQ(way.messages, wire::GpuMessages::kSlots);
    fillProgram(request, way, {.rank = Rank{1}, .root = Rank{0}}, launch);
    EXPECT_GT(launch.call.pieceCount, 4u) << way.algorithm->name;
    EXPECT_LE(launch.call.pieceElements * 8, wire::gpuProgramSlotBytes(3));
    checkRun(request, way, 0);
  }
}

TEST(GpuProgram, EveryProgramHasRoomInALaunch) {
  for (int32_t c = 0; c < kCollectiveCount; ++c) {
    for (const int32_t ranks : {2, 31, 63, wire::kGpuProgramRanks}) {
      const GpuRequest request = requestOf(static_cast<Collective>(c), ranks, 1'000'000);
      for (const GpuProgramWay& way : programWays(request)) {
        for (int32_t rank = 0; rank < ranks; rank += 7) {
          wire::GpuProgramLaunch launch{};
          fillProgram(request, way, {.rank = Rank{rank}, .root = Rank{ranks - 1}}, launch);
          EXPECT_GT(launch.call.wordCount, 0u)
              << name(request.collective) << " by " << way.algorithm->name << ", " << ranks;
        }
      }
    }
  }
  EXPECT_TRUE(
      programWays(requestOf(Collective::kAllReduce, wire::kGpuProgramRanks + 1, 1)).empty());
}

TEST(GpuProgram, NeedsNoMoreSlotsThanThereAre) {
  for (int32_t c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& each : schedule::algorithms(static_cast<Collective>(c))) {
      if (each.isOfItsOwn(12, 1)) {
        EXPECT_LE(static_cast<uint32_t>(each.minSlotCount), wire::kGpuProgramSlots) << each.name;
      }
    }
  }
}

// So that the bits are the same by any of them.
TEST(GpuProgram, ContributionsOfAllRanksAreFoldedInRankOrder) {
  const GpuRequest request = requestOf(Collective::kAllReduce, 9, 100'000);
  const auto ways = programWays(request);
  wire::GpuProgramLaunch launch{};
  for (const std::string_view name : {"oneshot", "twoshot"}) {
    fillProgram(request, *find(ways, name), {.rank = Rank{4}, .root = Rank{0}}, launch);
    bool isSeen = false;
    for (uint32_t at = 0; at < launch.call.wordCount;) {
      const uint16_t* words = launch.words + at;
      const size_t sources = wire::gpuSourceCount(words[1]);
      at += static_cast<uint32_t>(2 + sources + wire::gpuDestinationCount(words[1]));
      if (sources != 9) continue;
      isSeen = true;
      for (uint16_t rank = 0; rank < 9; ++rank) {
        if (rank == 4) {
          EXPECT_NE(words[2 + rank] & wire::kGpuProgramPlace, wire::kGpuProgramLink) << "its own";
        } else {
          EXPECT_EQ(words[2 + rank], wire::kGpuProgramLink | rank);
        }
      }
    }
    EXPECT_TRUE(isSeen) << name;
  }
}

// What nobody has named must not round a narrow float more than once.
TEST(GpuProgram, WhatFoldsOnceComesFirst) {
  for (const auto collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce}) {
    for (const uint64_t count : {uint64_t{1}, uint64_t{100'000}, uint64_t{10'000'000}}) {
      const auto ways = programWays(requestOf(collective, 12, count));
      const std::string_view first = ways.front().algorithm->name;
      EXPECT_TRUE(first == "oneshot" || first == "twoshot" || first == "direct") << first;
      for (const GpuProgramWay& way : ways) {
        const std::string_view name = way.algorithm->name;
        EXPECT_EQ(way.foldsOnce, name == "oneshot" || name == "twoshot" || name == "direct")
            << name;
      }
    }
  }
  for (const GpuProgramWay& way : programWays(requestOf(Collective::kBroadcast, 12, 100)))
    EXPECT_TRUE(way.foldsOnce) << way.algorithm->name;
}

TEST(GpuProgram, ShortCallsTakeLinesAndOneHop) {
  const auto ways = programWays(requestOf(Collective::kAllReduce, 12, 16));
  EXPECT_EQ(ways.front().algorithm->name, "oneshot");
  EXPECT_EQ(ways.front().messages, wire::GpuMessages::kLines);
  EXPECT_EQ(ways.front().blocks, 1);
  const auto longWays = programWays(requestOf(Collective::kAllReduce, 12, 16_MiB));
  EXPECT_EQ(longWays.front().algorithm->name, "twoshot");
  EXPECT_EQ(longWays.front().messages, wire::GpuMessages::kSlots);
  EXPECT_EQ(longWays.front().blocks, wire::kGpuProgramBlocks);
}

// One message a block, and only where nothing takes lines apart.
TEST(GpuProgram, CallsOfMiddleLengthTakeWideLines) {
  GpuRequest request = requestOf(Collective::kAllReduce, 12, 8_KiB);
  const auto wideOf = [&] {
    std::vector<GpuProgramWay> ways = programWays(request);
    std::erase_if(ways, [](const GpuProgramWay& way) {
      return way.messages != wire::GpuMessages::kWideLines;
    });
    return ways;
  };
  const auto ways = wideOf();
  ASSERT_FALSE(ways.empty());
  EXPECT_EQ(programWays(request).front().messages, wire::GpuMessages::kWideLines);
  for (const GpuProgramWay& way : ways) {
    wire::GpuProgramLaunch launch{};
    fillProgram(request, way, {.rank = Rank{1}, .root = Rank{0}}, launch);
    EXPECT_EQ(launch.call.pieceCount, 1u) << way.algorithm->name;
    EXPECT_LE(launch.call.sliceElements * 8, wire::gpuProgramWidePayload(12));
  }
  request.keepsLines = false;
  EXPECT_TRUE(wideOf().empty());
  request.keepsLines = true;
  request.count = 16_MiB;
  EXPECT_TRUE(wideOf().empty());
}

TEST(GpuProgram, EachKindOfMessageHasItsRoom) {
  for (int32_t ranks = 1; ranks <= wire::kGpuProgramRanks; ++ranks) {
    const size_t wide = wire::gpuProgramWideBytes(ranks);
    EXPECT_EQ(wide % wire::kGpuWideGroupBytes, 0u);
    EXPECT_EQ(wire::gpuProgramWideOffset(ranks) % wire::kGpuWideLineBytes, 0u);
    EXPECT_EQ(wire::gpuProgramSlotsOffset(ranks) % wire::kGpuWideLineBytes, 0u);
    if (wide == 0) continue;
    EXPECT_GT(wire::gpuProgramWidePayload(ranks), wire::kGpuProgramLinePayload);
  }
  EXPECT_EQ(wire::gpuProgramWideBytes(wire::kGpuProgramRanks), 0u) << "too many rings";
}

// All blocks of all ranks of a GPU must be there at once.
TEST(GpuProgram, RanksThatShareAGpuTakeFewBlocksEach) {
  GpuRequest request = requestOf(Collective::kAllGather, 32, 1_MiB);
  request.ranksPerDevice = 32;
  for (const GpuProgramWay& way : programWays(request)) EXPECT_LE(way.blocks * 32, 104);
  request.collective = Collective::kSend;
  EXPECT_EQ(programTransferBlocks(request, 64_MiB), 1);
  request.ranksPerDevice = 1;
  EXPECT_EQ(programTransferBlocks(request, 64_MiB), 6);
  EXPECT_EQ(programTransferBlocks(request, 8), 1);
}

}  // namespace
}  // namespace tutti::kernels::cuda
