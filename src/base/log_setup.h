// From settings to the log. Apart from log.h, so that the log itself knows of no settings.
#pragma once

#include "base/log.h"
#include "base/settings.h"

namespace tutti::log {

// What the NCCL_DEBUG settings ask for. Borrows from `settings`.
Config makeConfig(const Settings& settings);

// Configures the sink, then says what was found: one WARN a complaint; at INFO (ENV) one line for
// each setting that somebody set, with its source. A wrong NCCL_DEBUG itself is told in any case:
// who sets it wants to hear something. Once a process, before the first communicator.
void setUp(const Settings& settings);

}  // namespace tutti::log
