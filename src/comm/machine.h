// The machine at start-up: one rank of each host finds it out and tells the others. Nothing of it
// is needed to run a collective, so it is done only where somebody wants to see it, and no fault of
// it ends a start.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/settings.h"
#include "bootstrap/bootstrap.h"
#include "comm/host_member.h"
#include "topology/description.h"

namespace tutti::comm {

struct MachineParts {
  using Member = HostMember;
  bootstrap::Bootstrap& bootstrap;
  std::vector<Member> host = {};  // the ranks of this host, ascending; the caller is among them
  const std::atomic<bool>* abort = nullptr;
  std::chrono::milliseconds timeout{0};
  // What this process finds out by itself.
  std::function<Result<topology::Description>()> find;
};

// Collective among the host's ranks. The first finds the machine out; where it does not see the GPU
// of another rank (containers), all do, and their parts are fused. nullopt: it could not be found
// out or told, and the log says why. Errors are the bootstrap's.
Result<std::optional<topology::Description>> shareMachine(const MachineParts& parts);

// NCCL_TOPO_FILE (or the file that virtual machines of NVIDIA's provide), or the machine itself; a
// file that is no machine is warned of, and the machine itself is taken.
Result<topology::Description> findMachine(const Settings& settings, bool hasGpus,
                                          uint64_t hostHash);

// Gives the machine's GPUs the ranks that run on them, of several on one the first; other GPUs
// none.
void setRanks(std::span<const HostMember> host, topology::Description& machine);

// Whether a rank with such settings wants its host's machine known.
bool wantsMachine(const Settings& settings);

// On the host's first rank: one INFO line of what there is, one of what was assumed. On the rank
// that NCCL_TOPO_DUMP_FILE_RANK names: writes NCCL_TOPO_DUMP_FILE.
void showMachine(const Settings& settings, const topology::Description& machine, bool isFirst,
                 Rank self);

}  // namespace tutti::comm
