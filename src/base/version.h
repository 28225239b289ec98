// What this library calls itself, and the interface it speaks.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti {

inline constexpr std::string_view kVersion = "0.1.0";  // as in CMakeLists.txt; a test compares them
inline constexpr std::string_view kInterfaceVersion = "2.28.9";  // NCCL's, see include/nccl.h
inline constexpr int32_t kInterfaceVersionCode = 22809;          // what ncclGetVersion returns

// The first line of a log, in the form that scripts look for.
inline constexpr std::string_view kBanner = "NCCL version 2.28.9+tutti0.1.0";

}  // namespace tutti
