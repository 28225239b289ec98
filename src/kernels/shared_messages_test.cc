// Messages that name memory instead of bringing it: which form each takes, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/execution_testing.h"

namespace tutti::kernels {
namespace {

// A sender's buffer that is shared, and a receiver's mapper that knows it at another address.
class FakeMapper final : public wire::SegmentMapper {
 public:
  bool map(const wire::Announcement& announcement) override {
    asked_ = announcement.serial;
    return accepts;
  }
  std::byte* find(const wire::SharedReference& reference, size_t bytes) const override {
    if (reference.serial != asked_ || reference.offset > memory.size()) return nullptr;
    if (bytes > memory.size() - reference.offset) return nullptr;
    return memory.data() + reference.offset;
  }
  bool accepts = true;
  mutable std::vector<std::byte> memory;

 private:
  uint64_t asked_ = 0;
};

class SharedExecution : public testing::Test {
 protected:
  static constexpr size_t kCount = 1000;
  static constexpr uint32_t kWideSlotBytes = 8192;

  SharedExecution()
      : cluster_({&schedule::algorithms(Collective::kBroadcast)[0], 2, 0, kCount, 2},
                 kWideSlotBytes) {
    sender_ = cluster_.rank(0).outgoing[0];
    receiver_ = cluster_.rank(1).incoming[0];
    sender_->ledger = &ledger_;
    receiver_->mapper = &mapper_;
    auto& input = cluster_.rank(0).input;
    shared_.input = {.serial = 9,
                     .start = reinterpret_cast<const std::byte*>(input.data()),
                     .bytes = kCount * sizeof(int64_t),
                     .token = {}};
    shared_.referableSteps = referable_;
    const auto bytes = std::as_bytes(std::span(input));
    mapper_.memory.assign(bytes.begin(), bytes.end());
  }

  void start() {
    cluster_.startRank(0, 1, &shared_);
    cluster_.startRank(1, 1);
  }
  // The kind of the message that one broadcast took.
  wire::MessageKind broadcast() {
    SeededRng rng(1);
    start();
    const uint64_t number = sender_->next;
    EXPECT_TRUE(cluster_.run(rng));
    cluster_.check();
    return sender_->view.message(number).kind;
  }

  Cluster cluster_;
  wire::LinkPort* sender_;
  wire::LinkPort* receiver_;
  wire::SegmentLedger ledger_;
  FakeMapper mapper_;
  const std::vector<uint8_t> referable_{1};
  SharedBuffers shared_;
};

TEST_F(SharedExecution, AnnouncesFirstAndRefersOnceTheReceiverHasMapped) {
  EXPECT_EQ(broadcast(), wire::MessageKind::kPayload);
  EXPECT_EQ(broadcast(), wire::MessageKind::kShared);
  EXPECT_EQ(broadcast(), wire::MessageKind::kShared);
}

// As calls do that go as the one before: all is bound, and what waits for long goes on by polls.
TEST_F(SharedExecution, RunsAgainAtOnce) {
  SeededRng rng(2);
  for (int times = 0; times < 3; ++times) broadcast();
  for (uint32_t signature = 2; signature < 8; ++signature) {
    for (const int32_t rank : {0, 1}) {
      RankState& state = cluster_.rank(rank);
      if (rank == 1) std::ranges::fill(state.output, -1);
      state.execution.restart({.input = reinterpret_cast<const std::byte*>(state.input.data()),
                               .output = reinterpret_cast<std::byte*>(state.output.data()),
                               .signature = signature});
      state.isDone = state.execution.runAtOnce(1 + signature % 2);
    }
    EXPECT_FALSE(cluster_.rank(0).isDone) << "its receiver has not come by then";
    EXPECT_TRUE(cluster_.run(rng));
    cluster_.check();
    EXPECT_TRUE(cluster_.rank(0).execution.hasReferred());
  }
}

TEST_F(SharedExecution, CopiesForEverWhereTheReceiverCannotMap) {
  mapper_.accepts = false;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(broadcast(), wire::MessageKind::kPayload);
}

TEST_F(SharedExecution, CopiesWhatMayBeOverwritten) {
  const std::vector<uint8_t> none{0};
  shared_.referableSteps = none;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(broadcast(), wire::MessageKind::kPayload);
}

TEST_F(SharedExecution, RefersPlainlyWithinAProcess) {
  sender_->isReceiverHere = receiver_->isSenderHere = true;
  EXPECT_EQ(broadcast(), wire::MessageKind::kReference);
}

TEST_F(SharedExecution, RefersToAnyMemoryWhereACarrierSendsIt) {
  shared_.input.serial = 0;
  EXPECT_EQ(broadcast(), wire::MessageKind::kPayload);
  sender_->carrierReach = wire::CarrierReach::kAnything;
  receiver_->isSenderHere = true;
  EXPECT_EQ(broadcast(), wire::MessageKind::kReference);
}

TEST_F(SharedExecution, RefersToSegmentsAloneWhereACarrierReachesNoMore) {
  sender_->carrierReach = wire::CarrierReach::kSegments;
  sender_->ledger = nullptr;
  receiver_->isSenderHere = true;
  EXPECT_EQ(broadcast(), wire::MessageKind::kReference);
  shared_.input.serial = 0;
  EXPECT_EQ(broadcast(), wire::MessageKind::kPayload);
}

TEST(Landing, IsOfferedWhereACopyGoesAndTakenAsItIs) {
  constexpr size_t kCount = 2000;
  Cluster cluster({&schedule::algorithms(Collective::kBroadcast)[0], 2, 0, kCount, 2}, 16_KiB);
  wire::LinkPort& receiver = *cluster.rank(1).incoming[0];
  wire::Landing landing;
  receiver.landing = &landing;
  cluster.startRank(0, 1);
  cluster.startRank(1, 1);
  EXPECT_EQ(cluster.rank(1).execution.poll().value(), Progress::kIdle);
  ASSERT_EQ(landing.wanted.load(), receiver.next + 1);
  ASSERT_EQ(landing.bytes, kCount * sizeof(int64_t));
  ASSERT_EQ(cluster.rank(0).execution.poll().value(), Progress::kDone);
  // What a carrier does.
  wire::MessageHead& message = receiver.view.message(receiver.next);
  std::byte* payload = receiver.view.payload(receiver.next, landing.bytes);
  std::memcpy(landing.memory, payload, landing.bytes);
  std::memset(payload, 0xee, landing.bytes);
  message.kind = wire::MessageKind::kLanded;
  EXPECT_EQ(cluster.rank(1).execution.poll().value(), Progress::kDone);
  cluster.check();
}

TEST(Landing, IsOfferedInSegmentsAloneWhereACarrierReachesNoMore) {
  constexpr size_t kCount = 2000;
  Cluster cluster({&schedule::algorithms(Collective::kBroadcast)[0], 2, 0, kCount, 2}, 16_KiB);
  wire::LinkPort& receiver = *cluster.rank(1).incoming[0];
  wire::Landing landing;
  receiver.landing = &landing;
  receiver.carrierReach = wire::CarrierReach::kSegments;
  cluster.startRank(1, 1);
  EXPECT_EQ(cluster.rank(1).execution.poll().value(), Progress::kIdle);
  EXPECT_EQ(landing.wanted.load(), 0u);
  const auto output = std::as_bytes(std::span(cluster.rank(1).output));
  SharedBuffers shared;
  shared.output = {.serial = 3, .start = output.data(), .bytes = output.size(), .token = {}};
  cluster.startRank(1, 1, &shared);
  EXPECT_EQ(cluster.rank(1).execution.poll().value(), Progress::kIdle);
  EXPECT_EQ(landing.wanted.load(), receiver.next + 1);
}

TEST_F(SharedExecution, EndsOnlyWhenTheReceiverHasRead) {
  EXPECT_EQ(broadcast(), wire::MessageKind::kPayload);
  start();
  EXPECT_EQ(cluster_.rank(0).execution.poll().value(), Progress::kAdvanced);
  EXPECT_EQ(cluster_.rank(0).execution.poll().value(), Progress::kIdle);
  EXPECT_TRUE(cluster_.rank(0).execution.awaited().isSender);
  EXPECT_EQ(cluster_.rank(1).execution.poll().value(), Progress::kDone);
  EXPECT_EQ(cluster_.rank(0).execution.poll().value(), Progress::kDone);
}

TEST_F(SharedExecution, RefusesReferencesToWhatIsNotMapped) {
  struct Wrong {
    uint64_t serial, offset;
  };
  EXPECT_EQ(broadcast(), wire::MessageKind::kPayload);
  for (const Wrong& wrong :
       {Wrong{8, 0}, Wrong{0, 0}, Wrong{9, 8}, Wrong{9, UINT64_MAX}, Wrong{UINT64_MAX, 1}}) {
    cluster_.startRank(1, 1);
    wire::SharedReference reference{.serial = wrong.serial, .offset = wrong.offset};
    wire::LinkPort forged = *sender_;
    wire::publishShared(forged, reference, kCount * sizeof(int64_t), 1);
    const Status status = cluster_.rank(1).execution.poll().takeStatus();
    EXPECT_EQ(status.code(), Code::kRemoteError);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("rank 0 names 8000 bytes"));
  }
  receiver_->mapper = nullptr;
  cluster_.startRank(1, 1);
  EXPECT_EQ(cluster_.rank(1).execution.poll().takeStatus().code(), Code::kRemoteError);
}

TEST_F(SharedExecution, RefusesAddressesOfAnotherProcessAndUnknownKinds) {
  for (const uint32_t kind : {1u, 3u, 77u}) {
    cluster_.startRank(1, 1);
    wire::LinkPort forged = *sender_;
    wire::publish(forged, kCount * sizeof(int64_t), 1, static_cast<wire::MessageKind>(kind));
    EXPECT_EQ(cluster_.rank(1).execution.poll().takeStatus().code(), Code::kInvalidUsage) << kind;
  }
}

}  // namespace
}  // namespace tutti::kernels
