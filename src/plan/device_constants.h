// What the project knows of each kind of device: device_constants.txt, built into the library.
// Pure, any thread.
#pragma once

#include <string_view>

#include "plan/tuning.h"

namespace tutti::plan {

// Where no TUTTI_TUNING_FILE says better. Never null; each kind of device is there (a test says
// so).
const CpuConstants& builtInCpu();
// Of ranks that share CPUs of AMD's from family 26 on, for which slots cost far less beside a
// message; not of all collectives.
const CpuConstants& builtInCrowdedAmd();
const SocketConstants& builtInSockets();
const GpuConstants& builtInGpu();
const SimulatorConstants& builtInSimulator();

// The files as they stand; CMake makes the functions of them.
std::string_view deviceConstantsText();
std::string_view amdPricesText();

}  // namespace tutti::plan
