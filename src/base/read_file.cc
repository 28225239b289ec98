#include "base/read_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"

namespace tutti {

std::string readFile(const std::string& path, size_t most) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  std::string text;
  if (const int error = readUpTo(fd.get(), most, text); error != 0) errno = error;
  return text;
}

int readUpTo(int fd, size_t most, std::string& text) {
  constexpr size_t kLeastBytes = 4096, kMostBytes = 64 * 1024;  // of a read: short files cost
                                                                // little
  while (text.size() < most) {
    const size_t known = text.size();
    text.resize(std::min(known + std::clamp(known, kLeastBytes, kMostBytes), most));
    const ssize_t got = ::read(fd, text.data() + known, text.size() - known);
    const int error = got < 0 ? errno : 0;
    text.resize(known + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0 || (error != 0 && error != EINTR)) return error;
  }
  return 0;
}

}  // namespace tutti
