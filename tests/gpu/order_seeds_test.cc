// Several communicators of the same ranks at once, as a seed says: which streams, what goes into
// one group, in which order among communicators, what is captured and replayed, when the host
// pauses, whether ranks have threads of their own. Each result is what the communicator's calls one
// after another give. GPU_ORDER_SEED=n plays seed n alone.
#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "base/futex.h"
#include "base/rng.h"
#include "tests/gpu/ranks.h"

namespace tutti::gputest {
namespace {

using std::chrono::microseconds;

constexpr uint64_t kSeeds = 12;
constexpr std::chrono::seconds kBound{60};  // of a seed
constexpr size_t kElements = 60'000;        // of a buffer
constexpr size_t kSlots = 3;                // pairs of buffers of a communicator
constexpr size_t kOwn = 2;                  // streams of a communicator, where they have their own

// Ends the process, and says which seed it was, if that takes too long.
class Bounded {
 public:
  explicit Bounded(uint64_t seed) : thread_([this, seed] { wait(seed); }) {}
  ~Bounded() {
    {
      const std::lock_guard lock(mutex_);
      isOver_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void wait(uint64_t seed) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kBound, [this] { return isOver_; })) return;
    std::fprintf(stderr, "GPU_ORDER_SEED=%llu has not ended within its bound\n",
                 static_cast<unsigned long long>(seed));
    std::_Exit(1);
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool isOver_ = false;
  std::thread thread_;
};

// ---- what all ranks do

enum class What : uint8_t { kReduce, kMaximum, kBroadcast, kGather, kScatter, kRing };

// From one buffer of the slot to the other.
struct Step {
  What what = What::kReduce;
  size_t slot = 0;
  size_t count = 1;
  int root = 0;
};
// Of a group: each step on a slot of its own.
struct Part {
  size_t communicator = 0;
  std::vector<Step> steps;
};
using GroupPlan = std::vector<Part>;

struct Plan {
  size_t ranks = 2;
  size_t communicators = 2;
  bool isInOrder = true;  // all ranks have one order of all groups, on any streams
  bool hasThreads = true;
  // Between them all ranks come to rest.
  struct Segment {
    int replays = 0;  // more than 0: of the groups, as one graph of one stream
    std::vector<GroupPlan> groups;
    std::vector<GroupPlan> between{};  // after each replay, on any streams
  };
  std::vector<Segment> segments;
};

class Planner {
 public:
  explicit Planner(SeededRng& rng) : rng_(rng) {}
  Plan draw(size_t mostRanks, size_t mostCommunicators) {
    plan_.ranks = 2 + below(mostRanks - 1);
    plan_.communicators = 2 + below(mostCommunicators - 1);
    plan_.isInOrder = below(2) == 0;
    plan_.hasThreads = below(3) != 0;
    const size_t segments = 2 + below(3);
    for (size_t i = 0; i < segments; ++i) {
      Plan::Segment segment;
      if (below(3) == 0) segment.replays = 1 + static_cast<int>(below(3));
      const size_t groups = segment.replays > 0 ? 1 + below(4) : 4 + below(8);
      for (size_t group = 0; group < groups; ++group) segment.groups.push_back(drawGroup());
      // Of more communicators, which of replays have room nobody counts.
      const bool hasRoom = segment.replays > 0 && plan_.communicators == 2;
      for (size_t left = hasRoom ? below(3) : 0; left > 0; --left)
        segment.between.push_back(drawGroup());
      plan_.segments.push_back(std::move(segment));
    }
    return plan_;
  }

 private:
  size_t below(size_t bound) { return static_cast<size_t>(rng_.below(bound)); }
  GroupPlan drawGroup() {
    GroupPlan group;
    const size_t first = below(plan_.communicators);
    const size_t members = 1 + (below(3) == 0 ? below(plan_.communicators) : 0);
    for (size_t i = 0; i < members; ++i) {
      Part part{.communicator = (first + i) % plan_.communicators, .steps = {}};
      const size_t steps = 1 + below(kSlots);
      for (size_t slot = 0; slot < steps; ++slot) {
        part.steps.push_back({.what = static_cast<What>(below(6)),
                              .slot = slot,
                              .count = 1 + below(below(2) == 0 ? 300 : kElements / plan_.ranks),
                              .root = static_cast<int>(below(plan_.ranks))});
      }
      group.push_back(std::move(part));
    }
    return group;
  }
  SeededRng& rng_;
  Plan plan_;
};

bool shareCommunicator(const GroupPlan& a, const GroupPlan& b) {
  return std::ranges::any_of(a, [&](const Part& one) {
    return std::ranges::any_of(
        b, [&](const Part& other) { return one.communicator == other.communicator; });
  });
}

// ---- what the calls give

using Vector = std::vector<uint32_t>;
// By communicator, slot and rank; the result of each step is the input of the slot's next.
struct Model {
  std::vector<std::array<std::vector<Vector>, kSlots>> data;

  explicit Model(const Plan& plan) : data(plan.communicators) {
    for (size_t comm = 0; comm < plan.communicators; ++comm) {
      for (size_t slot = 0; slot < kSlots; ++slot) {
        for (size_t rank = 0; rank < plan.ranks; ++rank)
          data[comm][slot].push_back(initial(comm, slot, rank));
      }
    }
  }
  static Vector initial(size_t comm, size_t slot, size_t rank) {
    Vector values(kElements);
    for (size_t i = 0; i < kElements; ++i)
      values[i] = static_cast<uint32_t>((comm * 31 + slot * 7 + rank * 1001 + i) * 2654435761u);
    return values;
  }
  // In place: rank r's block of a vector with blocks is the r-th.
  void apply(size_t comm, const Step& step) {
    std::vector<Vector>& ranks = data[comm][step.slot];
    const std::vector<Vector> before = ranks;
    for (size_t self = 0; self < ranks.size(); ++self) {
      for (size_t i = 0; i < step.count; ++i) applyTo(ranks, before, step, self, i);
    }
  }

 private:
  static void applyTo(std::vector<Vector>& ranks, const std::vector<Vector>& before,
                      const Step& step, size_t self, size_t i) {
    const auto folded = [&](size_t at, bool isSum) {
      uint32_t all = 0;
      for (const Vector& one : before) all = isSum ? all + one[at] : std::max(all, one[at]);
      return all;
    };
    Vector& own = ranks[self];
    const size_t block = self * step.count + i;
    switch (step.what) {
      case What::kReduce: own[i] = folded(i, true); return;
      case What::kMaximum: own[i] = folded(i, false); return;
      case What::kBroadcast: own[i] = before[static_cast<size_t>(step.root)][i]; return;
      case What::kScatter: own[block] = folded(block, true); return;
      case What::kRing:
        own[kElements - step.count + i] = before[(self + ranks.size() - 1) % ranks.size()][i];
        return;
      case What::kGather:
        for (size_t rank = 0; rank < ranks.size(); ++rank)
          own[rank * step.count + i] = before[rank][rank * step.count + i];
        return;
    }
  }
};

// ---- a rank

class Player {
 public:
  Player(const Plan& plan, size_t rank, uint64_t seed) : plan_(plan), rank_(rank), rng_(seed) {
    const size_t streams = plan.communicators * kOwn;
    for (size_t i = 0; i < streams; ++i) {
      auto gpu = RankGpu::open(static_cast<int>(rank), 0);
      EXPECT_TRUE(gpu.ok()) << gpu.status().message();
      streams_.push_back(std::move(gpu).value());
    }
    data_.resize(plan.communicators);
    for (size_t comm = 0; comm < plan.communicators; ++comm) {
      for (size_t slot = 0; slot < kSlots; ++slot) {
        data_[comm][slot] = std::make_unique<Array<uint32_t>>(*streams_[0], kElements, 0);
        data_[comm][slot]->get() = Model::initial(comm, slot, rank);
        data_[comm][slot]->put();
      }
    }
  }
  int number() const { return streams_[0]->number(); }
  void give(ncclComm_t comm) { comms_.push_back(comm); }

  // Puts a segment's calls onto streams; a graph is captured only.
  void issue(const Plan::Segment& segment) {
    EXPECT_STATUS(streams_[0]->makeCurrent());
    if (segment.replays > 0) {
      graphStream_ = below(streams_.size());
      EXPECT_STATUS(streams_[graphStream_]->capture([&]() -> Status {
        for (const GroupPlan& group : segment.groups) call(group, true);
        return {};
      }));
      return;
    }
    std::vector<const GroupPlan*> left;
    for (const GroupPlan& group : segment.groups) left.push_back(&group);
    while (!left.empty()) {
      const size_t which = plan_.isInOrder ? 0 : drawNext(left);
      if (below(4) == 0) sleepFor(microseconds(below(300)));
      call(*left[which], false);
      left.erase(left.begin() + static_cast<ptrdiff_t>(which));
    }
  }
  // REQUIRES: all ranks do the same.
  void replay(const Plan::Segment& segment) {
    EXPECT_STATUS(streams_[0]->makeCurrent());
    EXPECT_STATUS(streams_[graphStream_]->replay());
    for (const GroupPlan& group : segment.between) call(group, false);
  }
  void rest() {
    EXPECT_STATUS(streams_[0]->makeCurrent());
    for (auto& stream : streams_) EXPECT_STATUS(stream->synchronize());
  }
  void check(const Model& model) {
    EXPECT_STATUS(streams_[0]->makeCurrent());
    for (size_t comm = 0; comm < data_.size(); ++comm) {
      for (size_t slot = 0; slot < kSlots; ++slot) {
        EXPECT_TRUE(data_[comm][slot]->get() == model.data[comm][slot][rank_])
            << "rank " << rank_ << ", communicator " << comm << ", slot " << slot;
      }
    }
  }
  void end() {
    EXPECT_STATUS(streams_[0]->makeCurrent());
    for (auto& stream : streams_) stream->dropGraph();
    for (ncclComm_t comm : comms_) EXPECT_NCCL(ncclCommDestroy(comm));
    data_.clear();
  }

 private:
  size_t below(size_t bound) { return static_cast<size_t>(rng_.below(bound)); }
  // One of those with no earlier one of a communicator of theirs.
  size_t drawNext(const std::vector<const GroupPlan*>& left) {
    std::vector<size_t> free;
    for (size_t i = 0; i < left.size(); ++i) {
      const auto here = left.begin() + static_cast<ptrdiff_t>(i);
      const bool isFree = std::none_of(left.begin(), here, [&](const GroupPlan* before) {
        return shareCommunicator(*before, *left[i]);
      });
      if (isFree) free.push_back(i);
    }
    return free[below(free.size())];
  }
  void call(const GroupPlan& group, bool isCaptured) {
    EXPECT_NCCL(ncclGroupStart());
    for (const Part& part : group) {
      for (const Step& step : part.steps) {
        size_t stream = graphStream_;
        if (!isCaptured && plan_.isInOrder) stream = below(streams_.size());
        if (!isCaptured && !plan_.isInOrder) stream = part.communicator * kOwn + below(kOwn);
        call(part.communicator, step, static_cast<cudaStream_t>(streams_[stream]->stream()));
      }
    }
    EXPECT_NCCL(ncclGroupEnd());
  }
  void call(size_t communicator, const Step& step, cudaStream_t stream) {
    ncclComm_t comm = comms_[communicator];
    uint32_t* data = data_[communicator][step.slot]->device();
    const size_t n = step.count;
    uint32_t* block = data + rank_ * n;
    const int count = static_cast<int>(plan_.ranks), self = static_cast<int>(rank_);
    switch (step.what) {
      case What::kReduce:
        EXPECT_NCCL(ncclAllReduce(data, data, n, ncclUint32, ncclSum, comm, stream));
        return;
      case What::kMaximum:
        EXPECT_NCCL(ncclAllReduce(data, data, n, ncclUint32, ncclMax, comm, stream));
        return;
      case What::kBroadcast:
        EXPECT_NCCL(ncclBroadcast(data, data, n, ncclUint32, step.root, comm, stream));
        return;
      case What::kGather:
        EXPECT_NCCL(ncclAllGather(block, data, n, ncclUint32, comm, stream));
        return;
      case What::kScatter:
        EXPECT_NCCL(ncclReduceScatter(data, block, n, ncclUint32, ncclSum, comm, stream));
        return;
      case What::kRing:
        EXPECT_NCCL(ncclSend(data, n, ncclUint32, (self + 1) % count, comm, stream));
        EXPECT_NCCL(ncclRecv(data + kElements - n, n, ncclUint32, (self + count - 1) % count, comm,
                             stream));
        return;
    }
  }

  const Plan& plan_;
  const size_t rank_;
  SeededRng rng_;
  std::vector<std::unique_ptr<RankGpu>> streams_;
  std::vector<ncclComm_t> comms_;
  std::vector<std::array<std::unique_ptr<Array<uint32_t>>, kSlots>> data_;
  size_t graphStream_ = 0;
};

// ---- the play

using Players = std::vector<std::unique_ptr<Player>>;

void forAll(const Plan& plan, Players& players, const std::function<void(Player&)>& body) {
  std::vector<std::thread> threads;
  for (auto& player : players) {
    if (plan.hasThreads) {
      threads.emplace_back([&] { body(*player); });
    } else {
      body(*player);
    }
  }
  for (std::thread& thread : threads) thread.join();
}

void playSegment(const Plan& plan, Players& players, const Plan::Segment& segment) {
  forAll(plan, players, [&](Player& player) { player.issue(segment); });
  forAll(plan, players, [](Player& player) { player.rest(); });
  for (int i = 0; i < segment.replays; ++i)
    forAll(plan, players, [&](Player& player) { player.replay(segment); });
  forAll(plan, players, [](Player& player) { player.rest(); });
}

void play(uint64_t seed, size_t mostRanks, size_t mostCommunicators) {
  const Bounded bounded(seed);
  SeededRng rng(seed);
  const Plan plan = Planner(rng).draw(mostRanks, mostCommunicators);
  Players players;
  std::vector<int> numbers;
  for (size_t rank = 0; rank < plan.ranks; ++rank) {
    players.push_back(std::make_unique<Player>(plan, rank, rng.next()));
    numbers.push_back(players.back()->number());
  }
  for (size_t i = 0; i < plan.communicators; ++i) {
    std::vector<ncclComm_t> comms(plan.ranks);
    ASSERT_EQ(ncclCommInitAll(comms.data(), static_cast<int>(plan.ranks), numbers.data()),
              ncclSuccess)
        << ncclGetLastError(nullptr);
    for (size_t rank = 0; rank < plan.ranks; ++rank) players[rank]->give(comms[rank]);
  }
  Model model(plan);
  for (const Plan::Segment& segment : plan.segments) {
    playSegment(plan, players, segment);
    for (int turn = 0; turn < std::max(segment.replays, 1); ++turn) {
      for (const auto* groups : {&segment.groups, &segment.between}) {
        for (const GroupPlan& group : *groups) {
          for (const Part& part : group) {
            for (const Step& step : part.steps) model.apply(part.communicator, step);
          }
        }
      }
    }
    for (auto& player : players) player->check(model);
  }
  forAll(plan, players, [](Player& player) { player.end(); });
}

class OrderSeeds : public GpuTest {};

// Ranks that share a GPU have room for two communicators, unless the host carries calls out.
size_t mostCommunicators(size_t ranks) {
  const char* disabled = std::getenv("NCCL_P2P_DISABLE");
  if (disabled != nullptr && std::string(disabled) == "1") return 4;
  std::vector<int> numbers;
  for (size_t rank = 0; rank < ranks; ++rank) {
    auto gpu = RankGpu::open(static_cast<int>(rank), 0);
    if (gpu.ok()) numbers.push_back(gpu.value()->number());
  }
  std::ranges::sort(numbers);
  return std::ranges::adjacent_find(numbers) == numbers.end() ? 4 : 2;
}

TEST_F(OrderSeeds, CallsOfSeveralCommunicatorsEndAndGiveTheirResults) {
  const char* chosen = std::getenv("GPU_ORDER_SEED");
  const uint64_t first = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1;
  const uint64_t last = chosen != nullptr ? first : kSeeds;
  const auto ranks = static_cast<size_t>(rankCount());
  const size_t communicators = mostCommunicators(ranks);
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(testing::Message() << "GPU_ORDER_SEED=" << seed);
    play(seed, ranks, communicators);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tutti::gputest
