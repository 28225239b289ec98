// What links carry, by kind and generation: the one table behind every GB/s of the model. All
// figures are for one direction, in 10^9 bytes a second, and are what transfers reach, not what the
// line signals.
#pragma once

#include <optional>
#include <string_view>

#include "topology/description.h"

namespace tutti::topology {

// A lane of PCI Express, by the kernel's text of its speed ("16.0 GT/s PCIe", "8 GT/s"). nullopt:
// not known.
std::optional<double> pciLaneGbPerSecond(std::string_view speed);
// What is taken for a link whose speed or width the machine does not tell: 8 GT/s, 16 lanes.
inline constexpr double kAssumedPciLaneGbPerSecond = 0.75;
inline constexpr int kAssumedPciLanes = 16;

// One NVLink of a GPU of this compute capability (× 10).
double nvLinkGbPerSecond(int smVersion);
// One xGMI link of an AMD GPU ("gfx942").
double xgmiGbPerSecond(std::string_view amdName);

// Between two NUMA nodes with such processors.
double interSocketGbPerSecond(const CpuNode& cpu);

// A port whose speed is not known: 10 Gb/s.
inline constexpr double kAssumedPortMbps = 10'000;

// Between GPUs of an Intel host, what goes through the CPU's root complex takes this much more of
// the link than it carries. For the search; paths show the plain bandwidth.
inline constexpr double kIntelPeerOverhead = 6.0 / 5.0;

}  // namespace tutti::topology
