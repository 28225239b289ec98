// Files that are read, or written, as a whole or not at all.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace tutti {

inline constexpr mode_t kForTheOwner = 0600;
inline constexpr mode_t kForAll = 0666;  // less what the process's umask takes away

// A file in `folder` that goes with the object unless it was given its name.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& folder, mode_t mode = kForTheOwner);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  // Each returns 0, or errno's value of the first failure.
  int write(std::string_view content);
  // `flags` as renameat2() takes them.
  int giveName(const std::string& path, unsigned flags);

 private:
  std::string path_;
  UniqueFd fd_;
  bool isClosed_ = false;  // and has no name of its own yet
  int error_ = 0;
};

// Of a longer file the first maxBytes + 1 bytes: a parser with that limit says where it was passed.
// A device, a pipe that nobody writes to or a folder, whatever a setting may name by mistake, is
// refused at once.
Result<std::string> readWholeFile(const std::string& path, size_t maxBytes);

// The same for what a user names on a command line: a pipe is as good as a file, and read to its
// end, once somebody writes to it; one that nobody has come to write to for some seconds is
// refused. kInvalidArgument for what has more than maxBytes.
Result<std::string> readFileOrPipe(const std::string& path, size_t maxBytes);

// 0, or errno's value where the rest of the bytes is lost.
int writeAll(int fd, std::string_view content);

// Makes the file, or replaces what is there, by one that is made beside it and takes its name when
// all is in it. The target of a symbolic link is replaced, not the link; a pipe or a device is
// written to. The error names the path, and is not logged.
Status writeWholeFile(const std::string& path, std::string_view content,
                      mode_t mode = kForTheOwner);

// Whether that could work now, for those who have much to do first. Changes nothing.
Status checkWritable(const std::string& path);

// "cannot write PATH: why"; not logged.
Status cannotWrite(const std::string& path, int errnoValue);

}  // namespace tutti
