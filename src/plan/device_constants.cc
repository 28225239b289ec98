#include "plan/device_constants.h"

#include "base/log.h"

namespace tutti::plan {
namespace {

const Tuning& builtIn() {
  static const Tuning tuning = [] {
    Result<Tuning> parsed = parseTuning(deviceConstantsText(), "device_constants.txt");
    if (!parsed.ok()) log::warn("{}", parsed.status().message());
    Tuning known = parsed.ok() ? std::move(parsed).value() : Tuning{};
    if (!known.cpu) known.cpu.emplace();
    if (!known.sockets) known.sockets.emplace();
    if (!known.gpu) known.gpu.emplace();
    if (!known.simulator) known.simulator.emplace();
    return known;
  }();
  return tuning;
}

}  // namespace

const CpuConstants& builtInCrowdedAmd() {
  static const CpuConstants constants = [] {
    Result<Tuning> parsed = parseTuning(amdPricesText(), "amd_prices.txt");
    if (!parsed.ok()) log::warn("{}", parsed.status().message());
    return parsed.ok() && parsed->cpu ? *std::move(parsed->cpu) : CpuConstants{};
  }();
  return constants;
}
const CpuConstants& builtInCpu() { return *builtIn().cpu; }
const SocketConstants& builtInSockets() { return *builtIn().sockets; }
const GpuConstants& builtInGpu() { return *builtIn().gpu; }
const SimulatorConstants& builtInSimulator() { return *builtIn().simulator; }

}  // namespace tutti::plan
