// For tests: counts what the program allocates by operator new.
#pragma once

#include <cstdint>

namespace tutti::device::host {

uint64_t allocationCount();

}  // namespace tutti::device::host
