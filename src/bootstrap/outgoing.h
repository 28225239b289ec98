// A connection from one rank to another rank's process: opened, authenticated and retried in the
// background, messages queued meanwhile. Never blocks. Guarded by the endpoint's mutex; driven by
// its service thread.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/rng.h"
#include "bootstrap/approach.h"
#include "bootstrap/frame.h"
#include "bootstrap/handshake.h"
#include "bootstrap/poller.h"
#include "bootstrap/socket_address.h"

namespace tutti::bootstrap {

class Outgoing {
 public:
  struct Options {
    SocketAddress address;
    Introduction introduction;
    const Key* key = nullptr;  // outlives the connection, as the next three
    Clock* clock = nullptr;
    Rng* rng = nullptr;
    Poller* poller = nullptr;
    uint64_t pollerKey = 0;
    std::chrono::milliseconds timeout{0};  // to be connected
  };

  // Starts connecting.
  explicit Outgoing(const Options& options);

  // False when more than kMaxWaitingBytes would wait. REQUIRES: fault() is empty.
  bool send(FrameType type, uint64_t tag, std::span<const std::byte> body);

  void onEvent(const Poller::Event& event);
  void onTime(Instant now);
  std::optional<Instant> nextTime() const;

  // Everything has been handed to the system.
  bool isFlushed() const { return waiting_.empty() && written_ == out_.size(); }
  // Why nothing more can be sent; "" while all is well. "closed its connection", "could not be
  // reached at ...".
  const std::string& fault() const { return fault_; }
  // Why it has never been open; "" when it was. "has not been reached at ... yet: ...".
  std::string whyUnreached() const;

 private:
  enum class Stage : uint8_t { kPausing, kConnecting, kReply, kOpen, kBroken };
  struct Message {
    FrameType type = FrameType::kMessage;
    uint64_t tag = 0;
    std::vector<std::byte> body;
  };

  void begin();
  void approach();
  void onReply();
  void open();
  void append(FrameType type, uint64_t tag, std::span<const std::byte> body);
  void flush();
  void retry(std::string why);
  void breakOff(std::string why);

  Options options_;
  Stage stage_ = Stage::kPausing;
  Instant deadline_;
  Instant retryAt_{};
  int attempts_ = 0;
  std::string lastTrouble_;
  std::string fault_;
  UniqueFd fd_;
  std::optional<Approach> approach_;
  std::optional<ClientHandshake> handshake_;
  std::optional<FrameEncoder> encoder_;
  std::deque<Message> waiting_;  // before the connection is open
  size_t waitingBytes_ = 0;
  std::vector<std::byte> out_;  // encoded, from written_ on still to be written
  size_t written_ = 0;
};

// How long to wait before the next attempt, where `attempts` have failed: 2 ms, doubling to 100 ms.
std::chrono::milliseconds backoff(int attempts);

// A live server turns a good client away only when it is flooded; so often in a row means that it
// does not like it.
inline constexpr int kMaxAttempts = 10;

}  // namespace tutti::bootstrap
