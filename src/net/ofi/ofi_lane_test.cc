// Lanes over libfabric's tcp, on the loopback interface, and over its shared memory: what is moved,
// what a request that fails says, and that our names for providers are those of fi_info.
#include "net/ofi/ofi_lane.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "net/ofi/ofi_fabric.h"

// Of AddressSanitizer, where it is there: libfabric unloads modules that have left memory behind,
// which nobody can free any more.
extern "C" {
void __lsan_disable() __attribute__((weak));
void __lsan_enable() __attribute__((weak));
}

namespace tutti::net::ofi {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class ForgivenLeaks {
 public:
  ForgivenLeaks() {
    if (__lsan_disable != nullptr) __lsan_disable();
  }
  ~ForgivenLeaks() {
    if (__lsan_enable != nullptr) __lsan_enable();
  }
  ForgivenLeaks(const ForgivenLeaks&) = delete;
  ForgivenLeaks& operator=(const ForgivenLeaks&) = delete;
};

Result<std::unique_ptr<Fabric>> openProvider(const std::string& provider) {
  return open({.provider = provider, .interfaces = "lo", .family = AF_INET, .rng = systemRng()});
}

class OfiLanes : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!loadLibrary().ok()) GTEST_SKIP() << "there is no libfabric.so.1";
    auto fabric = openProvider(GetParam());
    ASSERT_TRUE(fabric.ok()) << fabric.status().message();
    fabric_ = std::move(fabric).value();
    meet();
  }
  void TearDown() override {
    if (sender_) sender_->release(outMemory_);
    if (receiver_) receiver_->release(inMemory_);
  }

  // Both ends in turn, until they have met.
  void meet() {
    auto listener = fabric_->listen({.device = 0});
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    auto dialer = fabric_->dial({.device = 0}, listener.value()->handle());
    ASSERT_TRUE(dialer.ok()) << dialer.status().message();
    until([&] {
      if (!sender_) sender_ = std::move(dialer.value()->connect()).value();
      if (!receiver_) receiver_ = std::move(listener.value()->accept()).value();
      return sender_ != nullptr && receiver_ != nullptr;
    });
    for (size_t i = 0; i < out_.size(); ++i) out_[i] = static_cast<std::byte>(i * 7);
    outMemory_ = sender_->enroll(out_).value();
    inMemory_ = receiver_->enroll(in_).value();
  }
  template <typename Condition>
  static void until(const Condition& isSo) {
    const Instant deadline = steadyClock().now() + std::chrono::seconds(60);
    while (!isSo()) {
      ASSERT_LT(steadyClock().now(), deadline);
      std::this_thread::yield();
    }
  }
  Lane::Request receive(size_t begin, size_t bytes) {
    return receiver_->post(std::span(in_).subspan(begin, bytes), inMemory_).value();
  }
  Lane::Request send(size_t begin, size_t bytes) {
    return sender_->post(std::span(out_).subspan(begin, bytes), outMemory_).value();
  }
  // Of both ends: the sender's too must be asked, for bytes to move.
  Result<size_t> await(Lane& lane, Lane::Request request) {
    Result<std::optional<size_t>> done = std::optional<size_t>();
    until([&] {
      done = lane.test(request);
      return !done.ok() || done.value().has_value();
    });
    if (!done.ok()) return done.takeStatus();
    return **done;
  }

  std::unique_ptr<Fabric> fabric_;
  std::vector<std::byte> out_ = std::vector<std::byte>(400'000);
  std::vector<std::byte> in_ = std::vector<std::byte>(400'000);
  std::unique_ptr<Lane> sender_, receiver_;
  Lane::Memory outMemory_, inMemory_;
  const ForgivenLeaks leaks_;
};
INSTANTIATE_TEST_SUITE_P(Providers, OfiLanes, testing::Values("tcp", "shm"),
                         [](const auto& provider) { return provider.param; });

TEST_P(OfiLanes, MoveMessagesInOrder) {
  const Lane::Request first = receive(0, 1000), second = receive(1000, 300'000);
  const Lane::Request a = send(0, 999), b = send(1000, 300'000);
  ASSERT_TRUE(first && second && a && b);
  EXPECT_EQ(await(*receiver_, first).value(), 999u);
  EXPECT_EQ(await(*sender_, a).value(), 999u);
  std::optional<size_t> sent, received;  // in turns: a long one needs both sides
  until([&] {
    if (!sent) sent = sender_->test(b).value();
    if (!received) received = receiver_->test(second).value();
    return sent && received;
  });
  EXPECT_EQ(received, 300'000u);
  EXPECT_TRUE(std::equal(out_.begin(), out_.begin() + 999, in_.begin()));
  EXPECT_TRUE(std::equal(out_.begin() + 1000, out_.begin() + 301'000, in_.begin() + 1000));
}

TEST_P(OfiLanes, SayWhichRequestFailedAndKeepWhatWasThroughBefore) {
  const Lane::Request before = receive(0, 1000), tooShort = receive(1000, 8);
  ASSERT_TRUE(send(0, 1000));
  ASSERT_TRUE(send(1000, 500));
  const Result<size_t> failed = await(*receiver_, tooShort);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(std::string(failed.status().message()),
              StartsWith("libfabric: a receive: Truncation error"));
  EXPECT_EQ(await(*receiver_, before).value(), 1000u);
  EXPECT_TRUE(std::equal(out_.begin(), out_.begin() + 1000, in_.begin()));
  for (size_t i = 1008; i < 2000; ++i) ASSERT_EQ(in_[i], std::byte{}) << i;  // nothing beyond
}

TEST_P(OfiLanes, TakeAsManyRequestsAsTheySayAndNoMore) {
  std::vector<Lane::Request> requests;
  until([&] {
    const Lane::Request request = receive(8 * requests.size(), 8);
    if (request) requests.push_back(request);
    return !request;
  });
  EXPECT_GE(requests.size(), size_t{kMaxRequests});
  ASSERT_TRUE(send(0, 8));
  EXPECT_EQ(await(*receiver_, requests.front()).value(), 8u);
  EXPECT_TRUE(receive(8, 8));
}

// What `fi_info` says of providers of our kind: domains, by the name without what libfabric puts on
// top
// ("tcp" for "tcp;ofi_rxm"), as the setting takes it.
std::map<std::string, std::set<std::string>> listed() {
  std::map<std::string, std::set<std::string>> domains;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      ::popen("fi_info -t FI_EP_RDM -c FI_TAGGED 2>/dev/null", "r"), &::pclose);
  std::string provider;
  std::array<char, 256> line{};
  while (pipe && std::fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    std::string text(line.data());
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    if (text.starts_with("provider: ")) provider = text.substr(10, text.find(';') - 10);
    const size_t at = text.find("domain: ");
    if (at != std::string::npos) domains[provider].insert(text.substr(at + 8));
  }
  return domains;
}

TEST(OfiProviders, AreThoseOfItsOwnProgram) {
  if (!loadLibrary().ok()) GTEST_SKIP() << "there is no libfabric.so.1";
  const auto all = listed();
  if (all.empty()) GTEST_SKIP() << "there is no fi_info (package libfabric-bin)";
  const ForgivenLeaks leaks;
  std::set<std::string> opened;
  for (const auto& [name, domains] : all) {
    const auto fabric = openProvider(name);
    if (!fabric.ok()) {  // one that cannot do what we ask for, or has no address on the interface
      EXPECT_THAT(std::string(fabric.status().message()), HasSubstr("provider")) << name;
      continue;
    }
    opened.insert(name);
    const std::string& text = fabric.value()->caps().description;
    const size_t at = text.find(" on ");
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_EQ(text.substr(0, at).substr(0, text.find(';')), "libfabric's " + name);
    std::stringstream rest(text.substr(at + 4));
    size_t devices = 0;
    for (std::string domain; std::getline(rest, domain, ','); ++devices) {
      if (domain.starts_with(' ')) domain.erase(0, 1);
      EXPECT_TRUE(domains.contains(domain)) << domain << " of " << name;
    }
    EXPECT_EQ(devices, fabric.value()->caps().deviceCount);
  }
  EXPECT_THAT(opened, testing::IsSupersetOf({"tcp", "shm"}));
}

TEST(OfiProviders, ThatAreNotThereAreNamed) {
  if (!loadLibrary().ok()) GTEST_SKIP() << "there is no libfabric.so.1";
  const ForgivenLeaks leaks;
  EXPECT_THAT(std::string(openProvider("nosuch").status().message()),
              HasSubstr("no provider nosuch for messages between hosts"));
}

// By themselves only networks that lead to other hosts are taken.
TEST(OfiProviders, OfOneHostAreTakenWhenNamedOnly) {
  if (!loadLibrary().ok()) GTEST_SKIP() << "there is no libfabric.so.1";
  const ForgivenLeaks leaks;
  const auto own = openProvider("");
  if (own.ok()) {
    EXPECT_THAT(own.value()->caps().description, testing::Not(HasSubstr("shm")));
  }
  const auto named = openProvider("shm");
  ASSERT_TRUE(named.ok()) << named.status().message();
  EXPECT_THAT(named.value()->caps().description, HasSubstr("libfabric's shm on"));
}

}  // namespace
}  // namespace tutti::net::ofi
