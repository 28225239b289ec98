// Tests only: an accelerator that has nothing, for tests to give it what theirs needs.
#pragma once

#include <memory>
#include <utility>

#include "device/accelerator.h"
#include "device/kept_objects.h"

namespace tutti::device {

class EmptyAccelerator : public Accelerator {
 public:
  std::string_view busId() const override { return "0000:01:00.0"; }
  bool keepsLinesTo(std::string_view) const override { return false; }
  Result<std::unique_ptr<DeviceMemory>> makeMemory(size_t) override { return none(); }
  Result<std::unique_ptr<DeviceMemory>> importMemory(UniqueFd, size_t) override { return none(); }
  Result<std::unique_ptr<SharedWords>> makeWords(size_t) override { return none(); }
  Status copy(void*, const void*, size_t) override { return none(); }
  Result<UniqueFd> exportForDevices(const DeviceMemory&) override { return none(); }
  Result<MemoryPlace> placeOf(const void*) override { return none(); }
  bool hasAllocated(const void*) override { return false; }
  Result<Allocation> allocationOf(const void*) override { return none(); }
  uint64_t allocationId(const void*) override { return 0; }
  Result<SharingHandle> exportAllocation(const Allocation&) override { return none(); }
  Result<std::unique_ptr<DeviceMemory>> importLegacy(const std::array<std::byte, 64>&,
                                                     size_t) override {
    return none();
  }
  Status reachDevice(int32_t) override { return none(); }
  uint32_t multiprocessors() const override { return 132; }
  int32_t capability() const override { return 80; }
  uint32_t sharedBytesPerBlock() const override { return 163 << 10; }
  Result<uint32_t> blocksPerMultiprocessor(const Kernel&, uint32_t, uint32_t) override {
    return none();
  }
  Result<const Kernel*> findKernel(std::span<const unsigned char>, const char*, uint32_t) override {
    return none();
  }
  Status launch(const KernelLaunch&, void*) override { return none(); }
  Status copyOnStream(void*, const void*, size_t, void*) override { return none(); }
  Status callHost(void (*)(void*), void*, void*) override { return none(); }
  Status awaitWord(const void*, uint32_t, void*) override { return none(); }
  Status writeWord(void*, uint32_t, void*) override { return none(); }
  Result<void*> createStream() override { return none(); }
  Result<void*> createUrgentStream() override { return none(); }
  void destroyStream(void*) override {}
  Result<uint64_t> streamId(void* stream) override { return reinterpret_cast<uintptr_t>(stream); }
  Result<Event*> createEvent() override { return none(); }
  void destroyEvent(Event*) override {}
  Status record(Event*, void*) override { return none(); }
  Status wait(void*, Event*) override { return none(); }
  Result<bool> isDone(Event*) override { return none(); }
  Result<Capture> captureOf(void*) override { return Capture{}; }
  Status waitInGraph(void*, Event*) override { return none(); }
  Status recordInGraph(Event*, void*, RecordInGraph&) override { return none(); }
  Status shareWithGraph(void*, std::shared_ptr<const void>) override { return none(); }
  void keepFor(std::weak_ptr<const void> users, std::shared_ptr<const void> object) override {
    kept_.keepFor(std::move(users), std::move(object));
  }
  void keepForGood(std::shared_ptr<const void> object) override {
    kept_.keepForGood(std::move(object));
  }

 protected:
  void dropUnused() { kept_.dropUnused(); }

 private:
  static Status none() { return internalError("the test's accelerator has no such thing"); }

  KeptObjects kept_;
};

}  // namespace tutti::device
