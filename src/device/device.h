// Device: where a rank's buffers live and its work runs. Host and CUDA are equals; upper layers ask
// caps(), never the type.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "device/task.h"

namespace tutti::device {

class Accelerator;
class HostStreams;
class SharedMemory;

// An ordered queue of work on one device. Borrowed: the device owns it until the user destroys it.
class Stream {
 protected:
  ~Stream() = default;
};

// Thread-safe. Lives as long as the process.
class Device {
 public:
  struct Caps {
    std::string_view name;    // "host", "cuda", "virtual"
    bool isHost = true;       // executors are host tasks, buffers host memory
    bool isVirtual = false;   // of a described cluster: calls are timed in place of being run
    int32_t index = 0;        // CUDA device number; 0 for the host; of a virtual one its rank
                              // in the described cluster
    int32_t concurrency = 1;  // ranks that can run at the same time (CPUs this process may use)
  };

  virtual const Caps& caps() const = 0;
  // The NUMA node that the calling thread is bound to; -1: none, or not known.
  virtual int32_t cpuNode() const { return -1; }

  // Memory fit for every transport of this device, aligned to a page. bytes > 0.
  virtual Result<void*> allocate(size_t bytes) = 0;
  virtual Status free(void* memory) = 0;  // kInvalidArgument if it is not from allocate()
  // Those of its allocations that other processes can map; nullptr where none can.
  virtual SharedMemory* sharedMemory() { return nullptr; }

  // Turns the stream argument of an API call into a stream. Null (and CUDA's legacy and per-thread
  // constants, on the host) means: run to completion in the calling thread; the result is then
  // nullptr. kInvalidArgument for anything unknown.
  virtual Result<Stream*> resolve(void* handle) = 0;

  // Runs the tasks concurrently with each other, after everything enqueued on the stream before.
  // With a null stream it returns when all are done; otherwise at once. Allocates nothing. Each
  // task is completed exactly once, with its own status.
  virtual Status enqueue(Stream* stream, std::span<Task* const> tasks) = 0;

  // How often work for the calling thread may look for what it waits for before it is enqueued,
  // since a wait of a few µs needs no device. 0: all of it is to be enqueued.
  virtual uint32_t looksBeforeEnqueue() const = 0;

  // A communicator tells how many ranks run on this host, and that it is gone. The largest number
  // in force decides how long a waiting rank keeps its CPU before others get a chance.
  virtual void joinRanks(int32_t ranksOnHost) = 0;
  virtual void leaveRanks(int32_t ranksOnHost) = 0;

  // Streams and events of this device, owned by it; nullptr where the user makes them elsewhere
  // (CUDA).
  virtual HostStreams* hostStreams() = 0;

  // What runs kernels here; nullptr where tasks run on the host.
  virtual Accelerator* accelerator() = 0;

  virtual ~Device() = default;
};

}  // namespace tutti::device
