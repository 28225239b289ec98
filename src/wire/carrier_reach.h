// What a network reads and writes by itself, so that a rank's messages need no copy.
#pragma once

#include <cstdint>

namespace tutti::wire {

// Beside the link's own memory, which stays until the link has gone.
enum class CarrierReach : uint8_t {
  kLinkOnly,
  kSegments,  // memory that ncclMemAlloc gave, too
  kAnything,  // any memory of the program's
};

}  // namespace tutti::wire
