// ncclConfig_t, from programs of any version: it grows at its end, and says how long it is.
#pragma once

#include <nccl.h>

#include "base/settings.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace tutti::api {

// `config` may be null. Fields newer than the caller's version count as not given; the environment
// wins over the rest. kInvalidArgument for a wrong magic or a value out of range, naming the field.
Result<comm::Config> parseConfig(const ncclConfig_t* config, const Settings& settings);

}  // namespace tutti::api
