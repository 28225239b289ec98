// Accelerator: what a device whose kernels run apart from the host gives to the layers above:
// memory that peers can map, words that host and kernels share, kernels and the order among them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace tutti::device {

// Memory of a device, mapped for it. Move-only by ownership: the mapping ends with the object, the
// memory itself with the last mapping of any process.
class DeviceMemory {
 public:
  virtual void* address() const = 0;  // as kernels of the device that mapped it use it
  virtual size_t bytes() const = 0;
  // A descriptor from which another process maps the same memory. Of memory made here only.
  virtual Result<UniqueFd> exportHandle() const = 0;
  virtual ~DeviceMemory() = default;
};

// Pinned host memory, zeroed, that kernels of all devices of this process can poll and write.
class SharedWords {
 public:
  virtual void* hostAddress() const = 0;
  virtual void* deviceAddress() const = 0;
  virtual ~SharedWords() = default;
};

// A point in a stream's work. Created and destroyed by the accelerator.
class Event;
// A kernel of the loaded image. Lives as long as the process.
class Kernel;

struct KernelLaunch {
  const Kernel* kernel = nullptr;
  uint32_t blocks = 1;
  uint32_t threads = 1;
  uint32_t sharedBytes = 0;
  const void* argument = nullptr;  // the kernel's one parameter, copied by the call
  // It may be put on the device before what is ahead of it on the stream has ended; the kernel
  // waits for that by itself.
  bool startsEarly = false;
};

// Device memory of the user's: what one call of an allocator gave.
struct Allocation {
  std::byte* base = nullptr;
  size_t bytes = 0;
  uint64_t id = 0;  // never given again in this process, also where the address is
};

// What another process needs to map an allocation. At most one is set.
struct SharingHandle {
  UniqueFd descriptor;                 // of memory that was made to be shared
  std::array<std::byte, 64> legacy{};  // of cudaMalloc's
  bool isLegacy = false;
};

// Where a buffer lives, as far as the driver knows.
enum class MemoryPlace : uint8_t { kUnknownHost, kPinnedHost, kThisDevice, kOtherDevice };

struct Capture {
  bool isActive = false;  // what is put on the stream becomes part of a graph instead of running
  // It has failed: there will be no graph of it, and until the user ends it the stream takes
  // nothing.
  bool isBroken = false;
  uint64_t id = 0;  // of the capture; unique in the process
};

// Where a graph records an event.
struct RecordInGraph {
  void* node = nullptr;         // null: nowhere yet
  std::vector<void*> behind{};  // the nodes that it follows
};

// Thread-safe. Lives as long as the process. Each call makes the device's context current for
// itself and restores the caller's. Stream handles are the user's, passed through; what is on none
// of them is allowed while any thread captures a graph, and leaves that alone.
class Accelerator {
 public:
  // Where the device sits in its host, "0000:3b:00.0": equal in all processes, whatever their
  // numbering.
  virtual std::string_view busId() const = 0;
  // Whether 128 aligned bytes that threads of one warp store at once reach the memory of that
  // device, in the same host, in one piece: over NVLink they do, over PCIe they may not. False,
  // too, where this process cannot see the device.
  virtual bool keepsLinesTo(std::string_view busId) const = 0;

  // Zeroed when it returns. Waits for no kernel of any stream.
  virtual Result<std::unique_ptr<DeviceMemory>> makeMemory(size_t bytes) = 0;
  // The same memory through a mapping of one's own, whichever process and device made it.
  virtual Result<std::unique_ptr<DeviceMemory>> importMemory(UniqueFd handle, size_t bytes) = 0;
  virtual Result<std::unique_ptr<SharedWords>> makeWords(size_t bytes) = 0;
  // Copies between any two of host and device memory; returns when it is done. On a stream of its
  // own.
  virtual Status copy(void* to, const void* from, size_t bytes) = 0;
  // A descriptor by which the drivers of other devices reach memory of makeMemory(). An error, not
  // logged, where the GPU's driver gives none.
  virtual Result<UniqueFd> exportForDevices(const DeviceMemory& memory) = 0;
  virtual Result<MemoryPlace> placeOf(const void* address) = 0;
  virtual bool hasAllocated(const void* memory) = 0;  // from Device::allocate(), not freed yet

  // Of this device only; kInvalidUsage for memory that is none of its.
  virtual Result<Allocation> allocationOf(const void* address) = 0;
  // 0 where there is no memory any more. Some 0.1 µs.
  virtual uint64_t allocationId(const void* address) = 0;
  // kInvalidUsage for memory that cannot be shared with another process.
  virtual Result<SharingHandle> exportAllocation(const Allocation& allocation) = 0;
  virtual Result<std::unique_ptr<DeviceMemory>> importLegacy(
      const std::array<std::byte, 64>& handle, size_t bytes) = 0;
  // Kernels of this device can use what cudaMalloc gave on that one, in this process.
  virtual Status reachDevice(int32_t index) = 0;

  virtual uint32_t multiprocessors() const = 0;
  virtual int32_t capability() const = 0;            // compute capability: 90 is 9.0
  virtual uint32_t sharedBytesPerBlock() const = 0;  // shared memory, at most
  // A kernel of an image, which is loaded at its first use and lives as long as the process. Its
  // launches may have up to so many bytes of shared memory beside what it declares.
  virtual Result<const Kernel*> findKernel(std::span<const unsigned char> image, const char* name,
                                           uint32_t sharedBytes) = 0;
  // Blocks of so many threads and bytes that one multiprocessor holds at once, at least 1.
  virtual Result<uint32_t> blocksPerMultiprocessor(const Kernel& kernel, uint32_t threads,
                                                   uint32_t sharedBytes) = 0;
  // Neither allocates nor waits.
  virtual Status launch(const KernelLaunch& launch, void* stream) = 0;
  virtual Status copyOnStream(void* to, const void* from, size_t bytes, void* stream) = 0;

  // Calls function(argument) in stream order on a thread of the driver's: it must not block, and
  // must not call the device.
  virtual Status callHost(void (*function)(void*), void* argument, void* stream) = 0;
  // Of SharedWords, by their addresses on the device: later work of the stream starts once the word
  // holds the value or one up to 2^31 after it; the word becomes the value when earlier work is
  // done.
  virtual Status awaitWord(const void* word, uint32_t value, void* stream) = 0;
  virtual Status writeWord(void* word, uint32_t value, void* stream) = 0;

  // A stream that waits for no other by itself.
  virtual Result<void*> createStream() = 0;
  // The same ahead of others, for short work that the host waits for: it does not stand in a queue
  // of the hardware behind streams of ordinary priority that wait for the host.
  virtual Result<void*> createUrgentStream() = 0;
  virtual void destroyStream(void* stream) = 0;

  // Of the stream that a handle stands for now: never given again in this process, where handles
  // are, and one of them stands for each thread's own.
  virtual Result<uint64_t> streamId(void* stream) = 0;

  virtual Result<Event*> createEvent() = 0;
  virtual void destroyEvent(Event* event) = 0;
  virtual Status record(Event* event, void* stream) = 0;
  virtual Status wait(void* stream, Event* event) = 0;
  virtual Result<bool> isDone(Event* event) = 0;
  virtual Result<Capture> captureOf(void* stream) = 0;

  // REQUIRES, of these three: the stream is being captured.
  // What is put on the stream next waits, each time the graph runs, for what the event was recorded
  // behind last, by a stream or a graph; for nothing where it never was.
  virtual Status waitInGraph(void* stream, Event* event) = 0;
  // The graph records the event, each time it runs, behind what is on the stream now. `place` is
  // the capture's: a later call moves the record.
  virtual Status recordInGraph(Event* event, void* stream, RecordInGraph& place) = 0;
  // The graph shares the object until it and all that was made of it are gone, and no launch of
  // theirs runs. It may go on any thread, and must not call the device then.
  virtual Status shareWithGraph(void* stream, std::shared_ptr<const void> object) = 0;

  // What a graph of the user's may still use stays until `users`, which the graphs share, are gone.
  // Then it goes with the next call that frees or makes memory that the host can reach: at once,
  // the driver could wait for what runs, amid any call of the user's.
  virtual void keepFor(std::weak_ptr<const void> users, std::shared_ptr<const void> object) = 0;
  // As long as this object.
  virtual void keepForGood(std::shared_ptr<const void> object) = 0;

  virtual ~Accelerator() = default;
};

}  // namespace tutti::device
