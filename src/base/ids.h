// Strong integer ids: a rank cannot be passed where a count is meant.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

enum class Rank : int32_t {};

constexpr int32_t index(Rank rank) { return static_cast<int32_t>(rank); }

}  // namespace tutti
