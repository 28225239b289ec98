// Ranks that come while the queue of their root's listener is full: the system drops what they
// send, and repeats it later and later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/log_setup.h"
#include "base/patience_testing.h"
#include "bootstrap/approach.h"
#include "bootstrap/deaf_listener_testing.h"
#include "bootstrap/root.h"
#include "bootstrap/test_root.h"

namespace tutti::bootstrap {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr int kRankCount = 8;
constexpr int kPlaces = 128;          // as on systems before Linux 5.4
constexpr milliseconds kMoment{300};  // for all that is done once they are heard

// How long nobody looks at the queue: until the system has just repeated what was dropped, and the
// next time is further off than what expectThatAllCome() allows.
struct Standstill {
  int patience;
  milliseconds beginnings;  // repeated after 1, 3, 7, 15 and 31 s, or 1 to 5, 7, 11, 19 and 35 s
  milliseconds hellos;      // and last steps: after 0.2, 0.6, 1, 1.4, 3, 6.2, 7, 12.6, 15, 25.4 s
};
constexpr std::array<Standstill, 3> kStandstills = {
    {{1, milliseconds(5'300), milliseconds(3'500)},
     {4, milliseconds(7'600), milliseconds(7'600)},
     {16, milliseconds(19'600), milliseconds(16'500)}}};

const Standstill& standstillFor(int patience) {
  return *std::ranges::find(kStandstills, patience, &Standstill::patience);
}

// Eight ranks with processes of their own, each waiting in a thread.
class Ranks {
 public:
  Ranks(const SocketAddress& root, const Key& key) {
    for (int rank = 0; rank < kRankCount; ++rank) {
      threads_.emplace_back([this, call = rootCall(root, key, rank, kRankCount)] {
        const Result<Answer> answer = askRoot(call);
        EXPECT_TRUE(answer.ok()) << answer.status().message();
        ++answered_;
      });
    }
  }
  ~Ranks() { await(); }
  int answered() const { return answered_; }
  void await() {
    for (std::thread& each : threads_) each.join();
    threads_.clear();
  }

 private:
  std::atomic<int> answered_ = 0;
  std::vector<std::thread> threads_;
};

class FullQueueTest : public ::testing::Test {
 protected:
  void SetUp() override { log::configure({.level = log::Level::kWarn, .timestampLevels = 0}); }
  void TearDown() override { log::configure({}); }

  std::shared_ptr<Root> openRoot(UniqueFd listener) {
    auto opened = Root::open(std::move(listener), {.key = key,
                                                   .job = "test",
                                                   .timeout = std::chrono::seconds(60),
                                                   .helloTimeout = std::chrono::seconds(60)});
    EXPECT_TRUE(opened.ok());
    return std::move(opened).value();
  }

  // From here on the queue has room; the ranks are through after the longest time between two
  // connections of theirs.
  std::shared_ptr<Root> expectThatAllCome(UniqueFd listener, Ranks& ranks, int patience) {
    EXPECT_EQ(ranks.answered(), 0);
    const Instant opened = steadyClock().now();
    std::shared_ptr<Root> root = openRoot(std::move(listener));
    ranks.await();
    EXPECT_LE(steadyClock().now() - opened, Approach::kLongestPatience + kMoment * patience);
    return root;
  }

  Key key;
};

TEST_F(FullQueueTest, RanksComeWithinASecondAfterItHasRoom) {
  inThreeTries([&](int patience) {
    UniqueFd listener = listenWithPlacesFor(kPlaces);
    const Strangers strangers(listener.get());
    Ranks ranks(localAddress(listener.get()), key);
    ::testing::internal::CaptureStdout();
    sleepFor(standstillFor(patience).beginnings);
    const std::string toldByRanks = ::testing::internal::GetCapturedStdout();
    ::testing::internal::CaptureStdout();
    const auto root = expectThatAllCome(std::move(listener), ranks, patience);
    const std::string toldByRoot = ::testing::internal::GetCapturedStdout();
    EXPECT_THAT(toldByRanks, HasSubstr("the queue of those who connect there is full"));
    EXPECT_THAT(toldByRoot,
                HasSubstr(fmt::format("root of job test: {} connections waited at ", kPlaces + 1)));
    EXPECT_GE(root->counters().fullQueues, 1u);
  });
}

TEST_F(FullQueueTest, RanksWhoseLastStepWasDroppedComeWithinASecond) {
  inThreeTries([&](int patience) {
    UniqueFd listener = listenWithPlacesFor(kPlaces);
    OnlyBeginnings dropping(listener.get());
    Ranks ranks(localAddress(listener.get()), key);
    sleepFor(standstillFor(patience).hellos);
    dropping.end();
    expectThatAllCome(std::move(listener), ranks, patience);
  });
}

// Strangers who connect as fast as they can, as long as it lives; each of them stays a while.
class Flood {
 public:
  explicit Flood(const SocketAddress& address)
      : thread_([this, address] {
          std::array<UniqueFd, 4 * kPlaces> connections;
          for (size_t i = 0; !isOver_; ++i)
            connections[i % connections.size()] = startConnect(address).fd;
        }) {}
  ~Flood() {
    isOver_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> isOver_ = false;
  std::thread thread_;
};

TEST_F(FullQueueTest, RanksMeetInAFloodOfStrangersAndMemoryIsFlat) {
  constexpr size_t kMostBytes = 64 * 1024;  // as for slow connections
  inThreeTries([&](int patience) {
    UniqueFd listener = listenWithPlacesFor(kPlaces / 8);
    const SocketAddress address = localAddress(listener.get());
    const Flood flood(address);
    const auto root = openRoot(std::move(listener));
    while (root->counters().evicted < 4 * kPlaces) sleepFor(milliseconds(1));
    const size_t before = ::mallinfo2().uordblks;
    const Instant began = steadyClock().now();
    Ranks(address, key).await();
    EXPECT_LE(steadyClock().now() - began, 2 * Approach::kLongestPatience + kMoment * patience);
    EXPECT_LE(::mallinfo2().uordblks, before + kMostBytes);
  });
}

}  // namespace
}  // namespace tutti::bootstrap
