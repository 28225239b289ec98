// Messages by way of the outbox: when they go there, that nobody writes what others still read, and
// what becomes of them when their sender is gone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/execution_testing.h"
#include "schedule/references.h"

namespace tutti::kernels {
namespace {

// What a receiver has mapped of its sender: in one process the same memory.
class SameMemory final : public wire::SegmentMapper {
 public:
  explicit SameMemory(const Outbox& outbox) : segment_(outbox.segment()) {}
  bool map(const wire::Announcement& announcement) override {
    isMapped_ = accepts && announcement.serial == segment_.serial;
    return isMapped_;
  }
  std::byte* find(const wire::SharedReference& reference, size_t bytes) const override {
    const bool fits = isMapped_ && reference.serial == segment_.serial &&
                      segment_.contains(segment_.start + reference.offset, bytes);
    return fits ? const_cast<std::byte*>(segment_.start) + reference.offset : nullptr;
  }
  bool accepts = true;

 private:
  const wire::SharedSegment segment_;
  bool isMapped_ = false;
};

const Algorithm& algorithmOf(Collective collective, std::string_view name) {
  return *std::ranges::find(schedule::algorithms(collective), name, &Algorithm::name);
}

// Ranks with an outbox each.
class Posting {
 public:
  Posting(const Algorithm& algorithm, int32_t rankCount, size_t blockElements,
          size_t slotBytes = 16_KiB, uint32_t shortCount = 0, int32_t hostCount = 1)
      : count(blockElements),
        cluster({.algorithm = &algorithm,
                 .rankCount = rankCount,
                 .root = 0,
                 .count = count,
                 .slotCount = 8,
                 .shortCount = shortCount,
                 .hostCount = hostCount},
                static_cast<uint32_t>(slotBytes)) {
    const Outbox::Reach reach = Outbox::reachOf(hostCount == 1);
    for (int32_t rank = 0; rank < rankCount; ++rank) {
      memory_.emplace_back(Outbox::bytesFor(reach));
      outboxes.push_back(
          std::make_unique<Outbox>(wire::SharedSegment{.serial = static_cast<uint64_t>(rank) + 1,
                                                       .start = memory_.back().data(),
                                                       .bytes = memory_.back().size(),
                                                       .token = {}},
                                   reach));
    }
    for (int32_t rank = 0; rank < rankCount; ++rank) {
      RankState& state = cluster.rank(rank);
      for (wire::LinkPort* port : state.outgoing) {
        ledgers_.push_back(std::make_unique<wire::SegmentLedger>());
        port->ledger = ledgers_.back().get();
      }
      for (size_t i = 0; i < state.incoming.size(); ++i) {
        const auto sender = static_cast<size_t>(index(state.program.receivesFrom[i]));
        mappers.push_back(std::make_unique<SameMemory>(*outboxes[sender]));
        state.incoming[i]->mapper = mappers.back().get();
      }
    }
    if (hostCount > 1) part(algorithm, rankCount, hostCount);
  }

  // Each call has values of its own, so that one that is overwritten too soon, or too late, shows.
  void start(int32_t rank, int64_t call) {
    RankState& state = cluster.rank(rank);
    for (size_t i = 0; i < state.input.size(); ++i) state.input[i] = inputAt(rank, i) + call;
    const auto place = static_cast<size_t>(rank);
    cluster.startRank(rank, static_cast<uint32_t>(call),
                      shared_.empty() ? nullptr : &shared_[place],
                      {.streams = !shared_.empty(), .outbox = outboxes[place].get()});
  }
  void startAll(int64_t call) {
    for (size_t rank = 0; rank < outboxes.size(); ++rank) start(static_cast<int32_t>(rank), call);
  }
  void checkBroadcast(int32_t rank, int64_t call) {
    const auto& output = cluster.rank(rank).output;
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(output[i], inputAt(0, i) + call) << "rank " << rank << " call " << call;
  }
  // Of all-reduce and all-gather.
  void check(int32_t rank, int64_t call, bool isReduced) {
    const auto ranks = static_cast<int32_t>(outboxes.size());
    const auto& output = cluster.rank(rank).output;
    for (size_t i = 0; i < output.size(); ++i) {
      int64_t wanted = 0;
      if (isReduced) {
        for (int32_t peer = 0; peer < ranks; ++peer) wanted += inputAt(peer, i) + call;
      } else {
        wanted = inputAt(static_cast<int32_t>(i / count), i % count) + call;
      }
      ASSERT_EQ(output[i], wanted) << "rank " << rank << " place " << i << " call " << call;
    }
  }
  wire::MessageKind lastKind(int32_t rank) {
    const wire::LinkPort& port = *cluster.rank(rank).outgoing.back();
    return port.view.message(port.next - 1).kind;
  }

  const size_t count;
  Cluster cluster;
  std::vector<std::unique_ptr<Outbox>> outboxes;
  std::vector<std::unique_ptr<SameMemory>> mappers;

 private:
  // What goes between hosts is read from the sender's memory, as a network does, and nobody there
  // maps anything.
  void part(const Algorithm& algorithm, int32_t rankCount, int32_t hostCount) {
    const schedule::Schedule schedule =
        schedule::makeSchedule(algorithm, {.rankCount = rankCount, .hostCount = hostCount});
    for (int32_t rank = 0; rank < rankCount; ++rank) {
      referable_.push_back(schedule::referableSteps(schedule, Rank{rank}, false));
      const auto isFar = [&](Rank peer) {
        return index(peer) * hostCount / rankCount != rank * hostCount / rankCount;
      };
      RankState& state = cluster.rank(rank);
      for (size_t i = 0; i < state.outgoing.size(); ++i) {
        if (!isFar(state.program.sendsTo[i])) continue;
        state.outgoing[i]->ledger = nullptr;
        state.outgoing[i]->carrierReach = wire::CarrierReach::kAnything;
      }
      for (size_t i = 0; i < state.incoming.size(); ++i) {
        if (!isFar(state.program.receivesFrom[i])) continue;
        state.incoming[i]->mapper = nullptr;
        state.incoming[i]->isSenderHere = true;
      }
    }
    for (const std::vector<uint8_t>& steps : referable_)
      shared_.push_back({.input = {}, .output = {}, .referableSteps = steps, .answeredSteps = {}});
  }

  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::unique_ptr<wire::SegmentLedger>> ledgers_;
  std::vector<std::vector<uint8_t>> referable_;  // by rank; empty on one host
  std::vector<SharedBuffers> shared_;            // likewise
};

TEST(PostedMessages, AreRightHoweverFarRanksRunAhead) {
  SeededRng rng(20261124);
  const std::array<const Algorithm*, 3> algorithms{&algorithmOf(Collective::kAllGather, "direct"),
                                                   &algorithmOf(Collective::kAllReduce, "oneshot"),
                                                   &algorithmOf(Collective::kAllReduce, "twoshot")};
  for (const Algorithm* algorithm : algorithms) {
    const bool isReduced = algorithm->collective == Collective::kAllReduce;
    for (const size_t count : {size_t{600}, size_t{1500}, size_t{9000}}) {
      SCOPED_TRACE(testing::Message() << algorithm->name << " of " << count);
      constexpr int32_t kRanks = 4;
      constexpr int64_t kCalls = 30;
      Posting posting(*algorithm, kRanks, count);
      std::array<int64_t, kRanks> call{};
      posting.startAll(0);
      for (int64_t left = kRanks * kCalls; left > 0;) {
        const auto rank = static_cast<int32_t>(rng.below(kRanks));
        int64_t& own = call[static_cast<size_t>(rank)];
        if (own == kCalls) continue;
        if (posting.cluster.rank(rank).execution.poll().value() != Progress::kDone) continue;
        posting.check(rank, own, isReduced);
        if (testing::Test::HasFatalFailure()) return;
        --left;
        if (++own < kCalls) posting.start(rank, own);
      }
    }
  }
}

// Roots hear from nobody, and run ahead as far as rooms and slots let them: 32 messages a link,
// and 8 rooms of the longest.
TEST(PostedMessages, OfBroadcastsAreRightHoweverFarTheRootRunsAhead) {
  SeededRng rng(20261125);
  for (const std::string_view name : {"direct", "tree", "twoshot"}) {
    for (const size_t count : {size_t{300}, size_t{1500}, size_t{8192}, size_t{20000}}) {
      SCOPED_TRACE(testing::Message() << name << " of " << count);
      constexpr int32_t kRanks = 4;
      constexpr int64_t kCalls = 60;
      Posting posting(algorithmOf(Collective::kBroadcast, name), kRanks, count, 64_KiB, 32);
      std::array<int64_t, kRanks> call{};
      posting.startAll(0);
      int idlePolls = 0;
      for (int64_t left = kRanks * kCalls; left > 0;) {
        // The root more often than each other, and one reader seldom.
        const uint64_t drawn = rng.below(10);
        const int32_t rank = drawn < 5 ? 0 : drawn < 7 ? 1 : drawn < 9 ? 2 : 3;
        int64_t& own = call[static_cast<size_t>(rank)];
        if (own == kCalls) continue;
        const Progress progress = posting.cluster.rank(rank).execution.poll().value();
        idlePolls = progress == Progress::kIdle ? idlePolls + 1 : 0;
        ASSERT_LT(idlePolls, 1000) << "nobody moves";
        if (progress != Progress::kDone) continue;
        posting.checkBroadcast(rank, own);
        if (testing::Test::HasFatalFailure()) return;
        --left;
        if (++own < kCalls) posting.start(rank, own);
      }
    }
  }
}

// A room that a reader keeps is waited for once as many of its messages are unread as a schedule
// may count on.
TEST(PostedMessages, OfBroadcastsWaitForRoomsInsteadOfCopies) {
  SeededRng rng(1);
  constexpr size_t kElements = 8192;  // a room of 64 KiB: 8 of them
  Posting posting(algorithmOf(Collective::kBroadcast, "direct"), 3, kElements, 64_KiB, 32);
  posting.startAll(0);
  ASSERT_TRUE(posting.cluster.run(rng));
  Execution& root = posting.cluster.rank(0).execution;
  int64_t call = 1;
  for (; call < 20; ++call) {
    posting.start(0, call);
    if (root.poll().value() != Progress::kDone) break;
    EXPECT_EQ(posting.lastKind(0), wire::MessageKind::kShared);
  }
  EXPECT_EQ(call, 1 + static_cast<int64_t>(Rooms::kBytes / 64_KiB));
  EXPECT_TRUE(root.awaited().isSender);
  // One of the two is not enough.
  std::array<int64_t, 3> read{0, 1, 1};
  for (int32_t reader : {2, 1}) {
    EXPECT_EQ(root.poll().value(), Progress::kIdle);
    posting.start(reader, read[static_cast<size_t>(reader)]++);
    ASSERT_EQ(posting.cluster.rank(reader).execution.poll().value(), Progress::kDone);
    posting.checkBroadcast(reader, 1);
  }
  EXPECT_EQ(root.poll().value(), Progress::kDone);
  EXPECT_EQ(posting.lastKind(0), wire::MessageKind::kShared);
}

// Of two hosts with three ranks each, which run ahead of each other as far as they can.
class PostedAcrossHosts : public testing::Test {
 protected:
  static constexpr int32_t kRanks = 6;
  // Runs so many calls of all ranks, in any order, and checks each.
  void run(int64_t calls) {
    std::array<int64_t, kRanks> call{};
    posting.startAll(0);
    int idlePolls = 0;
    for (int64_t left = kRanks * calls; left > 0;) {
      const auto rank = static_cast<int32_t>(rng_.below(kRanks));
      int64_t& own = call[static_cast<size_t>(rank)];
      if (own == calls) continue;
      const Progress progress = posting.cluster.rank(rank).execution.poll().value();
      idlePolls = progress == Progress::kIdle ? idlePolls + 1 : 0;
      ASSERT_LT(idlePolls, 1000) << "nobody moves";
      if (progress != Progress::kDone) continue;
      posting.check(rank, own, true);
      if (HasFatalFailure()) return;
      --left;
      if (++own < calls) posting.start(rank, own);
    }
  }
  // Of the last two messages, the rank's own result and that of its counterpart on the other host.
  std::array<wire::MessageKind, 2> lastKinds(int32_t from, int32_t to) {
    RankState& state = posting.cluster.rank(from);
    const auto at =
        std::ranges::find(state.program.sendsTo, Rank{to}) - state.program.sendsTo.begin();
    const wire::LinkPort& port = *state.outgoing[static_cast<size_t>(at)];
    return {port.view.message(port.next - 2).kind, port.view.message(port.next - 1).kind};
  }

  static constexpr size_t kElements = size_t{kRanks} * 3 * 8192;  // three pieces of 64 KiB a chunk
  Posting posting{
      algorithmOf(Collective::kAllReduce, "hierarchical"), kRanks, kElements, 64_KiB, 0, 2};

 private:
  SeededRng rng_{20261129};
};

TEST_F(PostedAcrossHosts, LieOnceForAllRanksOfAHostAndGoFromTheOutputToOtherHosts) {
  run(20);
  constexpr std::array kBoth{wire::MessageKind::kShared, wire::MessageKind::kShared};
  for (const int32_t peer : {1, 2}) EXPECT_EQ(lastKinds(0, peer), kBoth);
  for (const int32_t peer : {3, 5}) EXPECT_EQ(lastKinds(4, peer), kBoth);
  EXPECT_EQ(lastKinds(0, 3).back(), wire::MessageKind::kReference);
}

TEST_F(PostedAcrossHosts, AreCopiesWhereNoRoomIsFree) {
  wire::LinkControl control{};
  wire::LinkPort unread;
  unread.view.control = &control;
  for (const auto& outbox : posting.outboxes) {
    ASSERT_NE(outbox->rooms().take(Outbox::kRoomsOfHostsBytes, 1), nullptr);
    outbox->rooms().hold(unread);
  }
  run(5);
  constexpr std::array kBoth{wire::MessageKind::kPayload, wire::MessageKind::kPayload};
  EXPECT_EQ(lastKinds(0, 1), kBoth);
}

TEST_F(PostedAcrossHosts, AreCopiesForRanksThatCannotMap) {
  for (const auto& mapper : posting.mappers) mapper->accepts = false;
  run(5);
  constexpr std::array kBoth{wire::MessageKind::kPayload, wire::MessageKind::kPayload};
  EXPECT_EQ(lastKinds(0, 1), kBoth);
}

TEST(PostedMessages, GoOnceAllHaveMapped) {
  SeededRng rng(1);
  Posting posting(algorithmOf(Collective::kAllGather, "direct"), 3, 600);
  for (int64_t call = 0; call < 4; ++call) {
    posting.startAll(call);
    ASSERT_TRUE(posting.cluster.run(rng));
    EXPECT_EQ(posting.lastKind(0),
              call == 0 ? wire::MessageKind::kPayload : wire::MessageKind::kShared);
  }
}

TEST(PostedMessages, AreCopiesWhereSomeoneCannotMap) {
  SeededRng rng(1);
  Posting posting(algorithmOf(Collective::kAllGather, "direct"), 3, 600);
  posting.mappers[2]->accepts = false;  // rank 1, of what one of the others sends
  for (int64_t call = 0; call < 4; ++call) {
    posting.startAll(call);
    ASSERT_TRUE(posting.cluster.run(rng));
    for (int32_t rank = 0; rank < 3; ++rank) posting.check(rank, call, false);
  }
  const auto refused = index(posting.cluster.rank(1).program.receivesFrom[0]);
  EXPECT_EQ(posting.lastKind(refused), wire::MessageKind::kPayload);
}

TEST(PostedMessages, ShortOnesAreCopies) {
  SeededRng rng(1);
  Posting posting(algorithmOf(Collective::kAllGather, "direct"), 3, 200);
  for (int64_t call = 0; call < 4; ++call) {
    posting.startAll(call);
    ASSERT_TRUE(posting.cluster.run(rng));
    EXPECT_EQ(posting.lastKind(0), wire::MessageKind::kPayload);
  }
}

// Who has ended its last call may leave before the others have read what it posted.
TEST(PostedMessages, AreReadWhenTheirSenderHasLeft) {
  SeededRng rng(1);
  Posting posting(algorithmOf(Collective::kAllGather, "direct"), 3, 600);
  for (int64_t call = 0; call < 3; ++call) {
    posting.startAll(call);
    if (call < 2) {
      ASSERT_TRUE(posting.cluster.run(rng));
    }
  }
  Execution& first = posting.cluster.rank(0).execution;
  for (int32_t rank : {1, 2})
    ASSERT_EQ(posting.cluster.rank(rank).execution.poll().value(), Progress::kAdvanced);
  ASSERT_EQ(first.poll().value(), Progress::kDone);
  for (wire::LinkPort* port : posting.cluster.rank(0).outgoing)
    port->view.control->senderFault.store(static_cast<uint32_t>(wire::LinkFault::kDestroyed));
  for (int32_t rank : {1, 2}) {
    while (posting.cluster.rank(rank).execution.poll().value() == Progress::kAdvanced) continue;
    EXPECT_EQ(posting.cluster.rank(rank).execution.awaitedFault(), wire::LinkFault::kNone);
    posting.check(rank, 2, false);
  }
}

// Two links of a rank, by hand.
class RoomsOfTwoLinks : public testing::Test {
 protected:
  RoomsOfTwoLinks() : memory_(Rooms::kBytes), rooms(memory_.data()) {
    for (size_t i = 0; i < ports.size(); ++i) ports[i].view.control = &controls_[i];
  }
  std::byte* post(size_t bytes) {
    std::byte* room = rooms.take(bytes, ports.size());
    if (room == nullptr) return nullptr;
    for (wire::LinkPort& port : ports) {
      rooms.hold(port);
      ++port.next;
    }
    return room;
  }
  void giveBack(size_t link, uint64_t messages) { controls_[link].head.store(messages); }

 private:
  std::vector<std::byte> memory_;
  std::array<wire::LinkControl, 2> controls_{};

 protected:
  Rooms rooms;
  std::array<wire::LinkPort, 2> ports;
};

TEST_F(RoomsOfTwoLinks, AreFreeWhenTheHeadsOfAllLinksHavePassed) {
  constexpr size_t kHalf = Rooms::kBytes / 2;
  std::byte* first = post(kHalf);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(post(kHalf), first + kHalf);
  EXPECT_EQ(post(1), nullptr);
  giveBack(0, 2);
  EXPECT_EQ(post(1), nullptr) << "the other has read none";
  giveBack(1, 1);
  EXPECT_EQ(post(1), first);
  EXPECT_EQ(post(kHalf), nullptr) << "the second is still kept, and the first in use";
  giveBack(1, 2);
  EXPECT_EQ(post(kHalf), first + kCacheLineBytes);
}

TEST_F(RoomsOfTwoLinks, AreNeverInTwoPieces) {
  std::byte* first = post(Rooms::kBytes - 2 * kCacheLineBytes);
  giveBack(0, 1);
  giveBack(1, 1);
  EXPECT_EQ(post(3 * kCacheLineBytes), first);
  EXPECT_EQ(post(Rooms::kBytes + 1), nullptr);
}

TEST_F(RoomsOfTwoLinks, AreForSoManyMessagesAtMost) {
  for (size_t i = 0; i < Rooms::kMostUnread / 2; ++i) ASSERT_NE(post(64), nullptr);
  EXPECT_EQ(post(64), nullptr);
  EXPECT_EQ(rooms.keeper().port, ports.data());
  EXPECT_EQ(rooms.keeper().number, 0u);
  giveBack(0, 1);
  EXPECT_EQ(post(64), nullptr);
  giveBack(1, 1);
  EXPECT_NE(post(64), nullptr);
}

TEST(Rooms, AreAsLongTogetherAsIsSaid) {
  std::vector<std::byte> memory(3 * kCacheLineBytes);
  Rooms rooms(memory.data(), memory.size());
  EXPECT_EQ(rooms.take(memory.size() + 1, 1), nullptr);
  wire::LinkControl control{};
  wire::LinkPort port;
  port.view.control = &control;
  for (size_t round = 0; round < 5; ++round) {
    std::byte* two = rooms.take(2 * kCacheLineBytes, 1);
    EXPECT_EQ(two, memory.data()) << round;
    rooms.hold(port);
    control.head.store(++port.next);
  }
}

TEST(Outbox, ReusesAHalfOnlyWhenALaterCallHasEnded) {
  std::vector<std::byte> memory(Outbox::kBytes);
  Outbox outbox({.serial = 1, .start = memory.data(), .bytes = memory.size(), .token = {}});
  outbox.begin();
  std::byte* first = outbox.take(100);
  ASSERT_EQ(first, memory.data() + Outbox::kHalfBytes + Outbox::kLeadBytes);
  EXPECT_EQ(outbox.take(1), first + 128);
  outbox.end();
  outbox.begin();
  constexpr size_t kAll = Outbox::kHalfBytes - Outbox::kLeadBytes;
  EXPECT_EQ(outbox.take(kAll + 1), nullptr);
  EXPECT_EQ(outbox.take(kAll), memory.data() + Outbox::kLeadBytes);
  EXPECT_EQ(outbox.take(1), nullptr) << "it is full";
  outbox.begin();  // the second has not ended
  EXPECT_EQ(outbox.take(1), nullptr);
  outbox.end();
  outbox.begin();
  EXPECT_EQ(outbox.take(1), first);
  EXPECT_EQ(outbox.reference(first).offset, Outbox::kHalfBytes + Outbox::kLeadBytes);
}

}  // namespace
}  // namespace tutti::kernels
