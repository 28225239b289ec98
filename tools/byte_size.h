// Numbers of bytes on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tutti::tools {

// "65536", "64K", "64KB" and "64KiB" (all the same, in any case), "1.5M", up to "1024T".
// kInvalidArgument for anything else.
Result<uint64_t> parseBytes(std::string_view text);

// The shortest that parseBytes() reads without a fraction: "64K", "1000".
std::string shortText(uint64_t bytes);

}  // namespace tutti::tools
