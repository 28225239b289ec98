#include "launch/late_peers.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>

#include "launch/child_testing.h"

namespace tutti::launch {
namespace {

using observe::Board;
using std::chrono::milliseconds;

constexpr Nanoseconds kTimeout = std::chrono::seconds(2);
constexpr Nanoseconds kStep = milliseconds(10);

// Rank 1, which is late, is the child.
class LatePeersTest : public testing::Test {
 protected:
  LatePeersTest() {
    observe::Page& page = board_.page(1);
    page.processId = child_.identity().processId;
    page.processStart = child_.identity().start;
    page.pidNamespace = child_.identity().pidNamespace;
    clock_.advance(std::chrono::hours(1));
  }

  Board open() { return Board::open(UniqueFd(::fcntl(board_.fd(), F_DUPFD_CLOEXEC, 0))).value(); }
  // Up to `most`, of the clock's time.
  Nanoseconds waitsFor(const LatePeers::Peer& peer, Nanoseconds most) {
    LatePeers late(recorder_, clock_, kTimeout);
    const Instant begin = clock_.now();
    while (clock_.now() - begin < most && late.mayWait(peer)) clock_.advance(kStep);
    return clock_.now() - begin;
  }

  Child child_;  // first: it is to have a copy of nothing
  ManualClock clock_;
  observe::ProcessRecorders siblings_;
  Board board_ = Board::create(2, "job", kTimeout.count()).value();
  observe::Recorder recorder_{open(), 0, "node0", siblings_};
  observe::Recorder peer_{open(), 1, "node1", siblings_};
};

TEST_F(LatePeersTest, AreWaitedForWhileTheyRunForTAtMost) {
  EXPECT_EQ(waitsFor({.rank = 1}, std::chrono::seconds(5)), kTimeout);
}

TEST_F(LatePeersTest, ThatAreStoppedAreWaitedForForAMoment) {
  child_.stop();
  EXPECT_EQ(waitsFor({.rank = 1}, std::chrono::seconds(5)), Nanoseconds(milliseconds(300)));
}

TEST_F(LatePeersTest, ThatAreDeadAreNotWaitedFor) {
  child_.end();
  EXPECT_LE(waitsFor({.rank = 1}, std::chrono::seconds(5)), 2 * kStep);
}

TEST_F(LatePeersTest, OfThisProcessAreWaitedForUntilTheyAreThrough) {
  child_.stop();
  EXPECT_GE(waitsFor({.rank = 1, .isHere = true}, 3 * kTimeout), 3 * kTimeout);
}

}  // namespace
}  // namespace tutti::launch
