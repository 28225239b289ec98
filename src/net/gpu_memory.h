// Memory of a GPU that adapters reach by themselves (GPUDirect), as links and networks speak of it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tutti::net {

// A network adapter, as far as memory of GPUs is concerned.
struct Adapter {
  std::string name;              // "mlx5_0"
  std::string place;             // its directory in /sys; empty: not known
  bool takesGpuMemory = false;   // by its address, or
  bool takesDmaBuffers = false;  // by a descriptor
  bool canReachGpus() const { return takesGpuMemory || takesDmaBuffers; }
};

// A range of a GPU's memory that payloads of a connection may lie in.
struct GpuRegion {
  std::span<std::byte> bytes;
  int dmaBuffer = -1;  // a descriptor of all of it, borrowed for the call; -1: none
  // By adapter of the network: why it is not to touch the memory; empty: it may.
  std::span<const std::string> obstacles;
};

}  // namespace tutti::net
