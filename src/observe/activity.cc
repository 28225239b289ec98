#include "observe/activity.h"

#include <fmt/core.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/proc_files.h"
#include "base/read_file.h"

namespace tutti::observe {
namespace {

struct NamedCall {
  long number;
  std::string_view name;
};

// Those in which threads are found waiting; the others are told by number.
constexpr std::array kCalls = {
    NamedCall{SYS_read, "read"},
    NamedCall{SYS_write, "write"},
    NamedCall{SYS_pread64, "pread"},
    NamedCall{SYS_pwrite64, "pwrite"},
    NamedCall{SYS_readv, "readv"},
    NamedCall{SYS_writev, "writev"},
    NamedCall{SYS_recvfrom, "recv"},
    NamedCall{SYS_recvmsg, "recvmsg"},
    NamedCall{SYS_sendto, "send"},
    NamedCall{SYS_sendmsg, "sendmsg"},
    NamedCall{SYS_connect, "connect"},
    NamedCall{SYS_accept, "accept"},
    NamedCall{SYS_accept4, "accept"},
    NamedCall{SYS_ppoll, "poll"},
    NamedCall{SYS_pselect6, "select"},
    NamedCall{SYS_epoll_pwait, "epoll_wait"},
#ifdef SYS_poll  // the newer architectures have only the calls above
    NamedCall{SYS_poll, "poll"},
    NamedCall{SYS_select, "select"},
    NamedCall{SYS_epoll_wait, "epoll_wait"},
    NamedCall{SYS_pause, "pause"},
#endif
    NamedCall{SYS_futex, "futex (a lock or a condition)"},
    NamedCall{SYS_nanosleep, "nanosleep"},
    NamedCall{SYS_clock_nanosleep, "clock_nanosleep"},
    NamedCall{SYS_wait4, "wait (for a child)"},
    NamedCall{SYS_waitid, "wait (for a child)"},
    NamedCall{SYS_ioctl, "ioctl (a device)"},
    NamedCall{SYS_fsync, "fsync"},
    NamedCall{SYS_fdatasync, "fdatasync"},
    NamedCall{SYS_flock, "flock"},
    NamedCall{SYS_fcntl, "fcntl (a lock)"},
    NamedCall{SYS_openat, "open"},
    NamedCall{SYS_rt_sigtimedwait, "sigwait"},
    NamedCall{SYS_rt_sigsuspend, "sigsuspend"},
};

std::optional<long> callNumber(std::string_view text) {
  long number = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || number < 0) return std::nullopt;
  return number;
}

}  // namespace

char stateLetter(std::string_view stat) {
  const size_t bracket = stat.rfind(") ");
  return bracket == std::string_view::npos || bracket + 2 >= stat.size() ? '\0' : stat[bracket + 2];
}

std::string describeActivity(char state, std::string_view systemCall) {
  switch (state) {
    case 'R': return "runs";
    case 'T':
    case 't': return "is stopped";
    case 'Z':
    case 'X': return "has ended";
    default: break;
  }
  const std::string_view how = state == 'D' ? "waits for a disk or a driver" : "sleeps";
  const std::optional<long> number = callNumber(systemCall);
  if (!number) return std::string(how);
  const auto found = std::ranges::find(kCalls, *number, &NamedCall::number);
  if (found != kCalls.end()) return fmt::format("{} in {}", how, found->name);
  return fmt::format("{} in system call {}", how, *number);
}

std::string activityOf(const ProcessIdentity& process, int32_t threadId, uint64_t ownPidNamespace) {
  const ProcessState state = stateOf(process, ownPidNamespace);
  if (state != ProcessState::kAlive && state != ProcessState::kStopped) return "";
  for (const int32_t thread : {threadId, process.processId}) {
    const std::string folder = fmt::format("/proc/{}/task/{}/", process.processId, thread);
    const char letter = stateLetter(readFile(folder + "stat"));
    if (letter == '\0') continue;
    return fmt::format("its {}thread {} {}", thread == process.processId ? "main " : "", thread,
                       describeActivity(letter, readFile(folder + "syscall")));
  }
  return "";
}

}  // namespace tutti::observe
