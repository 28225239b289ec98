// A lane as its user has it where a thread of the network's makes its calls (net/lane_thread.h):
// what is asked for is done soon, and nothing waits for the library.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "net/fabric.h"
#include "net/lane_thread.h"

namespace tutti::net {

// One thread at a time; nothing blocks, but for close().
class HeldLane {
 public:
  using Memory = MemoryName;
  // What must stay while the library may touch it.
  using Keeper = std::shared_ptr<const void>;

  // `thread` null: the calls are made here and now.
  HeldLane(std::unique_ptr<Lane> lane, std::shared_ptr<LaneThread> thread);
  ~HeldLane() { close({}); }
  HeldLane(const HeldLane&) = delete;
  HeldLane& operator=(const HeldLane&) = delete;

  // Tells the lane of it. Bytes there may be posted at once; where the lane refuses them, posting
  // is an error then.
  Memory enroll(std::span<std::byte> memory);
  // `region.obstacles` is not looked at.
  Memory enrollGpu(const GpuRegion& region);
  // kDone: the lane knows it; kIdle: not yet. An error: it refuses it.
  Result<Progress> isKnown(Memory memory);
  // REQUIRES: no request in it is under way, unless after stop(). `keeper` goes once the lane has
  // forgotten it.
  void release(Memory memory, Keeper keeper);

  // As Lane's; requests end in the order in which they were posted.
  Result<Request> post(std::span<std::byte> bytes, Memory memory) {
    return begin(bytes, memory, false);
  }
  Result<Request> flush(std::span<std::byte> bytes, Memory memory) {
    return begin(bytes, memory, true);
  }
  Result<std::optional<size_t>> test(Request request);
  // How often the lane has been looked at, where anything was asked.
  uint64_t rounds() const;

  // Before the lane closes: nothing more is posted, nor asked for.
  void stop();
  // The lane closes. Of several all are begun before the first is awaited.
  void beginClosing(Keeper keeper);
  // True: from now on no memory is touched. False: the library is still at something, which goes on
  // by itself; keepers stay until it is through. After beginClosing().
  bool awaitClosed();
  bool close(Keeper keeper) {
    stop();
    beginClosing(std::move(keeper));
    return awaitClosed();
  }

 private:
  class Work;
  struct KnownMemory;
  struct Slot;

  Result<Request> begin(std::span<std::byte> bytes, Memory memory, bool isFlush);
  void announce();
  Status ask();

  const std::shared_ptr<LaneThread> thread_;  // shared with the provider and other lanes
  const std::shared_ptr<Work> work_;          // shared with the thread
  uint64_t posted_ = 0;
  uint32_t idleCount_ = 0;
  bool isClosing_ = false;
};

}  // namespace tutti::net
