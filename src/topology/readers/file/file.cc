#include "topology/readers/file/file.h"

#include <unistd.h>

#include "base/whole_file.h"

namespace tutti::topology::file {

Result<std::string> read(const std::string& path, size_t maxBytes) {
  return readWholeFile(path, maxBytes);
}

bool isThere(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

Status write(const std::string& path, std::string_view text) {
  return writeWholeFile(path, text, kForAll);
}

}  // namespace tutti::topology::file
