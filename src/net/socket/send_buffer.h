// How much a socket holds that its receiver has not acknowledged. Left to itself the kernel lets it
// grow to megabytes, of which each has left the caches before it is read.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tutti::net::socket {

// SO_SNDBUF for a connection of this shortest round trip and speed; 0: the kernel's own choice,
// since the way is long enough to hold what it would take. `mbit` 0: unknown. Pure.
size_t sendBufferBytes(std::chrono::microseconds roundTrip, size_t mbit);

// One socket's, and when to look at its way again: the first round trips are those of a machine
// that is busy with opening connections, and who then took a short way for a long one took 1.7 to
// 2.8 times as long for round trips of 16 MiB (docs/results/notes.md, 2026-11-23). One thread.
class SendBuffer {
 public:
  SendBuffer() = default;  // the kernel's own choice, always
  explicit SendBuffer(size_t mbit) : mbit_(mbit), untilLook_(kFirstLook), nextLook_(kFirstLook) {}

  // Whether so many more bytes make a look due: at twice as many each time.
  bool isDue(size_t sentBytes);
  // What to set after a look; 0: it stays as it is.
  size_t adopt(std::chrono::microseconds roundTrip);

 private:
  static constexpr uint64_t kFirstLook = 256 * 1024;
  static constexpr uint64_t kNever = ~uint64_t{0};
  size_t mbit_ = 0;
  size_t bytes_ = 0;  // that were set last; 0: none
  uint64_t untilLook_ = kNever;
  uint64_t nextLook_ = kNever;
};

// Looks at the socket, once the connection stands. One that refuses keeps the kernel's choice.
void bound(SendBuffer& buffer, int fd);

}  // namespace tutti::net::socket
