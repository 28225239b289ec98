// Profiler plug-ins (NCCL_PROFILER_PLUGIN): found and loaded once a process, told of each
// rank's work. No fault of one ends a start or a call: it is told once, with its reason, and that
// communicator goes on without it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/plugin_file.h"
#include "base/status.h"
#include "observe/profiler.h"

namespace tutti::comm {

// Looks where NCCL_PROFILER_PLUGIN says; as loadTuner().
Result<PluginLibrary> loadProfiler(const std::string& setting);

struct ProfiledRank {
  uint64_t communicator = 0;  // equal on all its ranks
  std::string name;
  int32_t rank = 0;
  int32_t rankCount = 1;
  int32_t nodeCount = 1;
};

// The plug-in's view of one rank. An error names the plug-in and what its init returned.
Result<std::unique_ptr<observe::ProfilerSink>> openProfiler(const PluginLibrary& library,
                                                            const ProfiledRank& rank);

}  // namespace tutti::comm
