// Sleeps until one of many descriptors is ready, a deadline passes, or another thread wakes it. No
// CPU while it sleeps.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace tutti::bootstrap {

enum class Interest : uint8_t { kNone, kRead, kReadWrite };

class Poller {
 public:
  struct Event {
    uint64_t key = 0;
    bool isReadable = false;  // also after an error or hang-up: the next read tells
    bool isWritable = false;
  };

  static Result<std::unique_ptr<Poller>> open();

  // Any thread. `key` comes back in events; below kWakeKey. An fd leaves the set when it is closed.
  Status add(int fd, uint64_t key, Interest interest);
  void change(int fd, uint64_t key, Interest interest);
  void remove(int fd);

  // One thread. Empty after the deadline, after wake(), or when a signal came. An event may be
  // stale: its fd was closed, or its key given anew, after the wait.
  std::span<const Event> wait(Clock& clock, std::optional<Instant> deadline);

  // Makes the current or next wait() return. Any thread.
  void wake();

  static constexpr uint64_t kWakeKey = ~uint64_t{0};

 private:
  Poller(UniqueFd epoll, UniqueFd event);
  void drainWakes();

  static constexpr size_t kMaxEvents = 64;
  UniqueFd epoll_;
  UniqueFd event_;
  std::array<Event, kMaxEvents> events_;
};

// The earlier of two deadlines, where none is later than any.
std::optional<Instant> earlier(std::optional<Instant> a, std::optional<Instant> b);

// Milliseconds from now to the deadline, rounded up, 0 when it has passed; -1 for none. For poll
// and epoll.
int millisecondsUntil(Clock& clock, std::optional<Instant> deadline);

// Sleeps where there is nothing to wait for: between two attempts.
void pauseFor(std::chrono::milliseconds span);

}  // namespace tutti::bootstrap
