// The hosts that a batch system has given this job, as Slurm and PBS tell them by the environment.
// Pure, but for reading the file that PBS names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tools/host_list.h"
#include "tools/launcher_env.h"

namespace tutti::tools {

// Slurm's list and tasks a host: "node[01-03,7],gpu2" and "2(x3),1", as SLURM_JOB_NODELIST and
// SLURM_TASKS_PER_NODE have them; no tasks: one a host. kInvalidArgument names what is wrong.
Result<std::vector<HostSlots>> parseSlurmHosts(std::string_view list, std::string_view tasks);

struct Allocation {
  std::string source{};  // "SLURM_JOB_NODELIST"
  std::vector<HostSlots> hosts{};
};

// Nothing where there is no allocation, where it is this host only, or where a launcher has started
// this process as a rank, which then is one of many on the allocation's hosts. An error names the
// variable.
Result<Allocation> readAllocation(const Lookup& lookup, std::string_view ownHost);

}  // namespace tutti::tools
