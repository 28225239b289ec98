// How many CPUs this process may really use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::device::host {

// CPUs of the affinity mask, capped by the CPU quotas of the process's control groups (v2 and v1),
// rounded up; at least 1. Reads files below `root`, which is "/" but for tests.
int32_t usableCpus(const std::string& root = "/");

// CPUs of a quota in the form of cpu.max, "max 100000" or "150000 100000", rounded up. 0: no quota,
// or not readable.
int32_t quotaCpus(std::string_view text);

}  // namespace tutti::device::host
