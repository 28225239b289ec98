// What a thread of some process does right now, read from /proc: nothing is stopped or signalled.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "observe/process_state.h"

namespace tutti::observe {

// "its main thread 17 sleeps in clock_nanosleep", "its thread 18 runs". Of the process's main
// thread when `threadId` is none of its threads any more. Empty when /proc does not tell, and for
// a process that stateOf() does not know to be alive.
std::string activityOf(const ProcessIdentity& process, int32_t threadId, uint64_t ownPidNamespace);

// Pure: the letter behind the command in the text of /proc/<pid>/stat; the command may hold any
// character. Zero when there is none.
char stateLetter(std::string_view stat);

// Pure: from the state letter of /proc/<pid>/stat and the text of /proc/<pid>/syscall, which is
// empty where this user may not read it. "sleeps in futex", "runs", "waits for a disk".
std::string describeActivity(char state, std::string_view systemCall);

}  // namespace tutti::observe
