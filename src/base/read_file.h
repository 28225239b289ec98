// A small file as text, such as those of /proc and /sys.
#pragma once

#include <string>

#include "base/units.h"

namespace tutti {

// The file, or its first part: it is read until it has `most` bytes or a little more. Empty with
// errno set when it cannot be read.
std::string readFile(const std::string& path, size_t most = 4_MiB);

}  // namespace tutti
