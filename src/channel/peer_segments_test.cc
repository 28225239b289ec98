// Ranks as threads, each with a GPU of ordinary memory and a process, as far as descriptors are
// concerned, of its own.
#include "channel/peer_segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/process_counts_testing.h"
#include "bootstrap/test_job.h"
#include "device/fake_accelerator_testing.h"

namespace tutti::channel {
namespace {

using device::FakeAccelerator;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr std::chrono::seconds kTimeout{20};

struct RankSide {
  FakeAccelerator gpu;
  bootstrap::Handoff handoff;
  bool keepsLines = true;
  bool canHandOver = true;
  Result<PeerSegments::Shared> shared = PeerSegments::Shared{};
};

class Ranks {
 public:
  explicit Ranks(int32_t count, bool hasPrograms = false)
      : hasPrograms_(hasPrograms), sides_(static_cast<size_t>(count)), job_(count) {
    for (auto& side : sides_) side = std::make_unique<RankSide>();
  }
  RankSide& at(size_t rank) { return *sides_[rank]; }
  PeerSegments& segments(size_t rank) { return *at(rank).shared->segments; }
  const std::string& obstacle(size_t rank) { return at(rank).shared->obstacle; }
  size_t count() const { return sides_.size(); }

  void connect() {
    for (size_t rank = 0; rank < count(); ++rank) {
      bootstrap::PeerInfo info;
      info.rank = static_cast<int32_t>(rank);
      info.deviceIndex = info.rank;
      copyText(info.hostName, "node" + std::to_string(rank));
      copyText(info.handoffName,
               at(rank).canHandOver ? at(rank).handoff.name() : "nobody-is-there");
      peers_.push_back(info);
    }
    results_ = job_.runAll([this](bootstrap::Bootstrap& bootstrap) -> Status {
      RankSide& side = at(static_cast<size_t>(index(bootstrap.rank())));
      side.shared = PeerSegments::connect({.bootstrap = bootstrap,
                                           .handoff = side.handoff,
                                           .peers = peers_,
                                           .accelerator = side.gpu,
                                           .timeout = kTimeout,
                                           .hasPrograms = hasPrograms_,
                                           .keepsLines = side.keepsLines});
      return side.shared.ok() ? Status() : side.shared.status().clone();
    });
    for (const auto& result : results_) EXPECT_TRUE(result.status.ok()) << result.status.message();
  }
  // All of them stand without segments, and nothing of any is left.
  void expectNone() {
    for (size_t rank = 0; rank < count(); ++rank) {
      EXPECT_EQ(at(rank).shared->segments, nullptr) << "rank " << rank;
      EXPECT_FALSE(at(rank).shared->keepsLines);
      EXPECT_NE(obstacle(rank), "") << "rank " << rank;
      EXPECT_EQ(at(rank).gpu.alive(), 0u) << "rank " << rank;
    }
  }
  void expectNoneBecauseOf(size_t guilty) {
    expectNone();
    const std::string who =
        "rank " + std::to_string(guilty) + " (node" + std::to_string(guilty) + ")";
    for (size_t rank = 0; rank < count(); ++rank) {
      if (rank == guilty) continue;
      EXPECT_THAT(obstacle(rank), AllOf(HasSubstr(who), HasSubstr("its own log")));
    }
  }

 private:
  template <size_t kSize>
  static void copyText(std::array<char, kSize>& field, const std::string& text) {
    std::strncpy(field.data(), text.c_str(), kSize - 1);
  }

  const bool hasPrograms_;
  std::vector<bootstrap::PeerInfo> peers_;
  std::vector<std::unique_ptr<RankSide>> sides_;
  bootstrap::TestJob job_;
  std::vector<bootstrap::RankResult> results_;
};

TEST(PeerSegmentsTest, EachRankReachesTheMemoryOfEachOther) {
  for (const int32_t count : {1, 2, 3, 5, 8}) {
    Ranks ranks(count);
    ranks.connect();
    // Rank r writes a word of its own into each segment; its owner finds all of them.
    for (size_t rank = 0; rank < ranks.count(); ++rank) {
      ASSERT_NE(ranks.at(rank).shared->segments, nullptr) << ranks.obstacle(rank);
      EXPECT_GE(ranks.segments(rank).ownBytes(), wire::gpuAreaBytes(count));
      for (size_t peer = 0; peer < ranks.count(); ++peer) {
        std::byte* there = ranks.segments(rank).addresses()[peer] + wire::gpuStagingOffset(count);
        reinterpret_cast<uint64_t*>(there)[rank] = 100 * rank + peer + 1;
      }
    }
    for (size_t owner = 0; owner < ranks.count(); ++owner) {
      std::byte* own = ranks.segments(owner).addresses()[owner] + wire::gpuStagingOffset(count);
      for (size_t rank = 0; rank < ranks.count(); ++rank)
        EXPECT_EQ(reinterpret_cast<uint64_t*>(own)[rank], 100 * rank + owner + 1);
      EXPECT_EQ(ranks.at(owner).gpu.alive(), ranks.count()) << "its own and the peers', once each";
      ranks.at(owner).shared->segments.reset();
      EXPECT_EQ(ranks.at(owner).gpu.alive(), 0u);
    }
  }
}

// What the kernels count in stays zero: the check uses the end of the control area.
TEST(PeerSegmentsTest, TheCheckLeavesNothingWhereKernelsCount) {
  Ranks ranks(4);
  ranks.connect();
  for (size_t rank = 0; rank < ranks.count(); ++rank) {
    const auto* control =
        reinterpret_cast<const unsigned char*>(ranks.segments(rank).addresses()[rank]);
    EXPECT_EQ(std::count(control, control + sizeof(wire::GpuControl), 0),
              static_cast<ptrdiff_t>(sizeof(wire::GpuControl)));
  }
}

TEST(PeerSegmentsTest, ProgramsFindAllRanksAreasInATable) {
  Ranks ranks(12, true);
  ranks.connect();
  const size_t offset = wire::gpuProgramOffset(12);
  for (size_t rank = 0; rank < ranks.count(); ++rank) {
    ASSERT_NE(ranks.at(rank).shared->segments, nullptr) << ranks.obstacle(rank);
    const auto addresses = ranks.segments(rank).addresses();
    std::array<std::byte*, 12> table;
    std::memcpy(table.data(), addresses[rank] + offset, sizeof table);
    for (size_t peer = 0; peer < ranks.count(); ++peer)
      EXPECT_EQ(table[peer], addresses[peer] + offset);
  }
}

TEST(PeerSegmentsTest, LinesAreKeptWhereAllRanksSaySo) {
  for (const int32_t exception : {-1, 0, 2}) {
    Ranks ranks(3);
    if (exception >= 0) ranks.at(static_cast<size_t>(exception)).keepsLines = false;
    ranks.connect();
    for (size_t rank = 0; rank < ranks.count(); ++rank)
      EXPECT_EQ(ranks.at(rank).shared->keepsLines, exception < 0);
  }
}

struct Failure {
  const char* call;
  int number;
  const char* text;
};

// Each call of the driver's that a rank makes, on each rank: the others neither wait nor keep
// anything, and all hear of one.
TEST(PeerSegmentsTest, WhatTheDriverRefusesOneRankNobodyHas) {
  const std::array<Failure, 6> failures = {{{"makeMemory", 1, "makeMemory"},
                                            {"copy", 1, "copy"},
                                            {"exportHandle", 1, "exportHandle"},
                                            {"importMemory", 1, "cannot use device memory of rank"},
                                            {"importMemory", 2, "cannot use device memory of rank"},
                                            {"copy", 4, "cannot use device memory of rank"}}};
  for (const int32_t count : {3, 5}) {
    for (const Failure& failure : failures) {
      for (size_t guilty = 0; guilty < static_cast<size_t>(count); guilty += 2) {
        const size_t before = openDescriptors();
        {
          SCOPED_TRACE(testing::Message() << failure.call << " " << failure.number << " of rank "
                                          << guilty << " of " << count);
          Ranks ranks(count);
          ranks.at(guilty).gpu.failAt(failure.call, failure.number);
          ranks.connect();
          EXPECT_TRUE(ranks.at(guilty).gpu.hasFailed());
          ranks.expectNoneBecauseOf(guilty);
          EXPECT_THAT(ranks.obstacle(guilty),
                      AllOf(HasSubstr("CUDA_ERROR_OF_THE_TEST"), HasSubstr(failure.text)));
        }
        EXPECT_EQ(openDescriptors(), before);
      }
    }
  }
}

TEST(PeerSegmentsTest, ARankWhoseCopiesBringSomethingElseNamesThePair) {
  Ranks ranks(4);
  ranks.at(2).gpu.copies = FakeAccelerator::Copies::kWrongFromPeers;
  ranks.connect();
  ranks.expectNoneBecauseOf(2);
  EXPECT_THAT(
      ranks.obstacle(2),
      ContainsRegex("rank 2 \\(GPU 2, node2\\) cannot use device memory of rank 0 \\(GPU 0, "
                    "node0\\): a copy from it brings 0x[0-9a-f]+ where 0x[0-9a-f]+ was"));
}

TEST(PeerSegmentsTest, ARankWhoseCopiesDoNotArriveNamesThePair) {
  Ranks ranks(4);
  ranks.at(0).gpu.copies = FakeAccelerator::Copies::kLostToPeers;
  ranks.connect();
  ranks.expectNoneBecauseOf(0);
  EXPECT_THAT(
      ranks.obstacle(0),
      ContainsRegex("rank 0 \\(GPU 0, node0\\) cannot use device memory of rank 1 \\(GPU 1, "
                    "node1\\): a copy to it leaves 0x0 where 0x[0-9a-f]+ was written"));
}

TEST(PeerSegmentsTest, RanksThatFailForDifferentReasonsEachNameTheirOwn) {
  Ranks ranks(5);
  ranks.at(1).gpu.failAt("makeMemory");
  ranks.at(3).gpu.failAt("exportHandle");
  ranks.connect();
  ranks.expectNone();
  EXPECT_THAT(ranks.obstacle(1), HasSubstr("makeMemory"));
  EXPECT_THAT(ranks.obstacle(3), HasSubstr("exportHandle"));
  for (const size_t other : {0, 2, 4})
    EXPECT_THAT(ranks.obstacle(other), HasSubstr("rank 1 (node1)"));
}

TEST(PeerSegmentsTest, ASegmentThatIsTooShortIsNotMapped) {
  Ranks ranks(3);
  ranks.at(1).gpu.shortBy = size_t{2} << 20;
  ranks.connect();
  ranks.expectNone();
  for (const size_t other : {0, 2}) {
    EXPECT_THAT(ranks.obstacle(other),
                AllOf(HasSubstr("rank 1 (node1)"), HasSubstr(" are wanted")));
  }
}

TEST(PeerSegmentsTest, ARankWhoseProcessHandsNothingOverIsNamed) {
  Ranks ranks(3);
  ranks.at(1).canHandOver = false;
  ranks.connect();
  ranks.expectNone();
  for (const size_t other : {0, 2}) {
    EXPECT_THAT(ranks.obstacle(other),
                HasSubstr("cannot use device memory of rank 1 (GPU 1, node1)"));
  }
}

}  // namespace
}  // namespace tutti::channel
