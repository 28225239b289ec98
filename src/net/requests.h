// What networks that work by request name to their users: memory that they know, and what they were
// asked to do there.
#pragma once

#include <cstddef>

namespace tutti::net {

struct MemoryName {
  void* name = nullptr;
};

struct Request {
  void* name = nullptr;
  explicit operator bool() const { return name != nullptr; }
};

inline constexpr size_t kMaxRequests = 32;  // of one lane or group, under way at once

}  // namespace tutti::net
