#include "base/read_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "base/fd.h"

namespace tutti {

std::string readFile(const std::string& path, size_t most) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  std::string text;
  std::array<char, 4096> buffer;
  while (text.size() < most) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  return text;
}

}  // namespace tutti
