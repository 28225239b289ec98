// What the checks put into buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "wire/types.h"

namespace tutti::bench {

using Bytes = std::vector<std::byte>;
inline constexpr std::byte kPoison{0xa5};

// A value of the type near small integers, so that sums, products and quotients round in
// interesting places; now and then any bits at all: NaN, infinities, denormals.
uint64_t makeBits(DataType type, std::mt19937_64& random);
// Of such; the same of the same seed.
Bytes makeData(DataType type, size_t count, uint64_t seed);

}  // namespace tutti::bench
