// StagingBridge: carries rounds of staged calls (staging.h) from a GPU's stream to the host's
// executor and back.
//
// A round begins once the device has copied in: it tells by a word in pinned memory that a thread
// of ours looks at, or, as part of a graph, whose replays nobody announces, by a host function of
// the driver's. It ends by a word that the device looks at, whatever became of the calls: the
// stream waits for it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "device/accelerator.h"
#include "device/device.h"
#include "launch/launcher.h"
#include "launch/staging.h"
#include "wire/gpu_staging.h"

namespace tutti::launch {

// Slots by number: in pinned memory, in the GPU's, and for rounds that one kernel does, which the
// host may be behind with.
inline constexpr size_t kFirstGpuSlot = kStagingSlots;
inline constexpr size_t kFirstShortSlot = 2 * kStagingSlots;
inline constexpr size_t kShortSlots = 8;
inline constexpr size_t kAllSlots = kFirstShortSlot + kShortSlots;

// Outlives its launcher where graphs hold its rounds.
class StagingBridge {
 public:
  // Words that device and host share.
  struct Words {
    wire::GpuStagingWords rounds;
    // A round of a graph, by its slot: 0; 1 once its calls have ended, until the device, which goes
    // on then, sets it back. A stream has one round in a slot at a time, and communicators do not
    // share slots, so it never holds more.
    struct alignas(64) Line {
      std::atomic<uint32_t> ended{0};
    };
    std::array<Line, kFirstShortSlot> graphs;
  };

  static Result<std::unique_ptr<StagingBridge>> open(Launcher& launcher, device::Device& host,
                                                     device::Accelerator& accelerator);
  // REQUIRES: no round is under way on a device that still works.
  ~StagingBridge();
  StagingBridge(const StagingBridge&) = delete;
  StagingBridge& operator=(const StagingBridge&) = delete;

  // Where the device finds them.
  Words& deviceWords() const { return *static_cast<Words*>(words_->deviceAddress()); }

  // The number of the next round outside of graphs; never 0.
  uint32_t nextRound();
  // When the host may carry a round out: once the words of so many of its blocks have come to
  // `number`, which is its own, or, where it brings nothing, that of an earlier one.
  struct Beginning {
    uint32_t number = 0;
    uint32_t blocks = 1;  // 0: at once
  };
  // Such a round is on its stream. Rounds come in the order of the stream. Where none can be
  // followed any more, the round ends at once.
  Status follow(const StagingRound& round, uint32_t number, const Beginning& beginning);
  // All that were followed have ended.
  bool isIdle() const { return following_.load(std::memory_order_acquire) == 0; }

  // The host function of a round in a graph, and its argument, which stays as long as the bridge:
  // the graph may run again.
  struct Ticket;
  Ticket* take(const StagingRound& round);
  static void begin(void* ticket);

  // From here on rounds end at once: the launcher is gone.
  void close();

 private:
  StagingBridge(Launcher& launcher, device::Device& host) : host_(host), launcher_(&launcher) {}
  Words& words() const { return *static_cast<Words*>(words_->hostAddress()); }
  Status tryFollow(const StagingRound& round, uint32_t number, const Beginning& beginning);
  void giveBack(Ticket* ticket);
  static void carry(void* ticket);
  static void carryBegun(void* ticket);
  template <typename Condition>
  void await(const Condition& isMet) const;
  bool hasBegun(const Ticket& ticket) const;
  void carryOut(const Ticket& ticket);
  Status run(Launcher& launcher, const Ticket& ticket);
  void end(const Ticket& ticket);
  void endRound(uint32_t number);

  device::Device& host_;
  std::unique_ptr<device::SharedWords> words_;
  // Of the host: rounds that are followed, and those of graphs, each in the stream's order. Only
  // one of the two has a round that has begun.
  void* followed_ = nullptr;
  void* begun_ = nullptr;
  uint32_t lastRound_ = 0;
  std::atomic<uint32_t> following_{0};
  std::atomic<Launcher*> launcher_;  // null once closed
  std::mutex mutex_;                 // guards the two below
  std::vector<std::unique_ptr<Ticket>> tickets_;
  std::vector<Ticket*> free_;
};

struct StagingBridge::Ticket {
  StagingBridge* bridge = nullptr;
  std::vector<Call> calls;
  size_t slot = 0;
  uint32_t number = 0;  // 0: of a graph; may come again
  Beginning beginning;
  uint32_t behind = 0;  // of a graph that has begun: the last round ahead of it on the stream
};

}  // namespace tutti::launch
