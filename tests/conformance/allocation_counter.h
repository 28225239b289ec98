// Counts what the calling thread allocates with operator new, the library's allocations included.
#pragma once

#include <cstddef>

namespace tutti::conformance {

// False in sanitizer builds, whose own operator new must stay.
bool canCount();

void startCounting();
// Returns the allocations since startCounting().
size_t stopCounting();

}  // namespace tutti::conformance
