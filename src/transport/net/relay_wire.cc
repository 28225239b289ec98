#include "transport/net/relay_wire.h"

#include <algorithm>

#include "transport/parting.h"

namespace tutti::transport::net {

void write(PartingWords& words, const Parting& parting) {
  if (words.isThere.load(std::memory_order_relaxed) != 0) return;
  const std::string text = encodeParting(parting, words.text.size());
  std::memcpy(words.text.data(), text.data(), text.size());
  words.bytes = static_cast<uint32_t>(text.size());
  words.isThere.store(1, std::memory_order_release);
}

bool read(PartingWords& words, Parting& parting) {
  if (words.isThere.load(std::memory_order_acquire) == 0) return false;
  const size_t bytes = std::min<size_t>(words.bytes, words.text.size());
  parting = decodeParting(std::span(words.text).first(bytes));
  return true;
}

}  // namespace tutti::transport::net
