// CRC-32C (Castagnoli; RFC 3720, appendix B.4): finds every change of up to three bits, every odd
// number of them, every burst of up to 32 bits, and all but one in 2^32 of the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

// Of these bytes behind those whose sum is `before`. By the processor's own instruction where it
// has one (x86 with SSE 4.2), else by tables.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

// The same by tables, for processors without, and to compare.
uint32_t crc32cByTables(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace tutti
