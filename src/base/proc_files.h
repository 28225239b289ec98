// Folders and numbers as /proc and /sys have them. Any thread.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// What lies in a folder, without the names that begin with a dot; numbers first, in their order.
// Empty where it cannot be read. Where memory runs out libstdc++'s iterators of folders end the
// process; this throws.
std::vector<std::string> namesIn(const std::string& folder);

// The whole text as a number, such as a process's name in /proc; nothing else.
template <typename Number>
std::optional<Number> numberOf(std::string_view text, int base = 10) {
  Number value{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace tutti
