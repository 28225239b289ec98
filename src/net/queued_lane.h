// A lane whose calls a thread of the network's makes (net/lane_thread.h): what is asked for is done
// soon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "net/held_lane.h"
#include "net/lane_thread.h"

namespace tutti::net {

// Requests end in the order in which they were posted.
class QueuedLane final : public HeldLane {
 public:
  QueuedLane(std::unique_ptr<Lane> lane, std::shared_ptr<LaneThread> thread);
  ~QueuedLane() override { close({}); }
  QueuedLane(const QueuedLane&) = delete;
  QueuedLane& operator=(const QueuedLane&) = delete;

  Memory enroll(std::span<std::byte> memory) override;
  Memory enrollGpu(const GpuRegion& region) override;
  Result<Progress> isKnown(Memory memory) override;
  void release(Memory memory, Keeper keeper) override;
  Result<Request> post(std::span<std::byte> bytes, Memory memory) override {
    return begin(bytes, memory, false);
  }
  Result<Request> flush(std::span<std::byte> bytes, Memory memory) override {
    return begin(bytes, memory, true);
  }
  Result<std::optional<size_t>> test(Request request) override;
  uint64_t rounds() const override;
  void stop() override;
  void beginClosing(Keeper keeper) override;
  bool awaitClosed() override;

 private:
  class Work;
  struct KnownMemory;
  struct Slot;

  Result<Request> begin(std::span<std::byte> bytes, Memory memory, bool isFlush);
  Status ask();

  const std::shared_ptr<LaneThread> thread_;  // shared with the provider and other lanes
  const std::shared_ptr<Work> work_;          // shared with the thread
  uint64_t posted_ = 0;
  uint32_t idleCount_ = 0;
  bool isClosing_ = false;
};

}  // namespace tutti::net
