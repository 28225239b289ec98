#include "transport/parting.h"

#include <cstring>

#include "base/char_field.h"

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
  parting.text = foreignText(bytes.subspan(sizeof parting.guilty));
  return parting;
}

}  // namespace tutti::transport
