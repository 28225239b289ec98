#include "transport/parting.h"

#include <cstring>

#include "base/char_field.h"

namespace tutti::transport {
namespace {

constexpr size_t kHeadBytes = sizeof(int32_t) + 1;

}  // namespace

std::string encodeParting(const Parting& parting, size_t mostBytes) {
  std::string bytes(kHeadBytes, '\0');
  std::memcpy(bytes.data(), &parting.guilty, sizeof parting.guilty);
  bytes.back() = static_cast<char>(parting.code);
  return bytes + parting.text.substr(0, mostBytes - bytes.size());
}

Parting decodeParting(std::span<const std::byte> bytes) {
  Parting parting;
  if (bytes.size() < kHeadBytes) return parting;
  std::memcpy(&parting.guilty, bytes.data(), sizeof parting.guilty);
  if (bytes[kHeadBytes - 1] == static_cast<std::byte>(Code::kInvalidUsage))
    parting.code = Code::kInvalidUsage;
  parting.text = foreignText(bytes.subspan(kHeadBytes));
  return parting;
}

}  // namespace tutti::transport
