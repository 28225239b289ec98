// How many thread blocks a GPU kernel may have, as the settings say it.
#pragma once

#include <cstdint>

#include "base/settings.h"

namespace tutti {

// Each by its name, else by its old one (NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS); 0: not set.
struct BlockSettings {
  int64_t fewest = 0;
  int64_t most = 0;
};

inline BlockSettings readBlockSettings(const Settings& settings) {
  const auto byEither = [&settings](const char* name, const char* oldName) {
    const int64_t number = settings.integer(name);
    return number != 0 ? number : settings.integer(oldName);
  };
  return {.fewest = byEither("NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS"),
          .most = byEither("NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS")};
}

}  // namespace tutti
