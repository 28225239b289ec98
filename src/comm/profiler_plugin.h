// Profiler plug-ins (NCCL_PROFILER_PLUGIN): found and loaded once a process, told of each CPU
// rank's work. No fault of one ends a start or a call: it is told once, with its reason, and that
// communicator goes on without it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "observe/profiler.h"

namespace tutti::comm {

// A plug-in in this process's memory, where it stays. Immutable, any thread.
struct ProfilerLibrary {
  int version = 0;                  // 1 to 5
  const void* functions = nullptr;  // its struct of that version; null: there is none
  std::string source{};             // the file, or what else it came from
  bool exists() const { return functions != nullptr; }
};

// Looks where NCCL_PROFILER_PLUGIN says; as loadTuner().
Result<ProfilerLibrary> loadProfiler(const std::string& setting);

struct ProfiledRank {
  uint64_t communicator = 0;  // equal on all its ranks
  std::string name;
  int32_t rank = 0;
  int32_t rankCount = 1;
  int32_t nodeCount = 1;
};

// The plug-in's view of one rank. An error names the plug-in and what its init returned.
Result<std::unique_ptr<observe::ProfilerSink>> openProfiler(const ProfilerLibrary& library,
                                                            const ProfiledRank& rank);

}  // namespace tutti::comm
