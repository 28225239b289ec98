// Numbers of bytes as options: add_option("-b", bytes)->transform(wholeBytes).
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "tools/byte_size.h"

namespace tutti::tools {

// The plain number, or a CLI::ValidationError.
inline std::string wholeBytes(const std::string& text) {
  const Result<uint64_t> bytes = parseBytes(text);
  if (!bytes.ok()) throw CLI::ValidationError(std::string(bytes.status().message()));
  return std::to_string(bytes.value());
}

// The same where none makes no sense.
inline std::string someBytes(const std::string& text) {
  std::string bytes = wholeBytes(text);
  if (bytes == "0") throw CLI::ValidationError("size '" + text + "' is less than 1");
  return bytes;
}

}  // namespace tutti::tools
