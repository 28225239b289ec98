// The small parts of base/: status, rng, clock, fd.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "base/clock.h"
#include "base/fd.h"
#include "base/ids.h"
#include "base/markup.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/units.h"
#include "base/version.h"

namespace tutti {
namespace {

using std::chrono_literals::operator""ms;

static_assert(sizeof(Status) == sizeof(void*));
static_assert(!std::is_copy_constructible_v<Status>);
static_assert(!std::is_copy_constructible_v<UniqueFd>);
static_assert(512_KiB == 524288 && 1_MiB == 1048576 && 1_GiB == 1073741824);
static_assert(divideUp(9, 4) == 3 && divideUp(8, 4) == 2 && roundUp(9, 4) == 12);

TEST(Status, SuccessHasNoMessage) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_TRUE(Status(Code::kOk, "ignored").ok());
}

TEST(Status, CarriesCodeAndMessageThroughMoveAndClone) {
  Status first = invalidArgument("count {} is negative", -1);
  const Status copy = first.clone();
  const Status second = std::move(first);
  for (const Status* status : {&copy, &second}) {
    EXPECT_FALSE(status->ok());
    EXPECT_EQ(status->code(), Code::kInvalidArgument);
    EXPECT_EQ(status->message(), "count -1 is negative");
  }
  EXPECT_TRUE(Status().clone().ok());
}

TEST(Status, EachMakerHasItsCode) {
  EXPECT_EQ(invalidUsage("x").code(), Code::kInvalidUsage);
  EXPECT_EQ(remoteError("x").code(), Code::kRemoteError);
  EXPECT_EQ(internalError("x").code(), Code::kInternalError);
  EXPECT_EQ(systemError("a", "b", EPERM).code(), Code::kSystemError);
}

TEST(Status, MessagesMayHoldBracesFromOutside) {
  EXPECT_EQ(remoteError("{}", "{} %n {0}").message(), "{} %n {0}");
}

Result<int> half(int value) {
  if (value % 2 != 0) return invalidArgument("{} is odd", value);
  return value / 2;
}

Status quarter(int value, int& out) {
  TUTTI_TRY_ASSIGN(const int once, half(value));
  TUTTI_TRY_ASSIGN(const int twice, half(once));
  TUTTI_TRY(Status());
  out = twice;
  return {};
}

TEST(Result, HoldsAValueOrTheReason) {
  EXPECT_EQ(half(8).value(), 4);
  EXPECT_EQ(half(7).status().message(), "7 is odd");
}

TEST(Result, TryPassesTheFirstErrorOnAndWritesNothing) {
  int out = -1;
  EXPECT_TRUE(quarter(12, out).ok());
  EXPECT_EQ(out, 3);
  EXPECT_EQ(quarter(6, out).message(), "3 is odd");
  EXPECT_EQ(out, 3);
}

TEST(Result, TakesWhatCanOnlyBeMoved) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 5);
}

TEST(SeededRng, RepeatsItsSeedAndDiffersFromOthers) {
  std::array<std::byte, 37> a{};
  std::array<std::byte, 37> b{};
  std::array<std::byte, 37> c{};
  SeededRng(1).fill(a);
  SeededRng(1).fill(b);
  SeededRng(2).fill(c);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

TEST(SeededRng, GivesTheNumbersOfThePublishedAlgorithm) {
  SeededRng rng(1234567);  // test vector of the SplitMix64 reference implementation
  EXPECT_EQ(rng.next(), 6457827717110365317u);
  EXPECT_EQ(rng.next(), 3203168211198807973u);
  EXPECT_EQ(rng.next(), 9817491932198370423u);
}

TEST(SeededRng, StaysBelowItsBound) {
  SeededRng rng(3);
  std::array<int, 6> seen{};
  for (int i = 0; i < 600; ++i) ++seen.at(rng.below(6));
  EXPECT_GT(*std::min_element(seen.begin(), seen.end()), 0);
}

TEST(SystemRng, FillsAllBytesAnewEachTime) {
  std::array<std::byte, 64> a{};
  std::array<std::byte, 64> b{};
  systemRng().fill(a);
  systemRng().fill(b);
  EXPECT_NE(a, b);
  EXPECT_LT(std::count(a.begin(), a.end(), std::byte{0}), 16);
}

TEST(SteadyClock, NeverGoesBack) {
  Instant last = steadyClock().now();
  for (int i = 0; i < 1000; ++i) {
    const Instant now = steadyClock().now();
    EXPECT_GE(now, last);
    last = now;
  }
}

TEST(ManualClock, MovesOnlyWhenTold) {
  ManualClock clock;
  const Instant start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(5ms);
  EXPECT_EQ(clock.now() - start, Nanoseconds(5ms));
  EXPECT_EQ(start + Nanoseconds(5ms), clock.now());
}

TEST(WallClock, KnowsThisCentury) {
  EXPECT_GT(wallClockSeconds(), 1'700'000'000);
  EXPECT_LT(wallClockSeconds(), 4'102'444'800);
}

bool isOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFd, ClosesWhatItOwnsOnce) {
  int number = -1;
  {
    UniqueFd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(first);
    number = first.get();
    const UniqueFd second(std::move(first));
    EXPECT_FALSE(first);
    EXPECT_EQ(second.get(), number);
    EXPECT_TRUE(isOpen(number));
  }
  EXPECT_FALSE(isOpen(number));
}

TEST(UniqueFd, AssignmentClosesTheOldOneAndSurvivesItself) {
  UniqueFd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int old = first.get();
  UniqueFd second(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int kept = second.get();
  first = std::move(second);
  EXPECT_FALSE(isOpen(old));
  EXPECT_EQ(first.get(), kept);
  UniqueFd& self = first;
  first = std::move(self);
  EXPECT_TRUE(isOpen(kept));
}

TEST(UniqueFd, ReleaseLeavesItOpen) {
  UniqueFd owner(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int number = owner.release();
  EXPECT_FALSE(owner);
  EXPECT_TRUE(isOpen(number));
  ::close(number);
}

TEST(Version, PartsAgree) {
  EXPECT_EQ(kBanner, fmt::format("NCCL version {}+tutti{}", kInterfaceVersion, kVersion));
  int major = 0;
  int minor = 0;
  int patch = 0;
  ASSERT_EQ(std::sscanf(kInterfaceVersion.data(), "%d.%d.%d", &major, &minor, &patch), 3);
  EXPECT_EQ(kInterfaceVersionCode, major * 10000 + minor * 100 + patch);
}

TEST(Markup, QuotesWhateverTextAsJson) {
  EXPECT_EQ(quoteJson("a \"b\" \\ \n\t\x01"), R"("a \"b\" \\ \n\u0009\u0001")");
  EXPECT_EQ(quoteJson("gr\xc3\xbc\xc3\x9f"), "\"gr\xc3\xbc\xc3\x9f\"");
  EXPECT_EQ(quoteJson("\xff\xc3"), "\"??\"");
  EXPECT_EQ(quoteJson("\xe2\x82x"), "\"??x\"");
}

}  // namespace
}  // namespace tutti
