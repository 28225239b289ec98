#include "tools/byte_size.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "base/units.h"

namespace tutti::tools {
namespace {

// How often 2 that is; none of an unknown unit.
std::optional<int> shiftOf(std::string_view unit) {
  constexpr std::array<std::string_view, 5> kUnits = {"", "k", "m", "g", "t"};
  constexpr int kShiftOfEach = 10;
  std::string small(unit);
  for (char& letter : small)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  for (const std::string_view tail : {"ib", "b", "i"}) {
    if (!small.ends_with(tail)) continue;
    small.resize(small.size() - tail.size());
    break;
  }
  const auto* found = std::ranges::find(kUnits, small);
  if (found == kUnits.end()) return std::nullopt;
  return kShiftOfEach * static_cast<int>(found - kUnits.begin());
}

}  // namespace

Result<uint64_t> parseBytes(std::string_view text) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 50;
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  const auto shift = shiftOf({rest, static_cast<size_t>(end - rest)});
  if (error == std::errc::invalid_argument || !shift || !std::isfinite(value) || value < 0)
    return invalidArgument("size '{}' is not a number with an optional K, M, G or T", text);
  const double bytes = std::ldexp(value, *shift);
  if (error != std::errc() || bytes > static_cast<double>(kMostBytes))
    return invalidArgument("size '{}' is more than 1024T", text);
  if (bytes != std::floor(bytes)) return invalidArgument("size '{}' is no whole bytes", text);
  return static_cast<uint64_t>(bytes);
}

std::string shortText(uint64_t bytes) {
  if (bytes == 0) return "0";
  if (bytes % 1_GiB == 0) return fmt::format("{}G", bytes / 1_GiB);
  if (bytes % 1_MiB == 0) return fmt::format("{}M", bytes / 1_MiB);
  return bytes % 1_KiB == 0 ? fmt::format("{}K", bytes / 1_KiB) : std::to_string(bytes);
}

}  // namespace tutti::tools
