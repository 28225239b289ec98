#include "plan/device_constants.h"

#include "base/log.h"

namespace tutti::plan {
namespace {

Tuning read(std::string_view text, const char* source) {
  Result<Tuning> parsed = parseTuning(text, source);
  if (!parsed.ok()) log::warn("{}", parsed.status().message());
  return parsed.ok() ? std::move(parsed).value() : Tuning{};
}

const Tuning& builtIn() {
  static const Tuning tuning = [] {
    Tuning known = read(deviceConstantsText(), "device_constants.txt");
    if (!known.cpu) known.cpu.emplace();
    if (!known.sockets) known.sockets.emplace();
    if (!known.gpu) known.gpu.emplace();
    if (!known.simulator) known.simulator.emplace();
    return known;
  }();
  return tuning;
}

}  // namespace

const CpuConstants& builtInCpu() { return *builtIn().cpu; }
const CpuConstants& builtInCrowdedAmd() {
  static const CpuConstants constants =
      read(amdPricesText(), "amd_prices.txt").cpu.value_or(CpuConstants{});
  return constants;
}
const SocketConstants& builtInSockets() { return *builtIn().sockets; }
const GpuConstants& builtInGpu() { return *builtIn().gpu; }
const SimulatorConstants& builtInSimulator() { return *builtIn().simulator; }

}  // namespace tutti::plan
