// The device of virtual ranks: it has a number in a described cluster, gives out memory that nobody
// need ever touch, and takes any stream, since nothing runs here.
#pragma once

#include <map>
#include <mutex>

#include "base/mapping.h"
#include "device/device.h"

namespace tutti::device::virt {

class VirtualDevice final : public Device {
 public:
  explicit VirtualDevice(int32_t index)
      : caps_{.name = "virtual", .isHost = false, .isVirtual = true, .index = index} {}

  const Caps& caps() const override { return caps_; }
  // Zeroed address space; a page takes memory when it is written, and only then.
  Result<void*> allocate(size_t bytes) override;
  Status free(void* memory) override;
  // Whatever it is, it stands for a queue of a GPU that is not there.
  Result<Stream*> resolve(void*) override { return static_cast<Stream*>(nullptr); }
  // kInternalError: calls of virtual ranks end when they are made.
  Status enqueue(Stream* stream, std::span<Task* const> tasks) override;
  uint32_t looksBeforeEnqueue() const override { return 0; }
  void joinRanks(int32_t) override {}
  void leaveRanks(int32_t) override {}
  HostStreams* hostStreams() override { return nullptr; }
  Accelerator* accelerator() override { return nullptr; }

 private:
  const Caps caps_;
  std::mutex mutex_;  // guards the one below
  std::map<const void*, UniqueMapping> allocations_;
};

}  // namespace tutti::device::virt
