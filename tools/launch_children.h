// Processes that this one starts, watches and ends: by process id, never by name. They end with
// their parent. One thread; SIGCHLD and the signals of blockSignals are to be blocked before.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tutti::tools {

struct ChildExit {
  int index = 0;
  pid_t pid = 0;
  int code = 0;    // its exit code
  int signal = 0;  // or what killed it; 0: it exited

  bool isClean() const { return code == 0 && signal == 0; }
  int shellCode() const { return signal != 0 ? 128 + signal : code; }
};

// "was killed by SIGKILL (Killed)", "exited with code 3"
std::string describe(const ChildExit& exit);

// Whether nobody reads any more what this process, and its children with it, would print: the
// reader's wish, as in `... | head -1`.
bool hasLostReader();

// Blocks SIGCHLD, SIGINT, SIGTERM and SIGHUP, to be taken by sigtimedwait or a signalfd; children
// get them unblocked again.
void blockSignals();

// Waits for one of those, a second at most, and takes it; 0: none came.
int waitForSignal();

class Children {
 public:
  // With ownGroups each child leads a process group, and signals go to the whole of it.
  explicit Children(bool ownGroups) : ownGroups_(ownGroups) {}
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children();  // kills and reaps what is left

  // Forks; the child runs body and exits with what it returns, without running exit handlers.
  Status spawn(int index, const std::function<int()>& body);

  // One child that has ended, if any has; never waits. What is left of its group ends with it.
  std::optional<ChildExit> reap();

  void signalAll(int signal);
  size_t runningCount() const { return running_.size(); }
  // Their process groups. REQUIRES: ownGroups.
  std::vector<pid_t> groups() const;

 private:
  struct Child {
    int index;
    pid_t pid;
  };
  void endGroup(pid_t pid) const;

  bool ownGroups_;
  std::vector<Child> running_;
};

}  // namespace tutti::tools
