#include "comm/folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace tutti::comm {

void warnUnlessWritable(std::string_view setting, std::string_view what,
                        const std::string& folder) {
  struct stat info {};
  int error = ::stat(folder.c_str(), &info) == 0 ? 0 : errno;
  if (error == 0 && !S_ISDIR(info.st_mode)) error = ENOTDIR;
  if (error == 0 && ::access(folder.c_str(), W_OK | X_OK) != 0) error = errno;
  if (error == 0) return;
  std::array<char, 128> text{};
  log::warn("{}: no {} can be written to {}: {}", setting, what, folder,
            ::strerror_r(error, text.data(), text.size()));
}

}  // namespace tutti::comm
