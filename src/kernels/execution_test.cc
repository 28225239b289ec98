// The executor runs every algorithm of the catalogue right, in whatever order the ranks get to run.
#include "kernels/execution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <vector>

#include "base/rng.h"
#include "base/units.h"
#include "schedule/catalog.h"
#include "schedule/references.h"

namespace tutti::kernels {
namespace {

using schedule::Algorithm;

// All links of a communicator in one process, without transports.
class Links {
 public:
  explicit Links(wire::LinkGeometry geometry) : geometry_(geometry) {}
  wire::LinkPort* port(Rank from, Rank to, bool isSender) {
    auto& link = links_[{index(from), index(to)}];
    if (link == nullptr) {
      link = std::make_unique<Link>();
      const size_t bytes = roundUp(wire::linkBytes(geometry_), kCacheLineBytes);
      link->memory.reset(static_cast<std::byte*>(std::aligned_alloc(kCacheLineBytes, bytes)));
      std::uninitialized_fill_n(link->memory.get(), bytes, std::byte{0});
      link->sender.view = link->receiver.view = wire::viewLink(link->memory.get(), geometry_);
      // What may be read or written there is by the kernel.
      link->receiver.senderProcess = link->sender.receiverProcess = ::getpid();
      link->sender.mayWrite = true;
    }
    return isSender ? &link->sender : &link->receiver;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Link {
    std::unique_ptr<std::byte, Free> memory;
    wire::LinkPort sender;
    wire::LinkPort receiver;
  };
  wire::LinkGeometry geometry_;
  std::map<std::pair<int32_t, int32_t>, std::unique_ptr<Link>> links_;
};

struct RankState {
  schedule::Program program;
  std::vector<wire::LinkPort*> incoming;
  std::vector<wire::LinkPort*> outgoing;
  std::vector<int64_t> input;
  std::vector<int64_t> output;
  BoundProgram bound;
  StepScratch scratch;
  Execution execution;
  bool isDone = false;
};

struct Case {
  const Algorithm* algorithm;
  int32_t rankCount;
  int32_t root;
  size_t count;
  uint32_t slotCount;
  bool mayRefer = false;
  uint32_t shortCount = 0;
};

constexpr size_t kSlotBytes = 64;

int64_t inputAt(int32_t rank, size_t i) {
  return static_cast<int64_t>(i * 1000 + static_cast<size_t>(rank) + 1);
}

struct Wishes {
  bool refers = false;
  bool agrees = false;
  bool isJoint = false;
};

class Cluster {
 public:
  explicit Cluster(const Case& c, uint32_t slotBytes = kSlotBytes)
      : case_(c),
        slotBytes_(slotBytes),
        links_({.slotCount = c.slotCount, .slotBytes = slotBytes, .shortCount = c.shortCount}) {
    ranks_.resize(static_cast<size_t>(c.rankCount));
    for (int32_t rank = 0; rank < c.rankCount; ++rank) build(rank);
  }

  void start(uint32_t signature = 1) {
    for (int32_t rank = 0; rank < case_.rankCount; ++rank) startRank(rank, signature);
  }
  // Each rank with its own form of messages.
  void startMixed(SeededRng& rng, bool isJoint = false) {
    for (int32_t rank = 0; rank < case_.rankCount; ++rank)
      startRank(rank, 1, nullptr, {.refers = rng.below(2) == 0, .isJoint = isJoint});
  }
  void startRank(int32_t rank, uint32_t signature, const SharedBuffers* shared = nullptr,
                 const Wishes& wishes = {}) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    state.isDone = false;
    state.execution.start({.program = &state.bound,
                           .input = reinterpret_cast<const std::byte*>(state.input.data()),
                           .output = reinterpret_cast<std::byte*>(state.output.data()),
                           .signature = signature,
                           .scratch = &state.scratch,
                           .shared = shared,
                           .refers = wishes.refers,
                           .agrees = wishes.agrees,
                           .isJoint = wishes.isJoint});
  }

  // Polls ranks in random order until all are done. False: nobody could move any more.
  bool run(SeededRng& rng) {
    size_t idlePolls = 0;
    size_t left = ranks_.size();
    while (left > 0) {
      RankState& state = ranks_[rng.below(ranks_.size())];
      if (state.isDone) continue;
      const Progress progress = state.execution.poll().value();
      if (progress == Progress::kDone) {
        state.isDone = true;
        --left;
      }
      idlePolls = progress == Progress::kIdle ? idlePolls + 1 : 0;
      if (idlePolls > 200 * ranks_.size()) return false;
    }
    return true;
  }

  RankState& rank(int32_t rank) { return ranks_[static_cast<size_t>(rank)]; }

  void check() const {
    for (int32_t rank = 0; rank < case_.rankCount; ++rank) {
      const auto& output = ranks_[static_cast<size_t>(rank)].output;
      for (size_t i = 0; i < output.size(); ++i)
        ASSERT_EQ(output[i], wanted(rank, i)) << "rank " << rank << " place " << i;
    }
  }

 private:
  schedule::Layout layoutOf(int32_t rank) const {
    return schedule::makeLayout({.collective = case_.algorithm->collective,
                                 .rank = Rank{rank},
                                 .rankCount = case_.rankCount,
                                 .chunkCount = case_.algorithm->chunkCount(case_.rankCount),
                                 .blockElements = case_.count,
                                 .elementBytes = sizeof(int64_t),
                                 .pieceBytes = slotBytes_});
  }

  size_t inputBlocks() const {
    const Collective c = case_.algorithm->collective;
    const bool whole =
        c == Collective::kReduceScatter || c == Collective::kAllToAll || c == Collective::kScatter;
    return whole ? static_cast<size_t>(case_.rankCount) : 1;
  }
  size_t outputBlocks() const {
    const Collective c = case_.algorithm->collective;
    const bool whole =
        c == Collective::kAllGather || c == Collective::kAllToAll || c == Collective::kGather;
    return whole ? static_cast<size_t>(case_.rankCount) : 1;
  }

  void build(int32_t rank) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    state.program = case_.algorithm->build(
        {.rankCount = case_.rankCount, .root = Rank{case_.root}, .sender = Rank{0}}, Rank{rank});
    const UsedLinks used = usedLinks(state.program, layoutOf(rank));
    for (size_t i = 0; i < used.incoming.size(); ++i) {
      const Rank peer = state.program.receivesFrom[i];
      state.incoming.push_back(used.incoming[i] ? links_.port(peer, Rank{rank}, false) : nullptr);
    }
    for (size_t i = 0; i < used.outgoing.size(); ++i) {
      const Rank peer = state.program.sendsTo[i];
      state.outgoing.push_back(used.outgoing[i] ? links_.port(Rank{rank}, peer, true) : nullptr);
    }
    state.bound = BoundProgram(
        {.program = state.program,
         .incoming = state.incoming,
         .outgoing = state.outgoing,
         .layout = layoutOf(rank),
         .fold = {.type = DataType::kInt64, .op = ReduceOp::kSum, .rankCount = case_.rankCount},
         .mayRefer = case_.mayRefer});
    state.input.resize(case_.count * inputBlocks());
    for (size_t i = 0; i < state.input.size(); ++i) state.input[i] = inputAt(rank, i);
    state.output.assign(case_.count * outputBlocks(), kUntouched);
  }

  int64_t sum(size_t i) const {
    int64_t total = 0;
    for (int32_t rank = 0; rank < case_.rankCount; ++rank) total += inputAt(rank, i);
    return total;
  }

  int64_t wanted(int32_t rank, size_t i) const {
    const size_t block = i / std::max<size_t>(case_.count, 1);
    const size_t within = i % std::max<size_t>(case_.count, 1);
    const bool isRoot = rank == case_.root;
    const size_t own = static_cast<size_t>(rank) * case_.count;
    switch (case_.algorithm->collective) {
      case Collective::kAllReduce: return sum(i);
      case Collective::kReduce: return isRoot ? sum(i) : kUntouched;
      case Collective::kReduceScatter: return sum(own + i);
      case Collective::kBroadcast: return inputAt(case_.root, i);
      case Collective::kAllGather: return inputAt(static_cast<int32_t>(block), within);
      case Collective::kGather:
        return isRoot ? inputAt(static_cast<int32_t>(block), within) : kUntouched;
      case Collective::kScatter: return inputAt(case_.root, own + i);
      case Collective::kAllToAll: return inputAt(static_cast<int32_t>(block), own + within);
      case Collective::kSend:
      case Collective::kRecv: return isRoot ? inputAt(0, i) : kUntouched;
    }
    return 0;
  }

  static constexpr int64_t kUntouched = -7;
  Case case_;
  uint32_t slotBytes_;
  Links links_;
  std::vector<RankState> ranks_;
};

TEST(Execution, RunsEveryAlgorithmInAnyInterleaving) {
  SeededRng rng(20261120);
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : schedule::algorithms(static_cast<Collective>(c))) {
      for (const int32_t ranks : {1, 2, 3, 4, 5, 8, 13}) {
        for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{64}, size_t{201}}) {
          const auto root = static_cast<int32_t>(rng.below(static_cast<uint64_t>(ranks)));
          for (const uint32_t slots : {2u, 8u}) {
            if (static_cast<int32_t>(wire::capacity(slots)) < algorithm.minSlotCount) continue;
            SCOPED_TRACE(testing::Message()
                         << name(algorithm.collective) << " " << algorithm.name << " ranks "
                         << ranks << " count " << count << " root " << root << " slots " << slots);
            Cluster cluster({&algorithm, ranks, root, count, slots});
            // Twice over the same links: counters go on where they were.
            for (int times = 0; times < 2; ++times) {
              cluster.start();
              ASSERT_TRUE(cluster.run(rng));
              cluster.check();
            }
          }
        }
      }
    }
  }
}

// Short slots and long ones, of which a piece takes either.
TEST(Execution, RunsOverLongSlots) {
  SeededRng rng(20261122);
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : schedule::algorithms(static_cast<Collective>(c))) {
      for (const size_t count : {size_t{700}, size_t{9000}}) {
        SCOPED_TRACE(testing::Message()
                     << name(algorithm.collective) << " " << algorithm.name << " count " << count);
        Cluster cluster({.algorithm = &algorithm,
                         .rankCount = 4,
                         .root = 1,
                         .count = count,
                         .slotCount = 8,
                         .shortCount = 32},
                        3 * wire::kShortBytes);
        for (int times = 0; times < 3; ++times) {
          cluster.start();
          ASSERT_TRUE(cluster.run(rng));
          cluster.check();
        }
      }
    }
  }
}

// A rank that opened a link which the other does not would wait for it for ever.
TEST(Execution, BothEndsAgreeWhetherALinkIsUsed) {
  using Pair = std::pair<int32_t, int32_t>;
  size_t unused = 0;
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : schedule::algorithms(static_cast<Collective>(c))) {
      for (const int32_t ranks : {2, 3, 8, 13}) {
        for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{201}}) {
          SCOPED_TRACE(testing::Message() << name(algorithm.collective) << " " << algorithm.name
                                          << " ranks " << ranks << " count " << count);
          Cluster cluster({&algorithm, ranks, 0, count, 8});
          std::set<Pair> sent;
          std::set<Pair> received;
          for (int32_t rank = 0; rank < ranks; ++rank) {
            const RankState& state = cluster.rank(rank);
            for (size_t i = 0; i < state.outgoing.size(); ++i) {
              const Pair link{rank, index(state.program.sendsTo[i])};
              if (state.outgoing[i] != nullptr) {
                sent.insert(link);
              } else {
                ++unused;
              }
            }
            for (size_t i = 0; i < state.incoming.size(); ++i) {
              if (state.incoming[i] != nullptr)
                received.emplace(index(state.program.receivesFrom[i]), rank);
            }
          }
          EXPECT_EQ(sent, received);
        }
      }
    }
  }
  EXPECT_GT(unused, 0u);
}

TEST(Execution, EachSenderRefersOrCopiesAsItLikes) {
  SeededRng rng(20261121);
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : schedule::algorithms(static_cast<Collective>(c))) {
      if (!schedule::isReferable(algorithm)) continue;
      for (const int32_t ranks : {2, 3, 5}) {
        SCOPED_TRACE(testing::Message()
                     << name(algorithm.collective) << " " << algorithm.name << " ranks " << ranks);
        Cluster cluster({&algorithm, ranks, 0, 201, 2, true});
        for (int times = 0; times < 8; ++times) {
          cluster.startMixed(rng);
          ASSERT_TRUE(cluster.run(rng));
          cluster.check();
        }
      }
    }
  }
}

TEST(Execution, BothEndsCopyLongReferences) {
  SeededRng rng(20261123);
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : schedule::algorithms(static_cast<Collective>(c))) {
      if (!schedule::isReferable(algorithm)) continue;
      for (const int32_t ranks : {2, 3}) {
        SCOPED_TRACE(testing::Message()
                     << name(algorithm.collective) << " " << algorithm.name << " ranks " << ranks);
        Cluster cluster({&algorithm, ranks, 0, 20'001, 2, true}, 64_KiB);
        for (int times = 0; times < 4; ++times) {
          cluster.startMixed(rng, true);
          ASSERT_TRUE(cluster.run(rng));
          cluster.check();
        }
      }
    }
  }
}

TEST(Execution, EveryRankLearnsWhetherAllAgree) {
  SeededRng rng(20261122);
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather,
                                      Collective::kReduceScatter, Collective::kAllToAll}) {
    for (const Algorithm& algorithm : schedule::algorithms(collective)) {
      for (const int32_t ranks : {2, 3, 5, 8}) {
        Cluster cluster({&algorithm, ranks, 0, 201, 4});
        for (int32_t refusing = -1; refusing < ranks; ++refusing) {
          SCOPED_TRACE(testing::Message() << name(collective) << " " << algorithm.name << " ranks "
                                          << ranks << " refusing " << refusing);
          for (int32_t rank = 0; rank < ranks; ++rank)
            cluster.startRank(rank, 1, nullptr, {.agrees = rank != refusing});
          ASSERT_TRUE(cluster.run(rng));
          cluster.check();
          for (int32_t rank = 0; rank < ranks; ++rank)
            EXPECT_EQ(cluster.rank(rank).execution.isAgreed(), refusing < 0) << "rank " << rank;
        }
      }
    }
  }
}

TEST(Execution, SaysWhomItWaitsFor) {
  const Algorithm& broadcast = schedule::algorithms(Collective::kBroadcast)[0];
  Cluster cluster({&broadcast, 2, 0, 8, 2});
  cluster.start();
  Execution& receiver = cluster.rank(1).execution;
  EXPECT_EQ(receiver.poll().value(), Progress::kIdle);
  EXPECT_EQ(receiver.awaited().peer, 0);
  device::WaitSet waits;
  receiver.addWaits(waits);
  ASSERT_EQ(waits.count, 1u);
  EXPECT_EQ(waits.points[0].word, &cluster.rank(1).incoming[0]->view.message(0).mark);
  EXPECT_EQ(receiver.awaitedFault(), wire::LinkFault::kNone);
  cluster.rank(0).outgoing[0]->view.control->senderFault.store(1);
  EXPECT_EQ(receiver.awaitedFault(), wire::LinkFault::kAborted);
}

TEST(Execution, RefusesAMessageOfAnotherCall) {
  const Algorithm& broadcast = schedule::algorithms(Collective::kBroadcast)[0];
  Cluster cluster({&broadcast, 2, 0, 8, 2});
  cluster.startRank(0, 1);
  cluster.startRank(1, 2);
  ASSERT_TRUE(cluster.rank(0).execution.poll().ok());
  const Result<Progress> result = cluster.rank(1).execution.poll();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kInvalidUsage);
  EXPECT_THAT(std::string(result.status().message()),
              testing::HasSubstr("rank 0 belongs to another call"));
}

TEST(Execution, RefusesAMessageOfAnotherLength) {
  const Algorithm& broadcast = schedule::algorithms(Collective::kBroadcast)[0];
  Cluster cluster({&broadcast, 2, 0, 8, 2});
  cluster.start();
  ASSERT_TRUE(cluster.rank(0).execution.poll().ok());
  wire::LinkPort& port = *cluster.rank(1).incoming[0];
  for (const uint32_t bytes : {0u, 63u, 65u, 0xffffffffu}) {
    port.view.message(0).bytes = bytes;
    cluster.startRank(1, 1);
    EXPECT_EQ(cluster.rank(1).execution.poll().status().code(), Code::kInvalidUsage) << bytes;
  }
}

// A sender's buffer that is shared, and a receiver's mapper that knows it at another address.
class FakeMapper final : public wire::SegmentMapper {
 public:
  bool map(const wire::Announcement& announcement) override {
    asked_ = announcement.serial;
    return accepts;
  }
  const std::byte* find(const wire::SharedReference& reference, size_t bytes) const override {
    if (reference.serial != asked_ || reference.offset > memory.size()) return nullptr;
    if (bytes > memory.size() - reference.offset) return nullptr;
    return memory.data() + reference.offset;
  }
  bool accepts = true;
  std::vector<std::byte> memory;

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
  sender_->isCarrierHere = receiver_->isSenderHere = true;
  EXPECT_EQ(broadcast(), wire::MessageKind::kReference);
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
