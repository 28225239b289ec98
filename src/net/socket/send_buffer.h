// How much a socket holds that its receiver has not acknowledged. Left to itself the kernel lets it
// grow to megabytes, of which each has left the caches before it is read.
#pragma once

#include <chrono>
#include <cstddef>

namespace tutti::net::socket {

// SO_SNDBUF for a connection of this shortest round trip and speed; 0: the kernel's own choice,
// since the way is long enough to hold what it would take. `mbit` 0: unknown. Pure.
size_t sendBufferBytes(std::chrono::microseconds roundTrip, size_t mbit);

// Sets it, once the connection stands. A socket that refuses keeps the kernel's choice.
void boundSendBuffer(int fd, size_t mbit);

}  // namespace tutti::net::socket
