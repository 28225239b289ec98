// Links of two processes' providers with somebody on the wire between, who reads and changes what
// passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "bootstrap/socket.h"
#include "net/connect_testing.h"
#include "net/socket/socket_provider.h"

namespace tutti::net::socket {
namespace {

using bootstrap::IoState;
using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr uint64_t kNumber = 77 << 12;
constexpr size_t kMessageBytes = 100'000;

// Takes connections for a provider and hands them on.
class Eavesdropper {
 public:
  // The place of a contact's first port.
  static constexpr size_t kPortAt = 26;

  // Puts itself into the contact. From byte `changedAt` of what the opener sends, one bit is
  // flipped; -1: none.
  explicit Eavesdropper(Provider::Contact& contact, int64_t changedAt = -1)
      : changedAt_(changedAt) {
    const auto loopback = bootstrap::SocketAddress::parse("127.0.0.1:0").value();
    listener_ = bootstrap::listenOn(loopback).value();
    std::memcpy(&port_, contact.data() + kPortAt, sizeof port_);
    const uint16_t own = bootstrap::localAddress(listener_.get()).port();
    std::memcpy(contact.data() + kPortAt, &own, sizeof own);
    thread_ = std::thread([this] { serve(); });
  }
  ~Eavesdropper() {
    isOver_ = true;
    thread_.join();
  }
  // What the opener has sent so far.
  std::vector<std::byte> heard() {
    std::lock_guard lock(mutex_);
    return heard_;
  }

 private:
  void serve() {
    UniqueFd opener;
    while (!opener && !isOver_) {
      pollfd entry{.fd = listener_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&entry, 1, 20) > 0) opener = UniqueFd(::accept(listener_.get(), nullptr, nullptr));
    }
    if (isOver_) return;
    const auto there = bootstrap::SocketAddress::parse(fmt::format("127.0.0.1:{}", port_)).value();
    UniqueFd taker = bootstrap::startConnect(there).fd;
    while (!isOver_) {
      std::array<pollfd, 2> entries = {pollfd{opener.get(), POLLIN, 0},
                                       pollfd{taker.get(), POLLIN, 0}};
      if (::poll(entries.data(), entries.size(), 20) <= 0) continue;
      if (entries[0].revents != 0 && !pass(opener.get(), taker.get(), true)) return;
      if (entries[1].revents != 0 && !pass(taker.get(), opener.get(), false)) return;
    }
  }
  bool pass(int from, int to, bool isOpeners) {
    std::array<std::byte, 65536> buffer;
    const ssize_t count = ::recv(from, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count <= 0) return false;
    const std::span bytes(buffer.data(), static_cast<size_t>(count));
    if (isOpeners) {
      std::lock_guard lock(mutex_);
      const auto place = changedAt_ - std::ssize(heard_);
      if (changedAt_ >= 0 && place >= 0 && place < count)
        bytes[static_cast<size_t>(place)] ^= std::byte{4};
      heard_.insert(heard_.end(), bytes.begin(), bytes.end());
    }
    for (size_t sent = 0; sent < bytes.size() && !isOver_;) {
      const ssize_t some =
          ::send(to, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (some > 0) sent += static_cast<size_t>(some);
      if (some < 0) std::this_thread::yield();
    }
    return true;
  }

  const int64_t changedAt_;
  UniqueFd listener_;
  uint16_t port_ = 0;
  std::atomic<bool> isOver_{false};
  std::mutex mutex_;
  std::vector<std::byte> heard_;
  std::thread thread_;
};

// Keeps the connection that comes.
class Keeper final : public Worker {
 public:
  void arrived(std::unique_ptr<Connection> connection) override {
    std::lock_guard lock(mutex_);
    connection_ = std::move(connection);
    hasCome_.notify_all();
  }
  void work(uint64_t) override {}
  Connection* wait() {
    std::unique_lock lock(mutex_);
    hasCome_.wait_for(lock, std::chrono::seconds(5), [this] { return connection_ != nullptr; });
    return connection_.get();
  }

 private:
  std::mutex mutex_;
  std::condition_variable hasCome_;
  std::unique_ptr<Connection> connection_;
};

SocketProvider open(bool isEncrypted) {
  return SocketProvider(
      {.interfaces = "lo", .family = AF_INET, .socketThreads = 1, .isEncrypted = isEncrypted});
}

std::vector<std::byte> payloadOf(size_t bytes) {
  std::vector<std::byte> payload(bytes);
  const std::string_view text = "a payload that is easy to recognise; ";
  for (size_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::byte>(text[i % text.size()]);
  return payload;
}

// Sends one message over a wire with an eavesdropper, and says how it came.
struct Trip {
  Status status;
  std::vector<std::byte> got;
  std::vector<std::byte> heard;
};
Trip travel(bool isEncrypted, int64_t changedAt) {
  SocketProvider from = open(isEncrypted);
  SocketProvider to = open(isEncrypted);
  Trip trip;
  Provider::Contact contact = to.contact().value();
  Eavesdropper between(contact, changedAt);
  const auto keeper = std::make_shared<Keeper>();  // shared with the provider
  to.expect(kNumber, keeper);
  auto opened = connectNow(from, contact, {.number = kNumber, .self = Rank{4}, .peer = Rank{1}},
                           milliseconds(5000));
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  Connection* in = keeper->wait();
  EXPECT_NE(in, nullptr);
  if (!opened.ok() || in == nullptr) return trip;
  const std::vector<std::byte> payload = payloadOf(kMessageBytes);
  EXPECT_EQ((*opened)->send({.bytes = kMessageBytes, .signature = 5}, payload),
            Progress::kAdvanced);
  bool hasLabel = false;
  Label label;
  trip.got.resize(kMessageBytes);
  for (;;) {
    EXPECT_TRUE((*opened)->flush().ok());
    Result<Progress> progress = hasLabel ? in->receivePayload(trip.got) : in->receiveLabel(label);
    if (!progress.ok()) {
      trip.status = progress.takeStatus();
      break;
    }
    if (*progress == Progress::kDone && std::exchange(hasLabel, true)) break;
  }
  trip.heard = between.heard();
  return trip;
}

bool isIn(const std::vector<std::byte>& wire) {
  const std::vector<std::byte> part = payloadOf(16);
  return !std::ranges::search(wire, part).empty();
}

TEST(EncryptedLinks, ShowWhoListensNothing) {
  const Trip clear = travel(false, -1);
  ASSERT_TRUE(clear.status.ok()) << clear.status.message();
  EXPECT_TRUE(isIn(clear.heard)) << "the test hears what passes";
  const Trip sealed = travel(true, -1);
  ASSERT_TRUE(sealed.status.ok()) << sealed.status.message();
  EXPECT_EQ(sealed.got, payloadOf(kMessageBytes));
  EXPECT_GE(sealed.heard.size(), kMessageBytes);
  EXPECT_FALSE(isIn(sealed.heard));
}

TEST(EncryptedLinks, EndWithAWordOnTheLinkWhereAByteWasChanged) {
  const Trip trip = travel(true, 50'000);
  EXPECT_EQ(trip.status.code(), Code::kRemoteError);
  const std::string text(trip.status.message());
  EXPECT_THAT(text, HasSubstr("what came over the connection from rank 4 at 127.0.0.1:"));
  EXPECT_THAT(text, HasSubstr("was changed, repeated or left out on its way"));
}

TEST(EncryptedLinks, AreNotOpenedToWhoTakesThemInTheClear) {
  SocketProvider from = open(true);
  SocketProvider to = open(false);
  const Provider::Contact contact = to.contact().value();
  const auto refused = connectNow(
      from, contact, {.number = kNumber, .self = Rank{4}, .peer = Rank{1}}, milliseconds(2000));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("rank 1 takes links in the clear only, and rank 4 opens them encrypted "
                        "only: set TUTTI_SECURE alike on all"));
}

// One who was told that the other side takes links in the clear: its offer is not believed.
TEST(EncryptedLinks, AreNotTakenInTheClear) {
  SocketProvider from = open(false);
  SocketProvider to = open(true);
  Provider::Contact contact = to.contact().value();
  const uint32_t none = 0;
  std::memcpy(contact.data() + sizeof(uint32_t), &none, sizeof none);
  const auto keeper = std::make_shared<Keeper>();  // shared with the provider
  to.expect(kNumber, keeper);
  auto opened = connectNow(from, contact, {.number = kNumber, .self = Rank{4}, .peer = Rank{1}},
                           milliseconds(2000));
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  Label label;
  Result<Progress> progress = Progress::kIdle;
  while (progress.ok()) progress = (*opened)->receiveLabel(label);
  EXPECT_THAT(std::string(progress.status().message()), HasSubstr("rank 1 at 127.0.0.1"));
  to.forget(kNumber);
}

}  // namespace
}  // namespace tutti::net::socket
