// Finds or starts the processes of a measurement and watches over them.
#pragma once

#include "tools/perf_options.h"

namespace tutti::tools {

// Returns the exit code (command.h). Under a launcher this process is one of the ranks' processes,
// unless options.processes asks for own ones; otherwise it starts them and outlives them.
int launchPerf(const PerfOptions& options);

}  // namespace tutti::tools
