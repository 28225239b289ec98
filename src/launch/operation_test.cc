#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "bootstrap/test_job.h"
#include "launch/launcher.h"
#include "transport/registry.h"

namespace tutti::launch {
namespace {

// Two ranks of a process, whose operations a test polls by hand.
class Pair {
 public:
  static constexpr size_t kRanks = 2;

  Pair()
      : job_(kRanks, kRanks),
        transports_(transport::openTransports({})),
        board_(observe::Board::create(kRanks, "job", kTimeout.count()).value()),
        results_(job_.runAll(nullptr)) {
    for (size_t rank = 0; rank < kRanks; ++rank) {
      bootstrap::PeerInfo info;
      info.rank = static_cast<int32_t>(rank);
      info.processHash = info.hostHash = 1;
      std::strcpy(info.hostName.data(), "node");
      peers_.push_back(info);
    }
    for (size_t rank = 0; rank < kRanks; ++rank) open(rank);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    for (auto& launcher : launchers_) launcher.reset();
  }

  device::Task& prepare(size_t rank, std::span<const Call> calls) {
    auto task = launchers_[rank]->prepare(calls);
    EXPECT_TRUE(task.ok());
    return **task;
  }

 private:
  static constexpr Nanoseconds kTimeout = std::chrono::seconds(20);

  void open(size_t rank) {
    EXPECT_TRUE(results_[rank].status.ok());
    plan::Agreement agreement;
    agreement.rank = Rank{static_cast<int32_t>(rank)};
    agreement.rankCount = kRanks;
    agreement.geometry = {.slotCount = 8, .slotBytes = 65536};
    agreement.isOneHost = true;
    planners_.push_back(std::make_unique<plan::Planner>(agreement));
    links_.push_back(std::make_unique<channel::LinkSet>(
        channel::LinkSet::Parts{.bootstrap = *results_[rank].bootstrap,
                                .peers = peers_,
                                .transports = transports_,
                                .geometry = agreement.geometry}));
    auto board = observe::Board::open(UniqueFd(::fcntl(board_.fd(), F_DUPFD_CLOEXEC, 0)));
    launchers_.push_back(std::make_unique<Launcher>(Launcher::Parts{
        .links = *links_[rank],
        .planner = *planners_[rank],
        .peers = peers_,
        .abort = abort_,
        .clock = steadyClock(),
        .timeout = kTimeout,
        .recorder = std::make_unique<observe::Recorder>(
            std::move(board).value(), static_cast<int32_t>(rank), "node", siblings_)}));
  }

  bootstrap::TestJob job_;
  transport::Transports transports_;
  observe::ProcessRecorders siblings_;
  observe::Board board_;
  std::atomic<bool> abort_{false};
  std::vector<bootstrap::RankResult> results_;
  std::vector<bootstrap::PeerInfo> peers_;
  std::vector<std::unique_ptr<plan::Planner>> planners_;
  std::vector<std::unique_ptr<channel::LinkSet>> links_;
  std::vector<std::unique_ptr<Launcher>> launchers_;
};

// What a rank of an exchange calls.
struct Exchange {
  explicit Exchange(size_t rank) {
    const plan::CallShape shape{.peer = Rank{static_cast<int32_t>(1 - rank)}, .count = sent.size()};
    calls[0] = {.shape = shape, .output = got.data()};
    calls[0].shape.collective = Collective::kRecv;
    calls[1] = {.shape = shape, .input = sent.data()};
    calls[1].shape.collective = Collective::kSend;
    sent.fill(static_cast<float>(rank + 1));
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  std::array<float, 100> sent{}, got{};
  std::array<Call, 2> calls{};
};

bool isDone(device::Task& task) {
  Result<Progress> progress = task.poll();
  EXPECT_TRUE(progress.ok());
  if (!progress.ok()) return true;
  if (*progress == Progress::kDone) task.complete({});
  return *progress == Progress::kDone;
}

// Until both are done, as a driver does.
void drive(device::Task& first, device::Task& second) {
  bool isFirstDone = false, isSecondDone = false;
  while (!isFirstDone || !isSecondDone) {
    isFirstDone = isFirstDone || isDone(first);
    isSecondDone = isSecondDone || isDone(second);
  }
}

// Its peer may wait for the call behind it: each would look in vain until the other gives up.
TEST(Operation, ACallOfAGroupThatWaitsHoldsUpNoOther) {
  Pair ranks;
  Exchange first(0), second(1);
  drive(ranks.prepare(0, first.calls), ranks.prepare(1, second.calls));  // makes links
  first.got.fill(0);
  device::Task& task = ranks.prepare(0, first.calls);
  device::Task& other = ranks.prepare(1, second.calls);
  task.looks = 1u << 30;  // half a minute
  const Instant began = steadyClock().now();
  EXPECT_FALSE(isDone(task));
  EXPECT_LT(steadyClock().now() - began, std::chrono::seconds(5));
  task.looks = 1;
  drive(task, other);
  EXPECT_EQ(first.got, second.sent);
  EXPECT_EQ(second.got, first.sent);
}

}  // namespace
}  // namespace tutti::launch
