// Folds of the host's executor on a GPU: on a stream of its own, ahead of the user's streams, which
// wait for the host at that time. Memory of the host that the GPU does not know goes by way of
// pinned memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/accelerator.h"
#include "kernels/gpu_folder.h"
#include "wire/types.h"

namespace tutti::launch {

// One thread at a time.
class DeviceFolder final : public kernels::GpuFolder {
 public:
  // Loads its kernels, where the build has some: later that could wait for the user's. The
  // accelerator outlives it.
  static Result<std::unique_ptr<DeviceFolder>> open(device::Accelerator& accelerator);
  // Waits for what was started.
  ~DeviceFolder();

  // Without kernels it only copies.
  static bool canFold();

  // kInvalidUsage, too, when a fold has more in unknown host memory than kBounceBytes.
  Result<Ticket> start(const kernels::FoldSpec& spec, const kernels::FoldArgs& args) override;
  Result<bool> isDone(Ticket ticket) override;
  // Nothing that was started goes on, or the GPU has failed.
  bool isIdle();

  static constexpr size_t kBounceBytes = size_t{4} << 20;

 private:
  struct Return {
    Ticket ticket = 0;
    void* to = nullptr;
    const std::byte* from = nullptr;  // in the bounce
    size_t bytes = 0;
  };
  explicit DeviceFolder(device::Accelerator& accelerator) : accelerator_(accelerator) {}
  Status initialise();
  Status fold(const kernels::FoldSpec& spec, const kernels::FoldArgs& args);
  Result<bool> isForeign(const void* memory);
  Status makeRoom(size_t bytes);
  std::byte* take(size_t bytes);

  device::Accelerator& accelerator_;
  void* stream_ = nullptr;
  device::Event* event_ = nullptr;  // never recorded: asking for it tells of errors
  std::array<const device::Kernel*, kDataTypeCount> kernels_{};
  std::unique_ptr<device::SharedWords> word_;    // the last ticket that is done
  std::unique_ptr<device::SharedWords> bounce_;  // handed out from the start, again and again
  size_t used_ = 0;
  std::vector<const void*> sources_;  // scratch
  std::vector<void*> destinations_;   // scratch
  std::vector<bool> isForeign_;       // scratch: of both, whether the GPU does not know it
  std::vector<Return> returns_;       // of folds under way
  Ticket last_ = 0;
  Ticket seen_ = 0;
  uint32_t looks_ = 0;
};

}  // namespace tutti::launch
