#include "topology/readers/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"
#include "base/whole_file.h"

namespace tutti::topology::file {
namespace {

Result<std::string> readUpTo(int fd, const std::string& path, size_t maxBytes) {
  std::string text;
  constexpr size_t kStepBytes = 64 * 1024;
  for (;;) {
    const size_t known = text.size();
    text.resize(std::min(known + kStepBytes, maxBytes + 1));
    const ssize_t bytes = ::read(fd, text.data() + known, text.size() - known);
    if (bytes < 0 && errno == EINTR) {
      text.resize(known);
      continue;
    }
    if (bytes < 0) return systemError("read", path, errno);
    text.resize(known + static_cast<size_t>(bytes));
    if (bytes == 0 || text.size() > maxBytes) return text;
  }
}

}  // namespace

Result<std::string> read(const std::string& path, size_t maxBytes) {
  // Without O_NONBLOCK a pipe that nobody writes to would hold us for ever.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return systemError("open", path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return systemError("stat", path, errno);
  if (!S_ISREG(info.st_mode)) return invalidArgument("{}: is no regular file", path);
  return readUpTo(fd.get(), path, maxBytes);
}

bool isThere(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

Status write(const std::string& path, std::string_view text) {
  return writeWholeFile(path, text, kForAll);
}

}  // namespace tutti::topology::file
