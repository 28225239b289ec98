// A 64-bit BLAKE2b (RFC 7693): equal on all ranks, and what differs does not collide by chance.
#pragma once

#include <cstdint>
#include <string_view>

#include "bootstrap/unique_id.h"

namespace tutti::comm {

uint64_t hashOf(std::string_view bytes);

// What tells a communicator from others in traces and to tools.
uint64_t hashOf(const bootstrap::JobId& job);

}  // namespace tutti::comm
