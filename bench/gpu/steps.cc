#include "steps.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>

#include "device/registry.h"
#include "launch/device_folder.h"

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;

double medianUs(int rounds, const std::function<Status()>& step) {
  std::vector<double> times;
  for (int round = -20; round < rounds; ++round) {
    const auto start = Clock::now();
    if (!step().ok()) return -1;
    const std::chrono::duration<double, std::micro> spent = Clock::now() - start;
    if (round >= 0) times.push_back(spent.count());
  }
  std::ranges::nth_element(times, times.begin() + rounds / 2);
  return times[static_cast<size_t>(rounds) / 2];
}

// A GPU with room for three operands and as much pinned memory.
struct Bed {
  std::unique_ptr<device::Device> gpu;
  std::unique_ptr<launch::DeviceFolder> folder;
  std::unique_ptr<device::DeviceMemory> memory;
  std::unique_ptr<device::SharedWords> pinned;

  Status open(size_t most) {
    TUTTI_TRY_ASSIGN(gpu, device::openDevice(device::DeviceKind::kCuda));
    TUTTI_TRY_ASSIGN(folder, launch::DeviceFolder::open(*gpu->accelerator()));
    TUTTI_TRY_ASSIGN(memory, gpu->accelerator()->makeMemory(3 * most));
    TUTTI_TRY_ASSIGN(pinned, gpu->accelerator()->makeWords(most));
    return {};
  }
  Status run(std::vector<const void*> sources, void* to, size_t bytes) {
    TUTTI_TRY_ASSIGN(
        const auto ticket,
        folder->start(
            {.type = DataType::kFloat32, .op = ReduceOp::kSum},
            {.sources = sources, .destinations = {&to, 1}, .elementCount = bytes / sizeof(float)}));
    for (;;) {
      TUTTI_TRY_ASSIGN(const bool isDone, folder->isDone(ticket));
      if (isDone) return {};
    }
  }
};

}  // namespace

int timeSteps(const StepOptions& options) {
  Bed bed;
  const size_t most = *std::ranges::max_element(options.sizes);
  if (const Status status = bed.open(most); !status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  auto* at = static_cast<std::byte*>(bed.memory->address());
  device::Accelerator& gpu = *bed.gpu->accelerator();
  void* host = bed.pinned->hostAddress();
  std::printf("%10s %10s %10s %10s %10s   us\n", "bytes", "copy", "sum", "to host", "from host");
  for (const size_t bytes : options.sizes) {
    const double copied = medianUs(options.rounds, [&] { return bed.run({at}, at + most, bytes); });
    const double summed = medianUs(options.rounds, [&] {
      return bed.run({at, at + most}, at + 2 * most, bytes);
    });
    const double out = medianUs(options.rounds, [&] { return gpu.copy(host, at, bytes); });
    const double in = medianUs(options.rounds, [&] { return gpu.copy(at, host, bytes); });
    std::printf("%10zu %10.1f %10.1f %10.1f %10.1f\n", bytes, copied, summed, out, in);
  }
  return 0;
}

}  // namespace tutti::bench
