#include "transport/parting.h"

#include <cstring>

namespace tutti::transport {

std::string encodeParting(const Parting& parting, size_t mostBytes) {
  std::string bytes(sizeof parting.guilty, '\0');
  std::memcpy(bytes.data(), &parting.guilty, sizeof parting.guilty);
  return bytes + parting.text.substr(0, mostBytes - bytes.size());
}

Parting decodeParting(std::span<const std::byte> bytes) {
  Parting parting;
  if (bytes.size() < sizeof parting.guilty) return parting;
  std::memcpy(&parting.guilty, bytes.data(), sizeof parting.guilty);
  for (const std::byte byte : bytes.subspan(sizeof parting.guilty)) {
    const char letter = static_cast<char>(byte);
    parting.text += static_cast<unsigned char>(letter) >= ' ' || letter == '\n' ? letter : '?';
  }
  return parting;
}

}  // namespace tutti::transport
