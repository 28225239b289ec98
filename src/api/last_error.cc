#include "api/last_error.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti::api {
namespace {

// NCCL's size: programs copy it into buffers of a kibibyte.
thread_local std::array<char, 1024> lastError{};

size_t append(size_t at, std::string_view text) {
  const size_t length = std::min(text.size(), lastError.size() - 1 - at);
  std::memcpy(lastError.data() + at, text.data(), length);
  lastError[at + length] = '\0';
  return at + length;
}

}  // namespace

void setThreadError(std::string_view function, std::string_view text) {
  append(append(append(0, function), ": "), text);
}

void setThreadErrorText(std::string_view text) { append(0, text); }

const char* threadError() { return lastError.data(); }

}  // namespace tutti::api
