// Is a process of this host alive? Read from /proc, never by a signal: nothing is disturbed.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::observe {

enum class ProcessState : uint8_t {
  kUnknown,  // /proc cannot tell
  kAlive,
  kStopped,  // by SIGSTOP or a debugger
  kDead,     // gone, a zombie, or its number now belongs to another process
};

struct ProcessIdentity {
  int32_t processId = 0;
  uint64_t start = 0;         // ticks since boot; 0: unknown
  uint64_t pidNamespace = 0;  // 0: unknown
};

// This process. Fields that /proc does not tell are 0.
ProcessIdentity thisProcess();

// kUnknown for a process of another pid namespace, or without a start time: its number means
// nothing.
ProcessState stateOf(const ProcessIdentity& process, uint64_t ownPidNamespace);

// Pure: from the text of /proc/<pid>/stat. The command in it may hold any character.
ProcessState parseProcessState(const std::string& stat, uint64_t wantedStart);

}  // namespace tutti::observe
