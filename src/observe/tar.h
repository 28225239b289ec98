// A tar archive in memory, in the ustar format of POSIX.1-1988: every tar of the last thirty years
// reads it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::observe {

class Tar {
 public:
  // All entries carry this time, in seconds since 1970, and belong to nobody.
  explicit Tar(int64_t time) : time_(time) {}

  // REQUIRES: name of at most 100 bytes (asserted), such as "process-17/limits"; folders need no
  // entry of their own.
  void add(std::string_view name, std::string_view content);

  // The whole archive. Once.
  std::string finish();

 private:
  int64_t time_;
  std::string bytes_;
};

}  // namespace tutti::observe
