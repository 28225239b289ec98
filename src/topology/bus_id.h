// PCI places as text: "0000:0f:00.0".
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::topology {

// In lower case; nullopt for what is no bus id. The domain may have up to eight digits.
inline std::optional<std::string> normalBusId(std::string_view text) {
  const auto isHex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  const size_t colon = result.find(':');
  if (colon == std::string::npos || colon == 0 || colon > 8) return std::nullopt;
  const std::string_view domain = std::string_view(result).substr(0, colon);
  const std::string_view rest = std::string_view(result).substr(colon + 1);
  if (!std::ranges::all_of(domain, isHex) || rest.size() != 7) return std::nullopt;
  const bool isPlace = isHex(rest[0]) && isHex(rest[1]) && rest[2] == ':' && isHex(rest[3]) &&
                       isHex(rest[4]) && rest[5] == '.' && isHex(rest[6]);
  if (!isPlace) return std::nullopt;
  return result;
}

}  // namespace tutti::topology
