// A process that runs out of file descriptors, for tests of what it says then.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>

namespace tutti {

// Lowers the limit of descriptors as long as it lives: the process gets `spare` of them at most.
class FewDescriptors {
 public:
  explicit FewDescriptors(size_t spare) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    const int next = ::dup(STDERR_FILENO);
    ::close(next);
    few.rlim_cur = static_cast<size_t>(next) + spare;
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace tutti
