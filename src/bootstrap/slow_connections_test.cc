// What a thousand slow connections cost those who want to meet: time, memory, descriptors.
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/descriptor_limit.h"
#include "base/futex.h"
#include "base/patience_testing.h"
#include "base/process_counts_testing.h"
#include "bootstrap/root.h"
#include "bootstrap/socket.h"
#include "bootstrap/test_job.h"
#include "bootstrap/test_root.h"

namespace tutti::bootstrap {
namespace {

using std::chrono::milliseconds;
using Span = std::chrono::duration<double, std::milli>;

constexpr int kSlow = 1000;
constexpr int kRankCount = 8;
constexpr int kRounds = 9;
constexpr size_t kWantedDescriptors = 3500;

template <typename Body>
Span timeOf(const Body& body) {
  const auto start = steadyClock().now();
  body();
  return steadyClock().now() - start;
}

Span medianOf(std::array<Span, kRounds> times) {
  std::ranges::nth_element(times, times.begin() + kRounds / 2);
  return times[kRounds / 2];
}

// A tenth more at most; or 2 ms, since a scheduler's turn is longer than a tenth of so short a
// meeting.
void expectHardlyDelayed(Span with, Span without, int patience) {
  EXPECT_LT(with.count(), without.count() * 1.1 + 2 * patience)
      << "ms, with " << kSlow << " slow connections; without " << without.count();
}

// Each has begun a hello, as the protocol would have it, and goes no further.
class SlowConnections {
 public:
  explicit SlowConnections(const SocketAddress& address) {
    SeededRng rng{4};
    ClientHandshake handshake(Key(), {}, rng);
    connections_.reserve(kSlow);
    for (size_t i = 0; i < kSlow; ++i) {
      connections_.push_back(startConnect(address).fd);
      const auto sent = writeSome(connections_.back().get(), handshake.hello().first(i % 90));
      EXPECT_NE(sent.state, IoState::kClosed);
    }
  }

  // Until no more are left than may be half open: the others have been thrown out.
  void awaitEvictions() const {
    const auto deadline = steadyClock().now() + std::chrono::seconds(60);
    while (openCount() > Acceptor::kMaxHalfOpen) {
      ASSERT_LT(steadyClock().now(), deadline);
      sleepFor(milliseconds(1));
    }
  }

 private:
  size_t openCount() const {
    std::vector<pollfd> entries;
    for (const UniqueFd& each : connections_)
      entries.push_back({.fd = each.get(), .events = POLLIN, .revents = 0});
    const int closed = ::poll(entries.data(), entries.size(), 0);
    return connections_.size() - static_cast<size_t>(closed);
  }

  std::vector<UniqueFd> connections_;
};

Span initTime(bool areSlowThere) {
  TestJob job(kRankCount);
  EXPECT_TRUE(job.madeId().ok());
  std::optional<SlowConnections> slow;
  if (areSlowThere) {
    slow.emplace(decodeAddress(job.id().address).value());
    slow->awaitEvictions();
  }
  return timeOf([&] {
    for (const RankResult& result : job.runAll(nullptr))
      EXPECT_TRUE(result.status.ok()) << result.status.message();
  });
}

class SlowConnectionsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (descriptorLimit() < kWantedDescriptors) GTEST_SKIP() << "needs 3500 descriptors";
  }
};

TEST_F(SlowConnectionsTest, HardlyDelayInit) {
  inThreeTries([](int patience) {
    std::array<Span, kRounds> with{}, without{};
    for (size_t round = 0; round < kRounds; ++round) {
      without[round] = initTime(false);
      with[round] = initTime(true);
    }
    expectHardlyDelayed(medianOf(with), medianOf(without), patience);
  });
}

class RootOfFew {
 public:
  explicit RootOfFew(UniqueFd listener) {
    auto opened = Root::open(std::move(listener), {.key = key_,
                                                   .job = "test",
                                                   .timeout = std::chrono::seconds(60),
                                                   .helloTimeout = std::chrono::seconds(60)});
    EXPECT_TRUE(opened.ok());
    root_ = std::move(opened).value();
  }
  const Root& root() const { return *root_; }
  void meet() {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRankCount; ++rank)
      ranks.emplace_back([this, rank] {
        const Result<Answer> answer = askRoot(rootCall(root_->address(), key_, rank, kRankCount));
        EXPECT_TRUE(answer.ok()) << answer.status().message();
      });
    for (std::thread& rank : ranks) rank.join();
  }

 private:
  Key key_;
  std::shared_ptr<Root> root_;
};

UniqueFd listenHere() {
  auto listener = listenOn(SocketAddress::parse("127.0.0.1:0").value());
  EXPECT_TRUE(listener.ok());
  return std::move(listener).value();
}

// From the root's first look at its queue, where the thousand stand before the ranks.
Span queueTime(bool areSlowThere) {
  UniqueFd listener = listenHere();
  std::optional<SlowConnections> slow;
  if (areSlowThere) slow.emplace(localAddress(listener.get()));
  return timeOf([&] { RootOfFew(std::move(listener)).meet(); });
}

// The least that it takes on this machine to take so many from a queue and to throw them out.
Span bareTime() {
  const UniqueFd listener = listenHere();
  const SlowConnections slow(localAddress(listener.get()));
  return timeOf([&] {
    for (int i = 0; i < kSlow; ++i) {
      const UniqueFd taken(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      EXPECT_TRUE(taken);
    }
  });
}

TEST_F(SlowConnectionsTest, AFullQueueOfThemIsEmptiedAtOnce) {
  inThreeTries([](int patience) {
    std::array<Span, kRounds> with{}, without{}, bare{};
    for (size_t round = 0; round < kRounds; ++round) {
      bare[round] = bareTime();
      without[round] = queueTime(false);
      with[round] = queueTime(true);
    }
    expectHardlyDelayed(medianOf(with) - 3 * medianOf(bare), medianOf(without), patience);
  });
}

TEST_F(SlowConnectionsTest, TakeLittleMemory) {
  constexpr size_t kMostBytes = 64 * 1024;  // whatever comes, of all half-open ones together
  static_assert(sizeof(Acceptor) < kMostBytes);
  RootOfFew few(listenHere());
  const size_t descriptors = openDescriptors();
  const SlowConnections slow(few.root().address());
  slow.awaitEvictions();
  EXPECT_LE(openDescriptors(), descriptors + kSlow + Acceptor::kMaxHalfOpen);
  const size_t heapOfOneThousand = ::mallinfo2().uordblks;
  const SlowConnections more(few.root().address());
  more.awaitEvictions();
  EXPECT_LE(::mallinfo2().uordblks, heapOfOneThousand + kMostBytes);
  few.meet();
}

}  // namespace
}  // namespace tutti::bootstrap
