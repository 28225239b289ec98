// Connections that know a process's secret, and say of themselves what cannot be.
#include "net/socket/contact.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>

#include "bootstrap/poller.h"
#include "net/socket/dial.h"
#include "net/socket/socket_provider.h"

namespace tutti::net::socket {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kNumber = uint64_t{77} << 2 * kStreamBits;

class Counter final : public Worker {
 public:
  void arrived(std::unique_ptr<Connection> connection) override {
    connection_ = std::move(connection);
    ++count;
  }
  void work(uint64_t) override {}
  std::atomic<int> count{0};

 private:
  std::unique_ptr<Connection> connection_;  // of the service's thread, until that has gone
};

class Contacts : public testing::Test {
 protected:
  UniqueFd dialAs(uint64_t number, Cipher cipher = Cipher::kNone) {
    const Listeners listeners = decodeContact(provider_->contact().value()).value();
    bootstrap::Key key;
    bootstrap::keyedHash(bootstrap::Key(), "tutti data links", {listeners.secret},
                         std::as_writable_bytes(key.bytes()));
    Dialer dialer({.address = listeners.addresses.front(),
                   .key = &key,
                   .introduction = {.purpose = bootstrap::Purpose::kData,
                                    .epoch = number,
                                    .seal = static_cast<uint32_t>(cipher)},
                   .timeout = milliseconds(20'000)});
    while (!dialer.poll().value()) bootstrap::pauseFor(milliseconds(1));
    return dialer.take().fd;
  }
  static bool isClosedByTheOther(const UniqueFd& fd) {
    pollfd entry{.fd = fd.get(), .events = POLLIN, .revents = 0};
    char byte = 0;
    return ::poll(&entry, 1, 20'000) == 1 && ::recv(fd.get(), &byte, 1, 0) <= 0;
  }

  const std::shared_ptr<Counter> worker_ = std::make_shared<Counter>();  // shared with the provider
  std::unique_ptr<SocketProvider> provider_ = std::make_unique<SocketProvider>(
      // One thread, the caller's: connections that others move end before the provider.
      NetworkOptions{.interfaces = "lo",
                     .family = AF_INET,
                     .socketThreads = 1,
                     .timeout = milliseconds(20'000)});
};

TEST_F(Contacts, AreOfLinksThatHaveSuchAConnection) {
  provider_->expect(kNumber, worker_);
  EXPECT_TRUE(isClosedByTheOther(dialAs(streamNumber(kNumber, 3, 5)))) << "a sixth of three";
  EXPECT_TRUE(isClosedByTheOther(dialAs(streamNumber(kNumber, 1, 63))));
  EXPECT_TRUE(isClosedByTheOther(dialAs(streamNumber(kNumber + kLinkMask, 2, 0))))
      << "no such link";
  EXPECT_TRUE(isClosedByTheOther(dialAs(kNumber, Cipher::kChaCha20Poly1305))) << "encrypted";
  EXPECT_TRUE(isClosedByTheOther(dialAs(kNumber, Cipher{9}))) << "by nothing known";
  const UniqueFd first = dialAs(streamNumber(kNumber, 2, 1));
  EXPECT_TRUE(isClosedByTheOther(dialAs(streamNumber(kNumber, 3, 0)))) << "a link of two";
  EXPECT_TRUE(isClosedByTheOther(dialAs(streamNumber(kNumber, 2, 1)))) << "there is one";
  EXPECT_EQ(worker_->count, 0);
  const UniqueFd second = dialAs(streamNumber(kNumber, 2, 0));
  for (int i = 0; i < 20'000 && worker_->count == 0; ++i) bootstrap::pauseFor(milliseconds(1));
  EXPECT_EQ(worker_->count, 1);
}

}  // namespace
}  // namespace tutti::net::socket
