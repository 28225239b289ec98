#include "base/whole_file.h"

#include <errno.h>
#include <fmt/core.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>

#include "base/futex.h"
#include "base/read_file.h"

namespace tutti {
namespace {

std::string folderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// Where the symbolic link leads, or the path itself.
std::string followed(const std::string& path) {
  std::array<char, PATH_MAX> target{};
  return ::realpath(path.c_str(), target.data()) == nullptr ? path : target.data();
}

// What is there has a name of its own that must stay.
int writeInto(const std::string& path, std::string_view content) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd) return errno;
  if (const int error = writeAll(fd.get(), content); error != 0) return error;
  return ::close(fd.release()) == 0 ? 0 : errno;
}

int replace(const std::string& path, std::string_view content, mode_t mode) {
  TemporaryFile file(folderOf(path), mode);
  const int error = file.write(content);
  return error == 0 ? file.giveName(path, 0) : error;
}

// Until the pipe brings its first byte, which then is in `text`, or its writer is there: reads
// block from then on. Before, each read finds the end of the file.
Status awaitWriter(int fd, const std::string& path, std::string& text) {
  constexpr int kLooks = 100;
  constexpr std::chrono::milliseconds kBetweenLooks{50};
  for (int look = 0; look < kLooks; ++look) {
    char first = 0;
    const ssize_t got = ::read(fd, &first, 1);
    if (got > 0) text.push_back(first);
    if (got > 0 || (got < 0 && errno == EAGAIN)) {
      const int flags = ::fcntl(fd, F_GETFL);
      return ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0 ? Status()
                                                            : systemError("fcntl", path, errno);
    }
    if (got < 0 && errno != EINTR) return systemError("read", path, errno);
    sleepFor(kBetweenLooks);
  }
  return invalidArgument("{}: nobody writes to that pipe", path);
}

}  // namespace

int writeAll(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t wrote = ::write(fd, content.data(), content.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return wrote < 0 ? errno : EIO;
    content.remove_prefix(static_cast<size_t>(wrote));
  }
  return 0;
}

TemporaryFile::TemporaryFile(const std::string& folder, mode_t mode) {
  constexpr int kMostNames = 1000;  // that others may have: of processes with our id elsewhere
  for (int number = 0; number < kMostNames; ++number) {
    path_ = fmt::format("{}/.tutti-{}-{}", folder, ::getpid(), number);
    fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (fd_) return;
    error_ = errno;
    if (error_ != EEXIST) return;
  }
}

TemporaryFile::~TemporaryFile() {
  if (fd_ || isClosed_) ::unlink(path_.c_str());
}

int TemporaryFile::write(std::string_view content) {
  if (!fd_) return error_;
  error_ = writeAll(fd_.get(), content);
  if (error_ != 0) return error_;
  isClosed_ = true;
  if (::close(fd_.release()) != 0) error_ = errno;  // where NFS says that the disk is full
  return error_;
}

int TemporaryFile::giveName(const std::string& path, unsigned flags) {
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, path.c_str(), flags) != 0) return errno;
  isClosed_ = false;
  return 0;
}

Status cannotWrite(const std::string& path, int errnoValue) {
  std::array<char, 128> text{};
  return Status(
      Code::kSystemError,
      fmt::format("cannot write {}: {}", path, ::strerror_r(errnoValue, text.data(), text.size())));
}

Result<std::string> readWholeFile(const std::string& path, size_t maxBytes) {
  // Without O_NONBLOCK a pipe that nobody writes to would hold us for ever.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return systemError("open", path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return systemError("stat", path, errno);
  if (!S_ISREG(info.st_mode)) return invalidArgument("{}: is no regular file", path);
  std::string text;
  const int error = readUpTo(fd.get(), maxBytes + 1, text);
  if (error != 0) return systemError("read", path, error);
  return text;
}

Result<std::string> readFileOrPipe(const std::string& path, size_t maxBytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return systemError("open", path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return systemError("stat", path, errno);
  const bool isPipe = S_ISFIFO(info.st_mode);
  if (!S_ISREG(info.st_mode) && !isPipe)
    return invalidArgument("{}: is neither a file nor a pipe", path);
  std::string text;
  if (isPipe) TUTTI_TRY(awaitWriter(fd.get(), path, text));
  if (const int error = readUpTo(fd.get(), maxBytes + 1, text); error != 0)
    return systemError("read", path, error);
  if (text.size() > maxBytes)
    return invalidArgument("{}: has more than {} bytes, the most that is read of such a file", path,
                           maxBytes);
  return text;
}

Status writeWholeFile(const std::string& path, std::string_view content, mode_t mode) {
  struct stat info {};
  const bool isThere = ::stat(path.c_str(), &info) == 0;
  int error = 0;
  if (!isThere || S_ISREG(info.st_mode)) {
    error = replace(followed(path), content, mode);
  } else {
    error = writeInto(path, content);
  }
  return error == 0 ? Status() : cannotWrite(path, error);
}

Status checkWritable(const std::string& path) {
  struct stat info {};
  const bool isThere = ::stat(path.c_str(), &info) == 0;
  if (isThere && S_ISDIR(info.st_mode)) return cannotWrite(path, EISDIR);
  const bool isReplaced = !isThere || S_ISREG(info.st_mode);
  const std::string asked = isReplaced ? folderOf(followed(path)) : path;
  if (::access(asked.c_str(), isReplaced ? W_OK | X_OK : W_OK) != 0)
    return cannotWrite(path, errno);
  return {};
}

}  // namespace tutti
