#include "observe/process_state.h"

#include <errno.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/proc_files.h"
#include "base/read_file.h"

namespace tutti::observe {
namespace {

constexpr int kStateField = 0;   // counted from the one after the command's closing bracket
constexpr int kStartField = 19;  // "starttime", field 22 of proc(5)

std::string_view fieldAfterCommand(std::string_view stat, int field) {
  const size_t bracket = stat.rfind(')');
  if (bracket == std::string_view::npos) return {};
  stat.remove_prefix(std::min(bracket + 2, stat.size()));
  for (; field > 0; --field) {
    const size_t gap = stat.find(' ');
    if (gap == std::string_view::npos) return {};
    stat.remove_prefix(gap + 1);
  }
  return stat.substr(0, stat.find_first_of(" \n"));
}

// Of the process's first thread: what the process's own file says, too, but an emulator of another
// architecture makes that one up for itself.
std::string readStat(int32_t processId) {
  return readFile(fmt::format("/proc/{0}/task/{0}/stat", processId));
}

uint64_t startOf(std::string_view stat) {
  const std::string_view text = fieldAfterCommand(stat, kStartField);
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

ProcessState parseProcessState(const std::string& stat, uint64_t wantedStart) {
  const std::string_view state = fieldAfterCommand(stat, kStateField);
  if (state.empty()) return ProcessState::kUnknown;
  if (startOf(stat) != wantedStart) return ProcessState::kDead;
  switch (state.front()) {
    case 'Z':
    case 'X':
    case 'x': return ProcessState::kDead;
    case 'T':
    case 't': return ProcessState::kStopped;
    default: return ProcessState::kAlive;
  }
}

ProcessIdentity thisProcess() {
  ProcessIdentity self{.processId = ::getpid()};
  self.start = startOf(readStat(self.processId));
  struct stat info {};
  if (::stat("/proc/self/ns/pid", &info) == 0) self.pidNamespace = info.st_ino;
  return self;
}

ProcessState stateOf(const ProcessIdentity& process, uint64_t ownPidNamespace) {
  if (process.start == 0 || process.pidNamespace == 0 || process.pidNamespace != ownPidNamespace ||
      process.processId <= 0)
    return ProcessState::kUnknown;
  errno = 0;
  const std::string stat = readStat(process.processId);
  if (!stat.empty()) return parseProcessState(stat, process.start);
  return errno == ENOENT || errno == ESRCH ? ProcessState::kDead : ProcessState::kUnknown;
}

}  // namespace tutti::observe
