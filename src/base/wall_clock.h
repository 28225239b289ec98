// The machine's wall clock, for times that people or other machines are to read: it jumps, so never
// for deadlines (those go by base/clock.h).
#pragma once

#include <cstdint>

namespace tutti {

// Nanoseconds since 1970.
int64_t wallClockNanoseconds();

}  // namespace tutti
