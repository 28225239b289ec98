// Opens an authenticated connection to another process's listener.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/rng.h"
#include "base/status.h"
#include "bootstrap/approach.h"
#include "bootstrap/handshake.h"
#include "bootstrap/socket_address.h"

namespace tutti::net::socket {

struct DialOptions {
  bootstrap::SocketAddress address;
  const bootstrap::Key* key = nullptr;  // outlives the dialer
  bootstrap::Introduction introduction;
  std::chrono::milliseconds timeout{0};
  Clock* clock = &steadyClock();
  Rng* rng = &systemRng();
};

struct Dialed {
  UniqueFd fd;
  bootstrap::SessionKeys keys;
};

// Tries again while nobody answers or a flooded listener turns us away, up to the timeout. Never
// blocks. One thread at a time.
class Dialer {
 public:
  explicit Dialer(const DialOptions& options);

  // True once it is connected. An error is final.
  Result<bool> poll();
  // Once. REQUIRES: poll() was true.
  Dialed take() { return {.fd = std::move(fd_), .keys = keys_}; }

 private:
  enum class Stage : uint8_t { kPausing, kApproaching, kShakingHands, kDone, kFailed };

  void begin();
  void approach();
  void shakeHands();
  void fail(std::string trouble, int errnoValue = 0);
  Status failure() const;
  bool isTooLate() const { return options_.clock->now() >= deadline_; }

  const DialOptions options_;
  const Instant deadline_;
  Stage stage_ = Stage::kPausing;
  Instant retryAt_;
  int attempts_ = 0;
  std::optional<bootstrap::Approach> approach_;
  std::optional<bootstrap::ClientHandshake> handshake_;
  std::string trouble_;
  int errno_ = 0;  // of that, where the system refused something
  std::string way_;
  UniqueFd fd_;
  bootstrap::SessionKeys keys_;
};

}  // namespace tutti::net::socket
