// Files that options name: add_option("--lib", path)->check(readableFile),
// add_option("--json", path)->transform(outputFile); and how a command ends that cannot go on.
#pragma once

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

#include "base/status.h"

namespace tutti::tools {

// A file or pipe that can be read, or the command ends with kExitEnvironment: no line of a script
// is wrong because a file is not there.
inline std::string readableFile(const std::string& path) {
  struct stat info {};
  int error = ::stat(path.c_str(), &info) == 0 && ::access(path.c_str(), R_OK) == 0 ? 0 : errno;
  if (error == 0 && S_ISDIR(info.st_mode)) error = EISDIR;
  if (error != 0) throw std::runtime_error(fmt::format("open {}: {}", path, std::strerror(error)));
  return {};
}

// "-" for standard output under another name, which must not be replaced by a file, nor get
// anything else meanwhile.
inline std::string outputFile(const std::string& path) {
  const bool isStandard = path == "/dev/stdout" || path == "/dev/fd/1" || path == "/proc/self/fd/1";
  return isStandard ? "-" : path;
}

// A check of what cannot go to standard output, where something else goes.
inline std::string fileOfItsOwn(const std::string& path) {
  return outputFile(path) == "-" ? "wanted a file: standard output has the table" : "";
}

// Ends the command: with kExitEnvironment for what the system refused, else with kExitUsage and the
// option that is to blame, if the message does not name it.
[[noreturn]] inline void refuse(const Status& status, const std::string& option = {}) {
  const std::string text(status.message());
  if (status.code() == Code::kSystemError) throw std::runtime_error(text);
  if (option.empty()) throw CLI::ValidationError(text);
  throw CLI::ValidationError(option, text);
}

}  // namespace tutti::tools
