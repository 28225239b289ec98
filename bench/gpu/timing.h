// How long the kernels take, eager and in CUDA graphs, beside NCCL's in the same minutes.
#pragma once

#include <string>
#include <vector>

#include "team.h"

namespace tutti::bench {

struct TimingOptions {
  std::vector<Collective> collectives;  // kSend: a ring of sends and receives
  std::vector<uint64_t> sizes;          // bytes of the whole vector, as nccl-tests count them
  DataType type = DataType::kFloat32;
  std::string nccl;    // path of a libnccl.so.2 to compare with; empty: none
  std::string output;  // JSON lines
  std::string label;   // of this run's rows
  double secondsPerCell = 0.01;
  bool eager = true;
  bool graph = true;
};

void timeAll(Team& team, const TimingOptions& options);

}  // namespace tutti::bench
