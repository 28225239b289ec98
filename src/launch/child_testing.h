// Tests only: a process that dies or stops when a test says so.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "observe/process_state.h"

namespace tutti::launch {

// A process that does nothing until it is killed.
class Child {
 public:
  Child() {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      const observe::ProcessIdentity own = observe::thisProcess();
      if (::write(ends[1], &own, sizeof own) != sizeof own) ::_exit(1);
      for (;;) ::pause();
    }
    if (::read(ends[0], &identity_, sizeof identity_) != sizeof identity_) std::abort();
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  void stop() {
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }
  const observe::ProcessIdentity& identity() const { return identity_; }

 private:
  pid_t pid_ = 0;
  observe::ProcessIdentity identity_;
};

}  // namespace tutti::launch
