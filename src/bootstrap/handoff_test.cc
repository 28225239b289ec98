#include "bootstrap/handoff.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/process_counts_testing.h"
#include "bootstrap/poller.h"

namespace tutti::bootstrap {
namespace {

constexpr std::chrono::milliseconds kPatience{10'000};

UniqueFd memoryWith(const std::string& text) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return fd;
}

std::string contentOf(int fd) {
  char text[64] = "";
  const ssize_t count = ::pread(fd, text, sizeof text, 0);
  return count < 0 ? "" : std::string(text, static_cast<size_t>(count));
}

UniqueFd connectTo(const std::string& name) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  return fd;
}

TEST(Handoff, HandsMemoryOver) {
  Handoff handoff;
  const UniqueFd memory = memoryWith("shared");
  const auto token = handoff.offer(memory.get(), 1);
  ASSERT_TRUE(token.ok());
  const auto taken = Handoff::take(handoff.name(), token.value(), kPatience);
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  EXPECT_EQ(contentOf(taken.value().get()), "shared");
  EXPECT_NE(::fcntl(taken.value().get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Handoff, HandsMemoryToAnotherProcess) {
  Handoff handoff;
  const UniqueFd memory = memoryWith("shared");
  const auto token = handoff.offer(memory.get(), 1);
  ASSERT_TRUE(token.ok());
  const std::string name = handoff.name();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto taken = Handoff::take(name, token.value(), kPatience);
    ::_exit(taken.ok() && contentOf(taken.value().get()) == "shared" ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// A child of another user asks without the client's own checks.
TEST(Handoff, RefusesAnotherUserBeforeItReads) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Handoff handoff;
  const auto token = handoff.offer(memoryWith("private").get(), 1);
  ASSERT_TRUE(token.ok());
  const std::string name = handoff.name();
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(65534) != 0) ::_exit(2);
    const UniqueFd socket = connectTo(name);
    std::array<std::byte, 24> request{};
    const uint64_t magic = 0x9348616e646f6666u;
    std::memcpy(request.data(), &magic, sizeof magic);
    std::copy(token.value().begin(), token.value().end(), request.begin() + sizeof magic);
    ::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
    char byte = 0;
    const bool isRefused = ::recv(socket.get(), &byte, 1, 0) <= 0;
    const bool isRefusedHere = !Handoff::take(name, token.value(), kPatience).ok();
    ::_exit(isRefused && isRefusedHere ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(Handoff::take(name, token.value(), kPatience).ok());
}

TEST(Handoff, OffersOutliveTheOwnersDescriptor) {
  Handoff handoff;
  UniqueFd memory = memoryWith("kept");
  const auto token = handoff.offer(memory.get(), 1);
  memory.reset();
  const auto taken = Handoff::take(handoff.name(), token.value(), kPatience);
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(contentOf(taken.value().get()), "kept");
}

TEST(Handoff, EndsAnOfferAfterAsManyTakes) {
  Handoff handoff;
  const auto token = handoff.offer(memoryWith("twice").get(), 2);
  EXPECT_TRUE(Handoff::take(handoff.name(), token.value(), kPatience).ok());
  EXPECT_TRUE(Handoff::take(handoff.name(), token.value(), kPatience).ok());
  const auto third = Handoff::take(handoff.name(), token.value(), kPatience);
  EXPECT_EQ(third.status().code(), Code::kRemoteError);
}

TEST(Handoff, EndsAnOfferAfterItsLifetime) {
  ManualClock clock;
  Handoff handoff(systemRng(), clock);
  const UniqueFd memory = memoryWith("shared");
  const std::string name = handoff.name();
  const size_t descriptors = openDescriptors();
  const auto token = handoff.offer(memory.get(), 3, std::chrono::seconds(20));
  ASSERT_TRUE(token.ok());
  EXPECT_TRUE(Handoff::take(name, token.value(), kPatience).ok());
  clock.advance(std::chrono::seconds(21));
  EXPECT_FALSE(Handoff::take(name, token.value(), kPatience).ok());
  EXPECT_EQ(openDescriptors(), descriptors);
}

TEST(Handoff, GivesNothingForAWithdrawnOrUnknownToken) {
  Handoff handoff;
  const auto token = handoff.offer(memoryWith("secret").get(), 1);
  HandoffToken guess = token.value();
  guess[15] ^= std::byte{1};
  EXPECT_FALSE(Handoff::take(handoff.name(), guess, kPatience).ok());
  handoff.withdraw(token.value());
  handoff.withdraw(token.value());
  EXPECT_FALSE(Handoff::take(handoff.name(), token.value(), kPatience).ok());
}

TEST(Handoff, NamesAreRandomShortAndStay) {
  Handoff first;
  Handoff second;
  EXPECT_EQ(first.name(), first.name());
  EXPECT_NE(first.name(), second.name());
  EXPECT_LE(first.name().size(), 63u);
}

TEST(Handoff, RefusesOffersThatNobodyMayTakeAndDescriptorsThatAreNone) {
  Handoff handoff;
  EXPECT_EQ(handoff.offer(0, 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(handoff.offer(-1, 1).status().code(), Code::kSystemError);
}

TEST(Handoff, AnOwnerThatIsGoneIsAnError) {
  std::string name;
  HandoffToken token{};
  {
    Handoff handoff;
    name = handoff.name();
    token = handoff.offer(memoryWith("gone").get(), 1).value();
  }
  EXPECT_EQ(Handoff::take(name, token, kPatience).status().code(), Code::kRemoteError);
  EXPECT_EQ(Handoff::take("", token, kPatience).status().code(), Code::kRemoteError);
}

// As that of a process that is stopped: the system takes connections for it, and nothing answers.
struct SilentOwner {
  SilentOwner() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket.get(), 1), 0);
  }
  std::string name = "tutti-silent-" + std::to_string(::getpid());
  UniqueFd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

TEST(Handoff, TakingInStepsWaitsForNobody) {
  const SilentOwner owner;
  const Instant begin = steadyClock().now();
  Handoff::Taking taking(owner.name, HandoffToken{}, std::chrono::milliseconds(1000));
  std::vector<UniqueFd> fill;  // its queue
  for (int i = 0; i < 2; ++i) fill.push_back(connectTo(owner.name));
  Instant last = steadyClock().now();
  Nanoseconds longest{0};
  for (;;) {
    Result<UniqueFd> fd = taking.poll();
    const Instant now = steadyClock().now();
    longest = std::max(longest, now - last);
    last = now;
    if (!fd.ok()) break;
    ASSERT_FALSE(*fd);
    ASSERT_LT(now - begin, std::chrono::seconds(10));
  }
  EXPECT_GE(last - begin, std::chrono::milliseconds(1000));
  EXPECT_LT(longest, std::chrono::milliseconds(800));
}

TEST(Handoff, AnAbortEndsTaking) {
  const SilentOwner owner;
  std::atomic<bool> abort{false};
  std::thread aborter([&abort] {
    pauseFor(std::chrono::milliseconds(100));
    abort = true;
  });
  const Instant begin = steadyClock().now();
  EXPECT_FALSE(Handoff::take(owner.name, HandoffToken{}, std::chrono::seconds(20), &abort).ok());
  EXPECT_LT(steadyClock().now() - begin, std::chrono::seconds(1));
  aborter.join();
}

TEST(Handoff, GarbageAndSilenceDoNotKeepOthersOut) {
  Handoff handoff;
  const auto token = handoff.offer(memoryWith("through").get(), 1);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(connectTo(handoff.name()));
  const UniqueFd garbage = connectTo(handoff.name());
  const std::string noise(24, 'x');
  EXPECT_EQ(::send(garbage.get(), noise.data(), noise.size(), MSG_NOSIGNAL), 24);
  char byte = 0;
  EXPECT_EQ(::recv(garbage.get(), &byte, 1, 0), 0);
  EXPECT_TRUE(Handoff::take(handoff.name(), token.value(), kPatience).ok());
}

TEST(Handoff, ServesManyAtOnce) {
  Handoff handoff;
  const auto token = handoff.offer(memoryWith("many").get(), 100);
  const std::string name = handoff.name();
  std::vector<std::thread> takers;
  std::atomic<int> good{0};
  for (int i = 0; i < 100; ++i) {
    takers.emplace_back(
        [&] { good += Handoff::take(name, token.value(), kPatience).ok() ? 1 : 0; });
  }
  for (std::thread& taker : takers) taker.join();
  EXPECT_EQ(good, 100);
}

TEST(Handoff, LeavesNoDescriptors) {
  const size_t before = openDescriptors();
  {
    Handoff handoff;
    const auto token = handoff.offer(memoryWith("x").get(), 5);
    EXPECT_TRUE(Handoff::take(handoff.name(), token.value(), kPatience).ok());
  }
  EXPECT_EQ(openDescriptors(), before);
}

TEST(Handoff, ThatNobodyUsesHasNoThreadOrSocket) {
  const size_t before = openDescriptors();
  const Handoff handoff;
  EXPECT_EQ(openDescriptors(), before);
}

}  // namespace
}  // namespace tutti::bootstrap
