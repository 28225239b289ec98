// The device of CPU ranks: host memory, host streams, and the calling thread where there is no
// stream.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/handle_table.h"
#include "device/device.h"
#include "device/host/cpu_nodes.h"
#include "device/host/host_event.h"
#include "device/host/host_stream.h"
#include "device/host/shared_allocations.h"
#include "device/host/waiter.h"
#include "device/host_streams.h"

namespace tutti::device::host {

class HostDevice final : public Device, public HostStreams {
 public:
  // Destruction waits for the work of streams that were not destroyed, then unmaps what was not
  // freed.
  explicit HostDevice(Clock& clock);

  const Caps& caps() const override { return caps_; }
  int32_t cpuNode() const override { return cpuNodes_.nodeOfThread(); }
  Result<void*> allocate(size_t bytes) override { return allocations_.allocate(bytes); }
  Status free(void* memory) override { return allocations_.free(memory); }
  SharedMemory* sharedMemory() override { return &allocations_; }
  Result<Stream*> resolve(void* handle) override;
  Status enqueue(Stream* stream, std::span<Task* const> tasks) override;
  uint32_t looksBeforeEnqueue() const override;
  void joinRanks(int32_t ranksOnHost) override;
  void leaveRanks(int32_t ranksOnHost) override;
  HostStreams* hostStreams() override { return this; }
  Accelerator* accelerator() override { return nullptr; }
  const Waiting& waiting() const { return waiting_; }

  Result<void*> createStream() override;
  Status destroyStream(void* stream) override;
  Status synchronizeStream(void* stream) override;
  Result<bool> isStreamDone(void* stream) override;
  Status launchHostFunction(void* stream, void (*function)(void*), void* argument) override;
  Result<void*> createEvent() override;
  Status destroyEvent(void* event) override;
  Status recordEvent(void* event, void* stream) override;
  Status waitEvent(void* stream, void* event) override;
  Status synchronizeEvent(void* event) override;
  Result<bool> isEventDone(void* event) override;
  Result<float> elapsedMilliseconds(void* start, void* end) override;

 private:
  // The stream, or null for the calling thread. Whoever holds it keeps it alive beside the table.
  Result<std::shared_ptr<HostStream>> findStream(void* handle);
  Result<std::shared_ptr<HostEvent>> findEvent(void* handle);
  Result<std::shared_ptr<Moment>> findMoment(void* event);
  void updatePolicy();

  Caps caps_;
  const CpuNodes cpuNodes_;
  Waiting waiting_;

  SharedAllocations allocations_{cpuNodes_};

  std::mutex mutex_;                       // guards the one below
  std::map<int32_t, int32_t> rankCounts_;  // ranks on this host -> communicators that said so

  HandleTable<HostStream> streams_;  // last: their threads use the rest
  HandleTable<HostEvent> events_;
};

}  // namespace tutti::device::host
