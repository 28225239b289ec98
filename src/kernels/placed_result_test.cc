// Results that go straight into the receiver's output: every algorithm, in place and not, in any
// interleaving, and what a writer does once its receiver has failed.
#include "wire/placed_result.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>

#include "kernels/execution_testing.h"
#include "schedule/references.h"

namespace tutti::kernels {
namespace {

constexpr uint32_t kWideSlotBytes = 512;

// The buffers of one rank, which all others have mapped: where they are.
class RankMapper final : public wire::SegmentMapper {
 public:
  bool map(const wire::Announcement&) override { return true; }
  std::byte* find(const wire::SharedReference& reference, size_t bytes) const override {
    const auto found = segments.find(reference.serial);
    if (found == segments.end()) return nullptr;
    const wire::SharedSegment& segment = found->second;
    if (reference.offset > segment.bytes || bytes > segment.bytes - reference.offset)
      return nullptr;
    return const_cast<std::byte*>(segment.start) + reference.offset;
  }
  std::map<uint64_t, wire::SharedSegment> segments;
};

// Ranks that share the buffers `shares` says, and have mapped what was announced.
class PlacedCluster {
 public:
  PlacedCluster(const Case& c, bool inPlace)
      : rankCount_(c.rankCount), inPlace_(inPlace), cluster_(c, kWideSlotBytes) {
    const schedule::Schedule schedule =
        schedule::makeSchedule(*c.algorithm, {.rankCount = c.rankCount});
    for (int32_t rank = 0; rank < rankCount_; ++rank) {
      forms_.push_back({.referable = schedule::referableSteps(schedule, Rank{rank}, inPlace),
                        .answered = schedule::answeredSteps(schedule, Rank{rank}),
                        .placements = schedule::placements(schedule, Rank{rank}, inPlace)});
      addSegments(rank);
    }
    for (int32_t rank = 0; rank < rankCount_; ++rank) connect(rank);
  }

  void start(const std::vector<uint8_t>& shares) {
    for (int32_t rank = 0; rank < rankCount_; ++rank) {
      const auto at = static_cast<size_t>(rank);
      cluster_.startRank(rank, 1, shares[at] != 0 ? &shared_[at] : nullptr, {.inPlace = inPlace_});
    }
  }
  Cluster& cluster() { return cluster_; }

  size_t countLanded() {
    size_t count = 0;
    for (int32_t rank = 0; rank < rankCount_; ++rank) {
      for (const wire::LinkPort* port : cluster_.rank(rank).incoming) {
        if (port == nullptr) continue;
        for (uint64_t i = 0; i <= port->view.mask; ++i)
          count += port->view.message(i).kind == wire::MessageKind::kLanded ? 1 : 0;
      }
    }
    return count;
  }

 private:
  struct Forms {
    std::vector<uint8_t> referable;
    std::vector<uint8_t> answered;
    schedule::Placements placements;
  };

  wire::SharedSegment segmentOf(uint64_t serial, std::vector<int64_t>& buffer) {
    const wire::SharedSegment segment{.serial = serial,
                                      .start = reinterpret_cast<const std::byte*>(buffer.data()),
                                      .bytes = buffer.size() * sizeof(int64_t),
                                      .token = {}};
    mapper_.segments[serial] = segment;
    return segment;
  }
  void addSegments(int32_t rank) {
    RankState& state = cluster_.rank(rank);
    const auto serial = static_cast<uint64_t>(rank) * 2 + 1;
    const Forms& forms = forms_.back();
    const wire::SharedSegment output = segmentOf(serial + 1, state.output);
    shared_.push_back({.input = inPlace_ ? output : segmentOf(serial, state.input),
                       .output = output,
                       .referableSteps = forms.referable,
                       .answeredSteps = forms.answered,
                       .placements = &forms.placements,
                       .mapsOutput = true,
                       .minBytes = wire::kInlineBytes + 1});
  }
  void connect(int32_t rank) {
    for (wire::LinkPort* port : cluster_.rank(rank).incoming) {
      if (port != nullptr) port->mapper = &mapper_;
    }
    for (wire::LinkPort* port : cluster_.rank(rank).outgoing) {
      if (port != nullptr) port->ledger = &ledgers_.emplace_back();
    }
  }

  int32_t rankCount_;
  bool inPlace_;
  Cluster cluster_;
  RankMapper mapper_;
  std::deque<Forms> forms_;
  std::deque<SharedBuffers> shared_;
  std::deque<wire::SegmentLedger> ledgers_;
};

TEST(PlacedResult, IsRightInEveryInterleavingOfEveryAllReduce) {
  SeededRng rng(7);
  for (const Algorithm& algorithm : schedule::algorithms(Collective::kAllReduce)) {
    if (algorithm.reducesInNetwork()) continue;
    for (const int32_t ranks : {2, 3, 4, 6}) {
      for (const size_t count : {size_t{7}, size_t{33}, size_t{1000}}) {
        for (const bool inPlace : {false, true}) {
          PlacedCluster placed({&algorithm, ranks, 0, count, 8}, inPlace);
          for (int round = 0; round < 6; ++round) {
            std::vector<uint8_t> shares;
            for (int32_t rank = 0; rank < ranks; ++rank)
              shares.push_back(round < 4 || rng.below(2) == 0 ? 1 : 0);
            placed.start(shares);
            ASSERT_TRUE(placed.cluster().run(rng)) << algorithm.name;
            placed.cluster().check();
            ASSERT_FALSE(testing::Test::HasFatalFailure())
                << algorithm.name << " " << ranks << " ranks, " << count
                << (inPlace ? " in place" : "");
          }
          const bool isLong = algorithm.name == "twoshot" && count == 1000;
          EXPECT_TRUE(!isLong || placed.countLanded() > 0);
        }
      }
    }
  }
}

// Two ranks, whose buffers are mapped after the first calls.
class PlacedPair : public testing::Test {
 protected:
  static constexpr size_t kCount = 60;
  PlacedPair()
      : placed_({schedule::findAlgorithm(Collective::kAllReduce, "twoshot"), 2, 0, kCount, 8},
                false) {
    SeededRng rng(1);
    for (int round = 0; round < 3; ++round) {
      placed_.start({1, 1});
      EXPECT_TRUE(placed_.cluster().run(rng));
    }
    placed_.start({1, 1});
  }
  Result<Progress> poll(int32_t rank) { return placed_.cluster().rank(rank).execution.poll(); }
  wire::LinkPort& from(int32_t rank) { return *placed_.cluster().rank(rank).outgoing[0]; }

  PlacedCluster placed_;
};

TEST_F(PlacedPair, EndsWithoutWaitingForItsReaders) {
  EXPECT_EQ(poll(0).value(), Progress::kAdvanced);
  EXPECT_EQ(poll(1).value(), Progress::kAdvanced);
  EXPECT_EQ(poll(0).value(), Progress::kDone);
  EXPECT_TRUE(placed_.cluster().rank(0).execution.hasReferred());
  EXPECT_TRUE(placed_.cluster().rank(0).execution.hasMappedOutput());
  EXPECT_TRUE(placed_.cluster().rank(0).execution.hasOffered());
  EXPECT_EQ(poll(1).value(), Progress::kDone);
  placed_.cluster().check();
}

TEST_F(PlacedPair, WritesNothingToAReceiverThatHasFailed) {
  EXPECT_EQ(poll(0).value(), Progress::kAdvanced);
  from(1).view.control->receiverFault = 1;
  auto& output = placed_.cluster().rank(0).output;
  std::ranges::fill(output, -9);
  EXPECT_TRUE(poll(1).ok());
  EXPECT_EQ(std::ranges::count(output, -9), static_cast<ptrdiff_t>(kCount));
  EXPECT_EQ(from(1).view.control->isWriting, 0u);
}

TEST_F(PlacedPair, CopiesWhereTheOfferIsBeyondTheSegment) {
  EXPECT_EQ(poll(0).value(), Progress::kAdvanced);
  wire::MessageHead& message = from(0).view.message(from(0).next - 1);
  ASSERT_NE(message.flags & wire::kOffersPlace, 0u);
  for (const uint64_t offset : {UINT64_MAX, uint64_t{kCount * sizeof(int64_t)}}) {
    const wire::PlaceOffer wrong{.serial = 2, .offset = offset};
    std::memcpy(message.inlinePayload + wire::kPlaceOfferOffset, &wrong, sizeof wrong);
  }
  SeededRng rng(1);
  EXPECT_TRUE(placed_.cluster().run(rng));
  placed_.cluster().check();
}

TEST(PlacedResult, IsWaitedForByAReceiverThatFails) {
  wire::LinkControl control{};
  wire::LinkPort sender, receiver;
  sender.view.control = receiver.view.control = &control;
  std::byte place{};
  sender.place = &place;
  sender.placeBytes = 1;
  EXPECT_FALSE(wire::isBeingWritten(receiver));
  EXPECT_EQ(wire::beginWriting(sender, 1), &place);
  EXPECT_TRUE(wire::isBeingWritten(receiver));
  EXPECT_EQ(wire::beginWriting(sender, 1), nullptr) << "an offer is for one message";
  wire::endWriting(sender);
  EXPECT_FALSE(wire::isBeingWritten(receiver));
}

TEST(PlacedResult, IsForTheMessageAndTheLengthThatWereOffered) {
  wire::LinkControl control{};
  wire::LinkPort sender;
  sender.view.control = &control;
  std::byte place{};
  const auto offered = [&](uint64_t number, size_t bytes) {
    sender.place = &place;
    sender.placeBytes = 8;
    sender.placeNumber = 3;
    sender.next = number;
    return wire::beginWriting(sender, bytes) != nullptr;
  };
  EXPECT_TRUE(offered(3, 8));
  EXPECT_FALSE(offered(4, 8));
  EXPECT_FALSE(offered(3, 7));
}

}  // namespace
}  // namespace tutti::kernels
