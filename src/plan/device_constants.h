// What was measured of the kinds of devices that the planner knows, as data: date, machine, command
// and figures stand in device_constants.cc. Pure, any thread.
#pragma once

#include "plan/cost_model.h"

namespace tutti::plan {

// Prices of every algorithm of CPU ranks, threads and processes, where no TUTTI_TUNING_FILE says
// better.
const Tuning& builtInTuning();

}  // namespace tutti::plan
