// The prices of this machine that `tutti tune` wrote, for the planner (TUTTI_TUNING_FILE).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "plan/tuning.h"

namespace tutti::comm {

struct TuningFile {
  std::shared_ptr<const plan::Tuning> tuning{};  // shared by the planners of this rank; null: none
  uint64_t hash = 0;                             // of its text, which all ranks must have alike
};

// Nothing for an empty path. Errors name the setting and what is wrong with the file.
Result<TuningFile> readTuningFile(const std::string& path);

}  // namespace tutti::comm
