// What the project knows of each kind of device: device_constants.txt, built into the library.
// Pure, any thread.
#pragma once

#include <string_view>

#include "plan/tuning.h"

namespace tutti::plan {

// Where no TUTTI_TUNING_FILE says better. Never null; each kind of device is there (a test says
// so).
const CpuConstants& builtInCpu();
const SocketConstants& builtInSockets();
const GpuConstants& builtInGpu();
const SimulatorConstants& builtInSimulator();

// The file as it stands; CMake makes the function of it.
std::string_view deviceConstantsText();

}  // namespace tutti::plan
