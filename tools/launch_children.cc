#include "tools/launch_children.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace tutti::tools {
namespace {

sigset_t watchedSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, signal);
  return signals;
}

// In the child. The parent may have died before the death signal was asked for.
void prepareChild(pid_t parent, bool ownGroup) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(128 + SIGKILL);
  if (ownGroup) ::setpgid(0, 0);
  const sigset_t signals = watchedSignals();
  ::sigprocmask(SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace

std::string describe(const ChildExit& exit) {
  if (exit.signal == 0) return fmt::format("exited with code {}", exit.code);
  const char* shortName = ::sigabbrev_np(exit.signal);
  return fmt::format("was killed by SIG{} ({})",
                     shortName != nullptr ? shortName : fmt::format(" {}", exit.signal),
                     ::strsignal(exit.signal));
}

bool hasLostReader() {
  pollfd output{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

void blockSignals() {
  const sigset_t signals = watchedSignals();
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
}

int waitForSignal() {
  const sigset_t signals = watchedSignals();
  constexpr timespec kSpan{.tv_sec = 1, .tv_nsec = 0};
  return std::max(::sigtimedwait(&signals, nullptr, &kSpan), 0);
}

Children::~Children() {
  signalAll(SIGKILL);
  for (const Child& child : running_) {
    while (::waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

Status Children::spawn(int index, const std::function<int()>& body) {
  std::fflush(nullptr);  // or the child would print what is buffered a second time
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return systemError("fork", fmt::format("rank {}", index), errno);
  if (pid == 0) {
    prepareChild(parent, ownGroups_);
    const int code = body();
    std::fflush(nullptr);
    ::_exit(code);
  }
  if (ownGroups_) ::setpgid(pid, pid);  // here too: whoever comes first
  running_.push_back({.index = index, .pid = pid});
  return {};
}

void Children::endGroup(pid_t pid) const {
  if (ownGroups_) ::kill(-pid, SIGKILL);
}

std::optional<ChildExit> Children::reap() {
  for (size_t i = 0; i < running_.size(); ++i) {
    const Child child = running_[i];
    siginfo_t info{};
    const auto id = static_cast<id_t>(child.pid);
    if (::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
    endGroup(child.pid);  // while the unreaped child still keeps the number from being reused
    ::waitid(P_PID, id, &info, WEXITED);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    ChildExit exit{.index = child.index, .pid = child.pid};
    (info.si_code == CLD_EXITED ? exit.code : exit.signal) = info.si_status;
    return exit;
  }
  return std::nullopt;
}

std::vector<pid_t> Children::groups() const {
  std::vector<pid_t> groups;
  for (const Child& child : running_) groups.push_back(child.pid);
  return groups;
}

void Children::signalAll(int signal) {
  for (const Child& child : running_) ::kill(ownGroups_ ? -child.pid : child.pid, signal);
}

}  // namespace tutti::tools
