// A parting as bytes between ranks: the guilty rank, the code, then the words. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "transport/transport.h"

namespace tutti::transport {

// Of at most so many bytes; words too many are cut off.
std::string encodeParting(const Parting& parting, size_t mostBytes);
// Of any bytes; what is no text is shown with question marks.
Parting decodeParting(std::span<const std::byte> bytes);

}  // namespace tutti::transport
