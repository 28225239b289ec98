// A lane as its user has it: nothing waits for the library, which a lane's own calls may.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "net/fabric.h"
#include "net/lane_thread.h"

namespace tutti::net {

// One thread at a time; nothing blocks, but for awaitClosed().
class HeldLane {
 public:
  using Memory = MemoryName;
  // What must stay while the library may touch it.
  using Keeper = std::shared_ptr<const void>;

  // Tells the lane of it. Bytes there may be posted at once; where the lane refuses them, posting
  // is an error then.
  virtual Memory enroll(std::span<std::byte> memory) = 0;
  // `region.obstacles` is not looked at.
  virtual Memory enrollGpu(const GpuRegion& region) = 0;
  // kDone: the lane knows it; kIdle: not yet. An error: it refuses it.
  virtual Result<Progress> isKnown(Memory memory) = 0;
  // REQUIRES: no request in it is under way, unless after stop(). `keeper` goes once the lane has
  // forgotten it.
  virtual void release(Memory memory, Keeper keeper) = 0;

  // As Lane's.
  virtual Result<Request> post(std::span<std::byte> bytes, Memory memory) = 0;
  virtual Result<Request> flush(std::span<std::byte> bytes, Memory memory) = 0;
  virtual Result<std::optional<size_t>> test(Request request) = 0;
  // How often the lane has been looked at, where anything was asked.
  virtual uint64_t rounds() const = 0;

  // Before the lane closes: nothing more is posted, nor asked for.
  virtual void stop() = 0;
  // The lane closes. Of several all are begun before the first is awaited.
  virtual void beginClosing(Keeper keeper) = 0;
  // True: from now on no memory is touched. False: the library is still at something, which goes on
  // by itself; keepers stay until it is through. After beginClosing().
  virtual bool awaitClosed() = 0;
  bool close(Keeper keeper) {
    stop();
    beginClosing(std::move(keeper));
    return awaitClosed();
  }

  virtual ~HeldLane() = default;
};

// `thread` makes the lane's calls (net/queued_lane.h); null: they return at once, and are made here
// and now. A queue there, too, looks for later messages behind one that has come, each by a system
// call: short all-reduces over libfabric took 1.22 to 1.25 times as long (2026-11-30).
std::unique_ptr<HeldLane> holdLane(std::unique_ptr<Lane> lane, std::shared_ptr<LaneThread> thread);

}  // namespace tutti::net
