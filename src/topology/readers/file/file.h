// Whole files, within a cap, and never more than that is read.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace tutti::topology::file {

// Of a longer file the first maxBytes + 1 bytes: a parser with that limit says where it was passed.
Result<std::string> read(const std::string& path, size_t maxBytes);
bool isThere(const std::string& path);
// Written beside and renamed, so that a reader never sees half of it.
Status write(const std::string& path, std::string_view text);

}  // namespace tutti::topology::file
