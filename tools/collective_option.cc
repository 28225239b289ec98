#include "tools/collective_option.h"

#include <fmt/core.h>

#include <CLI/Error.hpp>
#include <cctype>
#include <string_view>

namespace tutti::tools {
namespace {

// "all_reduce" and "AllReduce" are one.
std::string plainName(std::string_view text) {
  std::string plain;
  for (const char letter : text) {
    if (letter != '_') plain.push_back(static_cast<char>(std::tolower(letter)));
  }
  return plain;
}

}  // namespace

Collective parseCollective(const std::string& text) {
  const std::string wanted = plainName(text);
  if (wanted == "sendrecv") return Collective::kSend;
  std::string known;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (plainName(name(collective)) == wanted) return collective;
    known += fmt::format("{}{}", i == 0 ? "" : ", ", name(collective));
  }
  throw CLI::ValidationError("collective", fmt::format("{} is none of {}", text, known));
}

}  // namespace tutti::tools
