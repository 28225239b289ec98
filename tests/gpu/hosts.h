// GPU ranks spread over played hosts: with TUTTI_TEST_HOSTS=n a test's ranks are processes that run
// the same test again, and as many of them as there are to a host share its NCCL_HOSTID.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>

#include "base/clock.h"
#include "base/futex.h"
#include "tests/conformance/network_ranks.h"

namespace tutti::gputest {

// Where ranks meet, as std::barrier; processes may share it. All in one word, so that one may leave
// for good while others wait: rounds so far, how many are expected, how many have come.
class Meeting {
 public:
  explicit Meeting(int count) : state_(static_cast<uint64_t>(count) << kExpected) {}
  void arriveAndWait() {
    const uint64_t round = arrive(1) >> kRound;
    while (state_.load() >> kRound == round) sleepFor(std::chrono::microseconds(20));
  }
  void arriveAndDrop() { arrive(-(uint64_t{1} << kExpected)); }

 private:
  static constexpr int kExpected = 16;
  static constexpr int kRound = 32;
  static constexpr uint64_t kMask = 0xffff;

  // What was there before.
  uint64_t arrive(uint64_t change) {
    uint64_t before = state_.load();
    uint64_t after = 0;
    do {
      after = before + change;
      const uint64_t expected = after >> kExpected & kMask;
      if ((after & kMask) == expected)
        after = ((after >> kRound) + 1) << kRound | expected << kExpected;
    } while (!state_.compare_exchange_weak(before, after));
    return before;
  }

  std::atomic<uint64_t> state_;
};

// In a file that processes map.
class SharedMeeting {
 public:
  // Makes it.
  SharedMeeting(const std::string& path, int count) : path_(path), isMaker_(true) {
    map(O_RDWR | O_CREAT | O_TRUNC);
    if (meeting_ != nullptr) new (meeting_) Meeting(count);
  }
  // Finds it.
  explicit SharedMeeting(const std::string& path) : path_(path) { map(O_RDWR); }
  ~SharedMeeting() {
    if (meeting_ != nullptr) ::munmap(meeting_, sizeof(Meeting));
    if (isMaker_) ::unlink(path_.c_str());
  }
  SharedMeeting(const SharedMeeting&) = delete;
  SharedMeeting& operator=(const SharedMeeting&) = delete;
  Meeting* get() { return meeting_; }

 private:
  void map(int flags) {
    const int file = ::open(path_.c_str(), flags | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (!isMaker_ || ::ftruncate(file, sizeof(Meeting)) == 0) {
      void* memory = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      if (memory != MAP_FAILED) meeting_ = static_cast<Meeting*>(memory);
    }
    ::close(file);
  }

  std::string path_;
  bool isMaker_ = false;
  Meeting* meeting_ = nullptr;
};

inline int hostCount() {
  const char* text = std::getenv("TUTTI_TEST_HOSTS");
  return text == nullptr ? 1 : std::atoi(text);
}

// In a process that spreadRanks() started.
inline bool isOfHost() { return std::getenv("TEST_RUN") != nullptr; }

// The same on all ranks, for another communicator than that which runRanks() makes. Once a test.
inline ncclUniqueId anotherId() {
  if (isOfHost()) return conformance::idFromHex(conformance::textOf("TEST_OTHER_ID"));
  ncclUniqueId id{};
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
  return id;
}

// This process's part, in the run of its test that it was started for.
inline void runHere(const std::function<void(const conformance::ProcessRank&, Meeting&)>& part) {
  if (std::to_string(conformance::countRuns()) != conformance::textOf("TEST_RUN")) return;
  SharedMeeting meeting(conformance::textOf("TEST_MEETING"));
  ASSERT_NE(meeting.get(), nullptr);
  part(conformance::thisProcess(), *meeting.get());
  meeting.get()->arriveAndDrop();
}

// Runs the running test in a process a rank.
inline void spreadRanks(int rankCount) {
  const int hosts = hostCount();
  ASSERT_LE(hosts, rankCount) << "TUTTI_TEST_HOSTS, TUTTI_TEST_RANKS";
  std::string layout;
  for (int rank = 0; rank < rankCount; ++rank)
    layout += static_cast<char>('0' + rank * hosts / rankCount);
  const std::string path = conformance::temporary("meeting");
  SharedMeeting meeting(path, rankCount);
  ASSERT_NE(meeting.get(), nullptr) << path;
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  const conformance::Outcome outcome = conformance::run(
      std::string(test.test_suite_name()) + "." + test.name(), layout,
      {"TEST_RUN=" + std::to_string(conformance::countRuns()), "TEST_MEETING=" + path,
       "TEST_OTHER_ID=" + conformance::toHex(anotherId())});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_GE(outcome.count("links to other hosts over"), 2u) << outcome.log;
}

}  // namespace tutti::gputest
