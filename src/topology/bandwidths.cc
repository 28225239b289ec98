// Sources: the constants that NCCL's planner is known to use (so that results can be compared),
// where it has one; otherwise the maker's data sheet, less the share that protocols take of PCI (25
// %).
#include "topology/bandwidths.h"

#include <array>
#include <charconv>

namespace tutti::topology {
namespace {

struct PciGeneration {
  double gigaTransfers;
  double laneGbPerSecond;
};
// 12 GB/s for 16 lanes of generation 3, doubled with each generation.
constexpr std::array<PciGeneration, 6> kPciGenerations = {
    {{2.5, 0.1875}, {5, 0.375}, {8, 0.75}, {16, 1.5}, {32, 3}, {64, 6}}};

struct NvLinkGeneration {
  int fromSmVersion;
  double gbPerSecond;
};
// By the compute capability from which it holds, newest first.
constexpr std::array<NvLinkGeneration, 6> kNvLinks = {{
    {100, 40.1},  // B200: NVLink 5, 50 on the line
    {90, 20.6},   // H100, H200: NVLink 4, 25 on the line
    {86, 12},     // RTX 3090 and A40 bridges: 14 on the line
    {80, 20},     // A100: NVLink 3
    {70, 20},     // V100: NVLink 2
    {0, 18},      // P100: NVLink 1
}};

struct XgmiGeneration {
  std::string_view amdName;
  double gbPerSecond;
};
// AMD's data sheets give both directions together: MI300X 128, MI250X 100, MI100 92.
constexpr std::array<XgmiGeneration, 4> kXgmi = {
    {{"gfx950", 76}, {"gfx942", 64}, {"gfx90a", 50}, {"gfx908", 46}}};
constexpr double kOldestXgmiGbPerSecond = 37;  // MI50: 73.6 both ways

double intelSocketGbPerSecond(int family, int model) {
  constexpr int kSapphireRapids = 143, kEmeraldRapids = 207, kGraniteRapids = 173, kSkylake = 85;
  if (family != 6) return 6;
  if (model == kEmeraldRapids || model == kGraniteRapids) return 40;
  if (model == kSapphireRapids) return 22;
  return model >= kSkylake ? 10 : 6;
}

}  // namespace

std::optional<double> pciLaneGbPerSecond(std::string_view speed) {
  double rate = 0;
  const auto parsed = std::from_chars(speed.data(), speed.data() + speed.size(), rate);
  if (parsed.ec != std::errc()) return std::nullopt;
  if (!std::string_view(parsed.ptr, speed.data() + speed.size()).starts_with(" GT/s"))
    return std::nullopt;
  for (const PciGeneration& generation : kPciGenerations) {
    if (rate == generation.gigaTransfers) return generation.laneGbPerSecond;
  }
  return std::nullopt;
}

double nvLinkGbPerSecond(int smVersion) {
  for (const NvLinkGeneration& generation : kNvLinks) {
    if (smVersion >= generation.fromSmVersion) return generation.gbPerSecond;
  }
  return kNvLinks.back().gbPerSecond;
}

double xgmiGbPerSecond(std::string_view amdName) {
  for (const XgmiGeneration& generation : kXgmi) {
    if (amdName.starts_with(generation.amdName)) return generation.gbPerSecond;
  }
  return kOldestXgmiGbPerSecond;
}

double interSocketGbPerSecond(const CpuNode& cpu) {
  switch (cpu.arch) {
    case CpuArch::kPower: return 32;
    case CpuArch::kArm64: return 6;
    case CpuArch::kUnknown:
    case CpuArch::kX86: break;
  }
  switch (cpu.vendor) {
    case CpuVendor::kAmd: return 16;
    case CpuVendor::kZhaoxin: return cpu.model >= 0x5b ? 9 : 6;
    case CpuVendor::kIntel: return intelSocketGbPerSecond(cpu.family, cpu.model);
    case CpuVendor::kUnknown: break;
  }
  return 6;
}

}  // namespace tutti::topology
