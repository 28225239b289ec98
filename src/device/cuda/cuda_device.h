// One GPU: its primary context, its memory, its kernels. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/accelerator.h"
#include "device/cuda/driver.h"
#include "device/device.h"
#include "device/kept_objects.h"

namespace tutti::device::cuda {

class CudaDevice final : public Device, public Accelerator {
 public:
  // Retains the device's primary context, which programs of the CUDA runtime use too, for good.
  // `driver` lives as long as the process. kInvalidUsage when the device lacks what we need.
  static Result<std::unique_ptr<CudaDevice>> open(const Driver& driver, int32_t index);
  ~CudaDevice() override;

  const Caps& caps() const override { return caps_; }
  Result<void*> allocate(size_t bytes) override;
  Status free(void* memory) override;
  Result<Stream*> resolve(void* handle) override { return static_cast<Stream*>(handle); }
  Status enqueue(Stream* stream, std::span<Task* const> tasks) override;
  void joinRanks(int32_t) override {}
  void leaveRanks(int32_t) override {}
  uint32_t looksBeforeEnqueue() const override { return 0; }
  HostStreams* hostStreams() override { return nullptr; }
  Accelerator* accelerator() override { return this; }

  std::string_view busId() const override { return busId_; }
  bool keepsLinesTo(std::string_view busId) const override;

  Result<std::unique_ptr<DeviceMemory>> makeMemory(size_t bytes) override;
  Result<std::unique_ptr<DeviceMemory>> importMemory(UniqueFd handle, size_t bytes) override;
  Result<std::unique_ptr<SharedWords>> makeWords(size_t bytes) override;
  Status copy(void* to, const void* from, size_t bytes) override;
  Result<UniqueFd> exportForDevices(const DeviceMemory& memory) override;
  Result<MemoryPlace> placeOf(const void* address) override;
  bool hasAllocated(const void* memory) override;
  Result<Allocation> allocationOf(const void* address) override;
  uint64_t allocationId(const void* address) override;
  Result<SharingHandle> exportAllocation(const Allocation& allocation) override;
  Result<std::unique_ptr<DeviceMemory>> importLegacy(const std::array<std::byte, 64>& handle,
                                                     size_t bytes) override;
  Status reachDevice(int32_t index) override;
  uint32_t multiprocessors() const override { return multiprocessors_; }
  int32_t capability() const override { return capability_; }
  uint32_t sharedBytesPerBlock() const override { return sharedBytesPerBlock_; }
  Result<uint32_t> blocksPerMultiprocessor(const Kernel& kernel, uint32_t threads,
                                           uint32_t sharedBytes) override;
  Result<const Kernel*> findKernel(std::span<const unsigned char> image, const char* name,
                                   uint32_t sharedBytes) override;
  Status launch(const KernelLaunch& launch, void* stream) override;
  Status copyOnStream(void* to, const void* from, size_t bytes, void* stream) override;
  Status callHost(void (*function)(void*), void* argument, void* stream) override;
  Status awaitWord(const void* word, uint32_t value, void* stream) override;
  Status writeWord(void* word, uint32_t value, void* stream) override;
  Result<void*> createStream() override;
  Result<void*> createUrgentStream() override;
  void destroyStream(void* stream) override;
  Result<uint64_t> streamId(void* stream) override;
  Result<Event*> createEvent() override;
  void destroyEvent(Event* event) override;
  Status record(Event* event, void* stream) override;
  Status wait(void* stream, Event* event) override;
  Result<bool> isDone(Event* event) override;
  Result<Capture> captureOf(void* stream) override;
  Status waitInGraph(void* stream, Event* event) override;
  Status recordInGraph(Event* event, void* stream, RecordInGraph& place) override;
  Status shareWithGraph(void* stream, std::shared_ptr<const void> object) override;
  void keepFor(std::weak_ptr<const void> users, std::shared_ptr<const void> object) override {
    kept_.keepFor(std::move(users), std::move(object));
  }
  void keepForGood(std::shared_ptr<const void> object) override {
    kept_.keepForGood(std::move(object));
  }

 private:
  CudaDevice(const Driver& driver, int32_t index);
  Status initialise();
  Status makeAccessible(DeviceMemory& memory);
  // The graph that a stream is captured into, and the nodes that what comes next follows.
  struct CapturedGraph {
    Graph graph = nullptr;
    std::vector<GraphNode> last;
  };
  Result<CapturedGraph> graphOf(void* stream) const;

  // Constant after open().
  const Driver& driver_;
  Caps caps_;
  std::string name_;
  std::string busId_;
  uint32_t multiprocessors_ = 1;
  int32_t capability_ = 0;
  uint32_t sharedBytesPerBlock_ = 0;
  DeviceNumber number_ = 0;
  Context context_ = nullptr;
  StreamHandle ownStream_ = nullptr;  // urgent; for copies that are waited for

  std::mutex mutex_;                                                      // guards the fields below
  std::unordered_map<const void*, Module> modules_;                       // by image
  std::unordered_map<void*, std::unique_ptr<DeviceMemory>> allocations_;  // of allocate()
  KeptObjects kept_;                                                      // guards itself
};

// The number of GPUs, and the one that the calling thread's CUDA calls go to.
Result<int32_t> deviceCount(const Driver& driver);
Result<int32_t> currentDevice(const Driver& driver);

struct DeviceFacts {
  DeviceNumber number = 0;
  std::string name;
  std::string busId;
  int32_t capability = 0;  // 90: 9.0
};
Result<DeviceFacts> factsOf(const Driver& driver, int32_t index);

}  // namespace tutti::device::cuda
