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

// Of the slots in pinned memory, then of those in the GPU's.
inline constexpr size_t kStagingWords = 2 * kStagingSlots;

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
    std::array<Line, kStagingWords> graphs;
  };

  static Result<std::unique_ptr<StagingBridge>> open(Launcher& launcher, device::Device& host,
                                                     device::Accelerator& accelerator);
  // REQUIRES: no round is under way on a device that still works.
  ~StagingBridge();
  StagingBridge(const StagingBridge&) = delete;
  StagingBridge& operator=(const StagingBridge&) = delete;

  // Where the device finds them.
  Words& deviceWords() const { return *static_cast<Words*>(words_->deviceAddress()); }

  // The number of the next round outside of graphs.
  uint32_t nextRound() { return ++lastRound_; }
  // Such a round is on its stream: calls carryOut once `blocks` words tell that it has begun.
  // Rounds come in the order of the stream. Where it cannot, the round ends at once.
  Status follow(const StagingRound& round, uint32_t number, uint32_t blocks);

  // The host function of a round in a graph, and its argument, which stays as long as the bridge,
  // since nobody tells when a graph is gone.
  struct Ticket;
  Ticket* keep(const StagingRound& round);
  static void begin(void* ticket);

  // From here on rounds end at once: the launcher is gone.
  void close();

 private:
  StagingBridge(Launcher& launcher, device::Device& host) : host_(host), launcher_(&launcher) {}
  Words& words() const { return *static_cast<Words*>(words_->hostAddress()); }
  Ticket* take(const StagingRound& round);
  void giveBack(Ticket* ticket);
  static void carry(void* ticket);
  void await(const Ticket& ticket) const;
  bool hasBegun(const Ticket& ticket) const;
  void carryOut(const Ticket& ticket);
  Status run(Launcher& launcher, const Ticket& ticket);
  void end(const Ticket& ticket);

  device::Device& host_;
  std::unique_ptr<device::SharedWords> words_;
  // Of the host: rounds that are followed, and those of graphs, each in the stream's order. Only one
  // of the two has a round that has begun.
  void* followed_ = nullptr;
  void* begun_ = nullptr;
  uint32_t lastRound_ = 0;
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
  uint32_t blocks = 0;
};

}  // namespace tutti::launch
