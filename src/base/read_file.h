// A small file as text, such as those of /proc and /sys.
#pragma once

#include <cstddef>
#include <string>

#include "base/units.h"

namespace tutti {

// The file, or its first `most` bytes. Empty with errno set when it cannot be read.
std::string readFile(const std::string& path, size_t most = 4_MiB);

// Appends what comes until the end, or until the text has `most` bytes. 0, or errno's value where
// reading ended before.
int readUpTo(int fd, size_t most, std::string& text);

}  // namespace tutti
