// Tuner plug-ins (NCCL_TUNER_PLUGIN): found and loaded once a process, asked by the planner for
// each new shape of call. No fault of one ends a start or a call: it is told once, with its reason,
// and the library chooses for itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/plugin_file.h"
#include "base/status.h"
#include "plan/tuner.h"

namespace tutti::comm {

// Looks where NCCL_TUNER_PLUGIN says: unset, libnccl-tuner.so where there is one; "none", nowhere;
// "STATIC_PLUGIN", in the program itself; a path or lib*.so, that file; a word,
// libnccl-tuner-WORD.so. An error where something was asked for by name and is not there or has no
// version we know.
Result<PluginLibrary> loadTuner(const std::string& setting);

struct TunedCommunicator {
  uint64_t id = 0;  // equal on all its ranks
  int32_t rankCount = 1;
  int32_t nodeCount = 1;
};

// The plug-in's view of one communicator. An error names the plug-in and what its init returned.
Result<std::unique_ptr<plan::Tuner>> openTuner(const PluginLibrary& library,
                                               const TunedCommunicator& communicator);

}  // namespace tutti::comm
