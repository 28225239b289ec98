// Who is told what the ranks of this process do: trace files (TUTTI_TRACE_DIR), a profiler plug-in
// (NCCL_PROFILER_PLUGIN). No fault of theirs ends a start or a call; it is logged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/settings.h"
#include "comm/profiler_plugin.h"
#include "observe/profiler.h"
#include "observe/trace.h"

namespace tutti::comm {

class TraceFile;

// Thread-safe. Lives as long as the process.
class Profiling {
 public:
  // `patience`: how long a plug-in may take to be loaded, and to begin.
  Profiling(const Settings& settings, Nanoseconds patience);

  struct Subject {
    observe::TraceIdentity trace;
    int32_t nodeCount = 1;
  };
  // One rank of one communicator, until the profiler's end. Null where nobody asked.
  std::unique_ptr<observe::Profiler> open(const Subject& subject);

  // The process exits: traces that are open are written as they are.
  void finish();

 private:
  friend class TraceFile;
  std::unique_ptr<observe::ProfilerSink> openPlugin(const Subject& subject);
  std::unique_ptr<TraceFile> openTrace(const observe::TraceIdentity& identity);
  void remove(TraceFile& file);

  // Constant after construction.
  const std::string traceFolder_;  // empty: no traces
  const size_t traceEvents_;
  const std::string pluginWish_;  // NCCL_PROFILER_PLUGIN
  const Nanoseconds patience_;

  std::mutex pluginMutex_;               // guards plugin_
  std::optional<PluginLibrary> plugin_;  // looked for at first need, once

  std::mutex mutex_;  // guards all below
  std::vector<TraceFile*> files_;
  std::map<std::string, int> timesUsed_;  // names of files
};

}  // namespace tutti::comm
