#include "kernels/crew.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "base/affinity.h"
#include "base/futex.h"

namespace tutti::kernels {
namespace {

constexpr size_t kCount = 1'000'003;

std::unique_ptr<Crew> crewOf(int32_t helpers) {
  return Crew::start(helpers, steadyClock()).value();
}

// How often each thing was in a part.
std::vector<int> shareOnce(Crew& crew, size_t count, size_t bytesEach) {
  std::vector<int> seen(count);
  const Status status =
      crew.share(count, bytesEach, [&](int32_t seat, size_t first, size_t length) -> Status {
        EXPECT_GE(seat, 0);
        EXPECT_LE(seat, crew.helpers());
        EXPECT_EQ(first * bytesEach % kCacheLineBytes, 0u);
        for (size_t i = first; i < first + length; ++i) ++seen[i];
        return {};
      });
  EXPECT_TRUE(status.ok());
  return seen;
}

TEST(Crew, DoesEachThingOnce) {
  for (const int32_t helpers : {1, 3}) {
    const auto crew = crewOf(helpers);
    for (const size_t bytesEach : {size_t{1}, size_t{2}, size_t{4}, size_t{8}}) {
      for (const size_t count : {size_t{1}, size_t{4097}, size_t{32'768}, kCount}) {
        const std::vector<int> seen = shareOnce(*crew, count, bytesEach);
        ASSERT_EQ(std::ranges::count(seen, 1), static_cast<ptrdiff_t>(count))
            << helpers << " helpers, " << count << " of " << bytesEach;
      }
    }
  }
}

TEST(Crew, WhatIsShortIsTheCallersAlone) {
  const auto crew = crewOf(2);
  int parts = 0;
  const Status status =
      crew->share(2 * Crew::kSliceBytes - 1, 1, [&](int32_t seat, size_t, size_t) {
        EXPECT_EQ(seat, 0);
        ++parts;
        return Status();
      });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(parts, 1);
}

// Many short jobs, with pauses in which helpers fall asleep: none is lost, and what one job wrote
// the next may read without more.
TEST(Crew, ManyJobsOneAfterTheOther) {
  const auto crew = crewOf(3);
  std::vector<uint32_t> sums(64 * 1024);
  for (uint32_t job = 1; job <= 3000; ++job) {
    ASSERT_TRUE(crew->share(sums.size(), sizeof(uint32_t),
                            [&](int32_t, size_t first, size_t count) {
                              for (size_t i = first; i < first + count; ++i) sums[i] += job;
                              return Status();
                            })
                    .ok());
    if (job % 500 == 0) sleepFor(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(std::ranges::count(sums, 3000u * 3001 / 2), static_cast<ptrdiff_t>(sums.size()));
}

TEST(Crew, HelpersTakePart) {
  const auto crew = crewOf(1);
  std::atomic<uint32_t> seats{0};
  for (int job = 0; job < 10'000 && seats.load() != 3; ++job) {
    // The first two slices wait for each other, for a while.
    std::atomic<int> here{0};
    const Status status = crew->share(kCount, 1, [&](int32_t seat, size_t, size_t) {
      seats |= 1u << seat;
      ++here;
      for (int look = 0; look < 100 && here < 2; ++look) std::this_thread::yield();
      return Status();
    });
    ASSERT_TRUE(status.ok());
  }
  EXPECT_EQ(seats.load(), 3u);
}

TEST(Crew, TellsTheFirstFailure) {
  const auto crew = crewOf(2);
  const auto failing = [&](bool throws) {
    return crew->share(kCount, 1, [&](int32_t, size_t first, size_t) {
      if (first == 0) return Status();
      if (throws) throw std::bad_alloc();
      return Status(Code::kRemoteError, "gone");
    });
  };
  EXPECT_EQ(failing(false).code(), Code::kRemoteError);
  EXPECT_EQ(failing(true).code(), Status::outOfMemory().code());
  EXPECT_TRUE(crew->share(kCount, 1, [](int32_t, size_t, size_t) { return Status(); }).ok());
}

constexpr Nanoseconds kMillisecond = std::chrono::milliseconds(1);

TEST(LateHelpers, AreLeftAloneForManyTimesWhatWasWaited) {
  LateHelpers late;
  const Instant start = Instant{} + std::chrono::seconds(100);
  late.waited(LateHelpers::kLate - Nanoseconds(1), start);
  EXPECT_FALSE(late.areResting(start));
  late.waited(kMillisecond, start);
  EXPECT_TRUE(late.areResting(start + 15 * kMillisecond));
  EXPECT_FALSE(late.areResting(start + 16 * kMillisecond));
}

TEST(LateHelpers, RestEverLongerWhereTheyAreLateAgainAtOnce) {
  LateHelpers late;
  Instant now = Instant{} + std::chrono::seconds(100);
  Nanoseconds lost{0};
  Nanoseconds rested{0};
  for (int time = 0; time < 20; ++time) {
    late.waited(3 * kMillisecond, now);
    lost += 3 * kMillisecond;
    const Instant began = now;
    while (late.areResting(now)) now = now + kMillisecond;
    rested += now - began;
    EXPECT_LE(now - began, LateHelpers::kLongestRest);
  }
  EXPECT_GT(rested, 500 * lost);
  // On time for longer than they rested, they are taken for as good as any.
  now = now + LateHelpers::kLongestRest;
  late.waited(3 * kMillisecond, now);
  EXPECT_FALSE(late.areResting(now + 48 * kMillisecond));
}

TEST(Crews, AreGivenBackAndTakenAgain) {
  if (affinityCpus().size() < 2) GTEST_SKIP() << "one CPU";
  Crews crews(steadyClock());
  Crews::Lease first = crews.take(1);
  Crews::Lease second = crews.take(1);
  ASSERT_NE(first, nullptr);
  EXPECT_NE(first, second);
  const Crew* mine = first.get();
  first.reset();
  EXPECT_EQ(crews.take(1).get(), mine);
  EXPECT_NE(crews.take(2), nullptr);  // of another number
}

// A thread on one CPU has none to spare, and gets no crew of others either.
TEST(Crews, StayOnTheCpusOfWhoTakesThem) {
  const std::vector<int32_t> cpus = affinityCpus();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU";
  Crews crews(steadyClock());
  ASSERT_NE(crews.take(1), nullptr);
  const NarrowedAffinity narrowed(std::vector<int32_t>{cpus[0]}, false);
  EXPECT_EQ(crews.take(1), nullptr);
}

TEST(Crews, AreNoMoreAtATimeThanCpus) {
  Crews crews(steadyClock());
  const size_t cpus = affinityCpus().size();
  std::vector<Crews::Lease> leases;
  while (leases.size() <= cpus && (leases.push_back(crews.take(1)), leases.back() != nullptr)) {
  }
  EXPECT_EQ(leases.size(), cpus < 2 ? 1 : cpus + 1);
  EXPECT_EQ(leases.back(), nullptr);
}

TEST(Crews, HaveNoMoreThreadsThanCpus) {
  Crews crews(steadyClock());
  const auto cpus = static_cast<int32_t>(affinityCpus().size());
  const Crews::Lease lease = crews.take(cpus + 7);
  if (cpus == 1) {
    EXPECT_EQ(lease, nullptr);
  } else {
    EXPECT_EQ(lease->helpers(), cpus - 1);
  }
}

}  // namespace
}  // namespace tutti::kernels
