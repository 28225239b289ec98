// What a launcher (torchrun, tutti run, Open MPI, MPICH, Slurm) told this process by its
// environment. The one file of the tools that reads the environment for it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/status.h"

namespace tutti::tools {

struct LauncherPlace {
  std::string launcher = {};  // for messages: "Slurm"
  int rank = 0;               // of this process
  int size = 1;               // processes
  bool isOneHost = true;      // as far as the launcher tells
  std::string job = {};       // equal for all processes of the job, and for no other job meanwhile
};

// Null where there is no such variable.
using Lookup = std::function<const char*(const char*)>;

Lookup processEnvironment();  // getenv

// The innermost launcher that this process is a rank of; none: started by hand.
// kInvalidArgument when what it tells makes no sense (rank not below size, no numbers).
Result<std::optional<LauncherPlace>> detectLauncher(const Lookup& lookup);

// Where the job's processes on this host meet: a name in $XDG_RUNTIME_DIR, else in /tmp.
std::string rendezvousPath(const Lookup& lookup, const LauncherPlace& place);

}  // namespace tutti::tools
