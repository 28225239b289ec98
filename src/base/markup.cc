#include "base/markup.h"

#include <fmt/core.h>

#include <algorithm>

namespace tutti {
namespace {

// How many bytes the character at the text's beginning has; 0: none that UTF-8 knows. Surrogates
// and overlong forms pass: readers of JSON show them as they like.
size_t characterBytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  const size_t bytes = first < 0x80               ? 1
                       : (first & 0xe0u) == 0xc0u ? 2
                       : (first & 0xf0u) == 0xe0u ? 3
                       : (first & 0xf8u) == 0xf0u ? 4
                                                  : 0;
  if (bytes == 0 || bytes > text.size()) return 0;
  const bool isWhole = std::ranges::all_of(text.substr(1, bytes - 1), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u;
  });
  return isWhole ? bytes : 0;
}

}  // namespace

std::string escapeMarkup(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe += c;
    }
  }
  return safe;
}

std::string quoteJson(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const size_t bytes = characterBytes(text);
    const char c = text.front();
    if (bytes == 0) {
      quoted += '?';
    } else if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(1, bytes));
  }
  return quoted + '"';
}

}  // namespace tutti
