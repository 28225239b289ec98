// Several communicators on the same GPUs, as a seed says: streams, groups over several of them,
// captures and replays, the user's kernels between, ranks that are driven by threads of their own
// or by one. What the launchers put on the streams then runs on multiprocessors of which there are
// as many as a H100 has. GPU_ORDER_SEED=n plays seed n alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "launch/gpu_machine_testing.h"
#include "launch/gpu_rank_testing.h"

namespace tutti::launch {
namespace {

constexpr uint32_t kMultiprocessors = 132;
constexpr size_t kPhases = 2;
constexpr std::chrono::seconds kToSee{10};

void* streamAt(size_t number) { return reinterpret_cast<void*>(0x10 * (number + 1)); }
std::byte* bufferAt(size_t number) {
  return reinterpret_cast<std::byte*>((uintptr_t{1} << 40) + (number << 28));
}

// ---- what all ranks have in common

struct CallsOf {
  size_t communicator = 0;
  std::vector<plan::CallShape> shapes{};
  bool isRing = false;  // a send to the next rank and a receive from the one before, too
};
using GroupPlan = std::vector<CallsOf>;
struct Item {
  std::vector<GroupPlan> groups{};
  int replays = 0;  // more than 0: a graph of all that
};

enum class Order : uint8_t {
  kSame,  // of all calls, on any streams, whether or not they have room side by side
  kAny    // but each communicator's own; on streams of their own, of few blocks
};

struct Plan {
  size_t rankCount = 0;
  std::vector<size_t> sizes;  // of the communicators: their ranks are the first
  std::vector<Item> items;
};

class Planner {
 public:
  Planner(SeededRng& rng, Order order) : rng_(rng), order_(order) {}

  Plan draw() {
    Plan plan;
    plan.rankCount = 2 + below(3);
    const size_t communicators = 2 + below(3);
    for (size_t i = 0; i < communicators; ++i)
      plan.sizes.push_back(below(3) == 0 ? 2 + below(plan.rankCount - 1) : plan.rankCount);
    const size_t items = 8 + below(12);
    for (size_t i = 0; i < items; ++i) plan.items.push_back(item(communicators));
    return plan;
  }

 private:
  size_t below(size_t bound) { return static_cast<size_t>(rng_.below(bound)); }
  Item item(size_t communicators) {
    Item made;
    if (below(6) == 0) made.replays = 1 + static_cast<int>(below(2));
    const size_t groups = made.replays > 0 ? 2 + below(4) : 1;
    for (size_t i = 0; i < groups; ++i) made.groups.push_back(group(communicators));
    return made;
  }
  GroupPlan group(size_t communicators) {
    GroupPlan plan;
    const size_t first = below(communicators);
    const size_t members = 1 + (below(3) == 0 ? below(communicators) : 0);
    for (size_t i = 0; i < members; ++i) {
      CallsOf calls{.communicator = (first + i) % communicators, .isRing = below(4) == 0};
      for (size_t call = calls.isRing ? below(2) : 1 + below(2); call > 0; --call)
        calls.shapes.push_back(shape());
      plan.push_back(calls);
    }
    return plan;
  }
  plan::CallShape shape() {
    constexpr std::array kCollectives = {Collective::kAllReduce, Collective::kAllGather,
                                         Collective::kReduceScatter, Collective::kBroadcast};
    return {.collective = kCollectives[below(kCollectives.size())],
            .count = 1 + below(uint64_t{1} << (below(3) == 0 ? below(16) : 22))};
  }

  SeededRng& rng_;
  const Order order_;
};

std::set<size_t> communicatorsOf(const Item& item) {
  std::set<size_t> all;
  for (const GroupPlan& group : item.groups) {
    for (const CallsOf& calls : group) all.insert(calls.communicator);
  }
  return all;
}
// A replay joins all streams of its rank.
bool areOrdered(const Item& a, const Item& b) {
  if (a.replays > 0 || b.replays > 0) return true;
  const auto theirs = communicatorsOf(b);
  return std::ranges::any_of(communicatorsOf(a), [&](size_t one) { return theirs.contains(one); });
}

// ---- a rank

class World {
 public:
  World(const Plan& plan, Order order, uint32_t multiprocessors) : processes(plan.rankCount) {
    for (device::FakeAccelerator& gpu : processes.gpus) gpu.multiprocessorCount = multiprocessors;
    for (const size_t size : plan.sizes) {
      GpuLimits limits{.rankCount = static_cast<int32_t>(size)};
      if (order == Order::kAny) limits.maxBlocks = 16;
      communicators.push_back(
          std::make_unique<GpuCommunicator>(processes, GpuRankOptions{.limits = limits}));
      for (size_t rank = 0; rank < size; ++rank) {
        const Status status = communicators.back()->open(rank);
        EXPECT_TRUE(status.ok()) << status.message();
      }
    }
  }
  GpuProcesses processes;
  std::vector<std::unique_ptr<GpuCommunicator>> communicators;
};

class RankPlayer {
 public:
  RankPlayer(World& world, const Plan& plan, size_t rank, Order order, uint64_t seed)
      : world_(world),
        plan_(plan),
        rank_(rank),
        order_(order),
        rng_(seed),
        calls_(plan.sizes.size()),
        event_(gpu().createEvent().value()),
        user_(gpu().findKernel({}, "user", 0).value()) {}
  ~RankPlayer() { gpu().destroyEvent(event_); }
  RankPlayer(const RankPlayer&) = delete;
  RankPlayer& operator=(const RankPlayer&) = delete;

  void begin(size_t from, size_t to) {
    left_.clear();
    for (size_t i = from; i < to; ++i) left_.push_back(i);
    gpu().hold();
    first_ = gpu().launches().size();
  }
  // The next item that may be, as this rank has it. False: there is none.
  bool play() {
    if (left_.empty()) return false;
    std::vector<size_t> next;
    for (size_t i = 0; i < left_.size(); ++i) {
      const bool isFree = std::none_of(
          left_.begin(), left_.begin() + static_cast<ptrdiff_t>(i),
          [&](size_t before) { return areOrdered(plan_.items[before], plan_.items[left_[i]]); });
      if (isFree) next.push_back(i);
      if (order_ == Order::kSame) break;
    }
    const size_t which = next[below(next.size())];
    const Item& item = plan_.items[left_[which]];
    left_.erase(left_.begin() + static_cast<ptrdiff_t>(which));
    if (item.replays > 0) {
      graph(item);
    } else {
      const size_t width = order_ == Order::kSame ? kShared : kOwn;
      for (const CallsOf& calls : item.groups[0])
        launch(calls, order_ == Order::kSame ? 0 : kShared + calls.communicator * kOwn, width);
    }
    return true;
  }
  // What has been put on the streams since begin().
  void hand(GpuMachine& machine) const {
    const auto launches = gpu().launches();
    std::map<uint64_t, size_t> places;
    for (uint64_t number = first_ + 1; number <= launches.size(); ++number) {
      const device::NotedLaunch& noted = launches[number - 1];
      if (noted.capture != 0) continue;
      GpuWork work{
          .blocks = noted.blocks,
          .perMultiprocessor = device::FakeAccelerator::blocksPerMultiprocessor(noted.kernel),
          .hasWaves = !kernels::cuda::takesTransfers(noted.kernel)};
      if (const auto found = calls_of_.find(number); found != calls_of_.end())
        work.call = found->second;
      for (const uint64_t before : noted.after) {
        if (places.contains(before)) work.after.push_back(places[before]);
      }
      const bool isBehindOurs = calls_of_.contains(noted.behind) && places.contains(noted.behind);
      if (noted.startsEarly && isBehindOurs) work.early = places[noted.behind];
      places[number] = machine.add(rank_, std::move(work));
    }
  }
  // All has ended, and the launchers see it.
  void finish() {
    gpu().finish(gpu().launches().size());
    for (auto& communicator : world_.communicators) {
      if (auto& launcher = communicator->launcher(rankIn(*communicator)); launcher != nullptr) {
        EXPECT_TRUE(launcher->waitIdle(kToSee, steadyClock()));
      }
    }
  }

 private:
  static constexpr size_t kShared = 3, kOwn = 2;
  static constexpr size_t kReplays = 90, kCaptures = 100, kCaptured = 3;

  device::FakeAccelerator& gpu() const { return world_.processes.gpus[rank_]; }
  size_t below(size_t bound) { return static_cast<size_t>(rng_.below(bound)); }
  size_t rankIn(GpuCommunicator& communicator) const {
    return std::min(rank_, communicator.peers().size() - 1);
  }

  // On streams from `base` on, `width` of them.
  void launch(const CallsOf& plan, size_t base, size_t width) {
    const auto size = static_cast<int32_t>(plan_.sizes[plan.communicator]);
    const auto self = static_cast<int32_t>(rank_);
    if (self >= size) return;
    if (below(3) == 0) work(streamAt(base + below(width)));
    std::vector<Call> calls;
    for (const plan::CallShape& shape : plan.shapes) calls.push_back({.shape = shape});
    if (plan.isRing) {
      const int32_t next = (self + 1) % size, last = (self + size - 1) % size;
      constexpr uint64_t kCount = 1 << 20;
      calls.push_back(
          {.shape = {.collective = Collective::kSend, .peer = Rank{next}, .count = kCount}});
      calls.push_back(
          {.shape = {.collective = Collective::kRecv, .peer = Rank{last}, .count = kCount}});
    }
    std::vector<StreamCall> items;
    for (size_t i = 0; i < calls.size(); ++i) {
      calls[i].input = bufferAt(2 * i);
      calls[i].output = bufferAt(2 * i + 1);
      items.push_back({.call = &calls[i], .stream = streamAt(base + below(width))});
    }
    const size_t before = gpu().launches().size();
    const Status status =
        world_.communicators[plan.communicator]->launcher(rank_)->launch(items, true);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto launches = gpu().launches();
    for (size_t i = before; i < launches.size(); ++i) {
      if (launches[i].capture != 0) {
        captured_.push_back({i + 1, plan.communicator});
      } else {
        note(i + 1, plan.communicator, launches[i]);
      }
    }
  }
  // Each call of a communicator comes after all of its calls before.
  void note(uint64_t number, size_t communicator, const device::NotedLaunch& launch) {
    calls_of_[number] = {communicator, calls_[communicator].size()};
    if (!calls_[communicator].empty()) {
      EXPECT_TRUE(launch.after.contains(calls_[communicator].back()) ||
                  calls_[communicator].back() <= first_)
          << "launch " << number << " may overlap " << calls_[communicator].back();
    }
    calls_[communicator].push_back(number);
  }
  void work(void* stream) {
    const wire::GpuLaunch argument{};
    EXPECT_TRUE(gpu()
                    .launch({.kernel = user_,
                             .blocks = static_cast<uint32_t>(1 + below(200)),
                             .argument = &argument},
                            stream)
                    .ok());
  }
  void join(void* waiting, void* stream) {
    EXPECT_TRUE(gpu().record(event_, stream).ok());
    EXPECT_TRUE(gpu().wait(waiting, event_).ok());
  }
  void graph(const Item& item) {
    const size_t base = kCaptures + kCaptured * captures_;
    const uint64_t id = ++captures_;
    captured_.clear();
    gpu().beginCapture(streamAt(base), id);
    for (size_t i = 1; i < kCaptured; ++i) join(streamAt(base + i), streamAt(base));
    for (const GroupPlan& group : item.groups) {
      for (const CallsOf& calls : group) launch(calls, base, kCaptured);
    }
    for (size_t i = 1; i < kCaptured; ++i) join(streamAt(base), streamAt(base + i));
    gpu().endCapture(id);
    const size_t streams = kShared + kOwn * plan_.sizes.size();
    for (int replay = 0; replay < item.replays; ++replay) {
      for (size_t i = 0; i < streams; ++i) join(streamAt(kReplays), streamAt(i));
      const auto numbers = gpu().replay(id, streamAt(kReplays));
      const auto launches = gpu().launches();
      for (const auto& [number, communicator] : captured_)
        note(numbers.at(number), communicator, launches[numbers.at(number) - 1]);
      for (size_t i = 0; i < streams; ++i) join(streamAt(i), streamAt(kReplays));
    }
  }

  World& world_;
  const Plan& plan_;
  const size_t rank_;
  const Order order_;
  SeededRng rng_;
  std::vector<size_t> left_;                  // items
  std::vector<std::vector<uint64_t>> calls_;  // numbers of launches, by communicator
  std::map<uint64_t, std::pair<size_t, size_t>> calls_of_;
  std::vector<std::pair<uint64_t, size_t>> captured_;  // of the graph at hand
  size_t captures_ = 0;
  size_t first_ = 0;
  device::Event* event_ = nullptr;
  const device::Kernel* user_ = nullptr;
};

// ---- the play

// What stands still; empty: nothing.
std::string play(uint64_t seed, Order order, uint32_t assumedMultiprocessors = kMultiprocessors) {
  SeededRng rng(seed);
  const Plan plan = Planner(rng, order).draw();
  World world(plan, order, assumedMultiprocessors);
  std::vector<std::unique_ptr<RankPlayer>> players;
  for (size_t rank = 0; rank < plan.rankCount; ++rank)
    players.push_back(std::make_unique<RankPlayer>(world, plan, rank, order, rng.next()));
  for (size_t phase = 0; phase < kPhases; ++phase) {
    const size_t half = plan.items.size() / kPhases;
    for (auto& player : players)
      player->begin(phase * half, phase + 1 == kPhases ? plan.items.size() : (phase + 1) * half);
    if (rng.below(2) == 0) {
      std::vector<std::thread> threads;
      for (auto& player : players) {
        threads.emplace_back([&player] {
          while (player->play()) {
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    } else {
      for (bool isPlaying = true; isPlaying;) {
        isPlaying = false;
        for (auto& player : players) isPlaying |= player->play();
      }
    }
    GpuMachine machine(plan.rankCount, kMultiprocessors, rng);
    for (const auto& player : players) player->hand(machine);
    if (std::string text = machine.run(); !text.empty()) return text;
    for (auto& player : players) player->finish();
  }
  return {};
}

class GpuOrder : public testing::TestWithParam<Order> {};

TEST_P(GpuOrder, EveryCallOfSeveralCommunicatorsEnds) {
  const char* chosen = std::getenv("GPU_ORDER_SEED");
  const uint64_t first = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1;
  const uint64_t last = chosen != nullptr ? first : 24;
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(testing::Message() << "GPU_ORDER_SEED=" << seed);
    EXPECT_EQ(play(seed, GetParam()), "");
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Orders, GpuOrder, testing::Values(Order::kSame, Order::kAny),
                         [](const auto& one) {
                           return one.param == Order::kSame ? "Same" : "Any";
                         });

// On a GPU that is taken for a larger one.
TEST(GpuOrderTest, WithoutRoomSomeProgramsStandStill) {
  bool hasStood = false;
  for (uint64_t seed = 1; seed <= 60 && !hasStood; ++seed)
    hasStood = !play(seed, Order::kSame, 1'000'000).empty();
  EXPECT_TRUE(hasStood);
}

}  // namespace
}  // namespace tutti::launch
