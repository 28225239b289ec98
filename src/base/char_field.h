// Text in a field of fixed length, as records have it that processes share or send each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// As much of the text as leaves room for a zero behind it.
template <size_t kBytes>
void setText(std::array<char, kBytes>& field, std::string_view text) {
  field[text.copy(field.data(), kBytes - 1)] = '\0';
}

// Up to the first zero, which whoever wrote the record may have left out.
template <size_t kBytes>
std::string textOf(const std::array<char, kBytes>& field) {
  return {field.data(), ::strnlen(field.data(), kBytes)};
}

// Words that another process wrote, fit to be shown: control characters become '?', but for line
// ends.
inline std::string foreignText(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    const char letter = static_cast<char>(byte);
    text += static_cast<unsigned char>(letter) >= ' ' || letter == '\n' ? letter : '?';
  }
  return text;
}

}  // namespace tutti
