// Handoff: gives open file descriptors (shared memory, exported device memory) to processes of the
// same user on this host.
//
// The owner registers a descriptor and gets a token; it tells the peer its name()
// (PeerInfo::handoffName) and the token over the bootstrap; the peer fetches the descriptor with
// take(). Who does not know the token gets nothing, and a process of another user is refused before
// a byte of it is read. The Unix socket is abstract: nothing to clean up, nothing on disk.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/rng.h"
#include "base/status.h"

namespace tutti::bootstrap {

using HandoffToken = std::array<std::byte, 16>;

// One a process. Thread-safe. The service thread ("tutti-handoff") starts with the first name() or
// offer(), sleeps while nobody asks, and ends with the object, after which no offer can be taken
// any more.
class Handoff {
 public:
  explicit Handoff(Rng& rng = systemRng(), Clock& clock = steadyClock());
  ~Handoff();
  Handoff(const Handoff&) = delete;
  Handoff& operator=(const Handoff&) = delete;

  // Registers the descriptor under a fresh random token. A duplicate of it is kept until
  // withdraw(), until it was taken maxTakes times (at least 1), or for the lifetime, if there is
  // one. kSystemError when the service cannot start or no descriptor is left.
  Result<HandoffToken> offer(int fd, int maxTakes,
                             std::optional<std::chrono::milliseconds> lifetime = {});

  // Forgets the offer; unknown or used-up tokens are fine.
  void withdraw(const HandoffToken& token);

  // Where descriptors come from that no offer names: asked with the token, each answers with a
  // descriptor or an empty one. Called by the service thread; outlives it. Before name().
  using Source = std::function<UniqueFd(const HandoffToken& token)>;
  void addSource(Source source);

  // The abstract socket's name without its leading zero byte: random, at most 63 characters. ""
  // when the service cannot start (logged once).
  std::string name();

  // Fetches a descriptor (close-on-exec) from the process that owns `name`. kRemoteError when the
  // owner is gone, belongs to another user, does not know the token, or does not answer in time:
  // one that is stopped does not. One thread at a time; nothing blocks.
  class Taking {
   public:
    Taking(std::string name, const HandoffToken& token, std::chrono::milliseconds timeout);
    // Empty: not there yet. Any other answer is the last one.
    Result<UniqueFd> poll();

   private:
    friend class Handoff;
    Result<bool> reach();

    std::string name_;
    HandoffToken token_;
    Instant deadline_;
    UniqueFd socket_;
    bool hasAsked_ = false;
  };

  // Waits for it, or until somebody sets `abort`, where that is given.
  static Result<UniqueFd> take(const std::string& name, const HandoffToken& token,
                               std::chrono::milliseconds timeout,
                               const std::atomic<bool>* abort = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::bootstrap
