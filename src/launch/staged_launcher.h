// StagedLauncher: calls of GPU ranks that cannot write into each other's memory, or are on several
// hosts, run on the host: copied to pinned memory, executed by the Launcher of CPU ranks over
// whatever links there are, copied back. All of it in the order of the user's stream; nobody waits
// here.
//
// A round of staging.h goes onto the stream as: copies in, a host function that hands the calls to
// the host's executor, a wait for the slot's word, copies out. So a captured round works in a
// graph, each time it is replayed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "device/accelerator.h"
#include "device/device.h"
#include "launch/launcher.h"
#include "launch/runner.h"
#include "launch/staging.h"
#include "launch/stream_order.h"

namespace tutti::launch {

// The half that host functions use, on threads of the driver's. It outlives the launcher where
// graphs hold its rounds.
class StagingBridge {
 public:
  // One slot's word: 0; 1 once the calls of its round have ended, stored with release by whoever
  // ran them, polled by the device, which sets it back before it lets the stream go on. A stream
  // has one round in a slot at a time, and communicators do not share slots, so it never holds
  // more.
  using Word = std::atomic<uint32_t>;

  // Of the slots in pinned memory, then of those in the GPU's.
  using Words = std::array<Word*, 2 * kStagingSlots>;

  struct Ticket {
    StagingBridge* bridge = nullptr;
    size_t slot = 0;
    bool isKept = false;  // of a graph: may come again
    std::vector<Call> calls;
  };

  // `words` has a word for each slot, a cache line apart.
  static Result<std::unique_ptr<StagingBridge>> open(Launcher& launcher, device::Device& host,
                                                     const Words& words);
  // REQUIRES: no round is under way.
  ~StagingBridge();
  StagingBridge(const StagingBridge&) = delete;
  StagingBridge& operator=(const StagingBridge&) = delete;

  // A ticket for begin(); goes back when it was used. One that is kept stays as long as the bridge,
  // since nobody tells when a graph is gone.
  Ticket* take(const StagingRound& round, bool isKept);
  // The host function; the argument is a ticket.
  static void begin(void* ticket);
  // From here on rounds end at once: the launcher is gone.
  void close();

 private:
  StagingBridge(Launcher& launcher, device::Device& host, const Words& words)
      : host_(host), words_(words), launcher_(&launcher) {}
  Status start(const Ticket& ticket);
  void raise(size_t slot) { words_[slot]->store(1, std::memory_order_release); }

  device::Device& host_;
  const Words words_;
  void* stream_ = nullptr;  // of the host
  std::mutex mutex_;        // guards the three below
  Launcher* launcher_;      // null once closed
  std::vector<std::unique_ptr<Ticket>> tickets_;
  std::vector<Ticket*> free_;
};

class StagedLauncher final : public StreamRunner {
 public:
  struct Parts {
    device::Accelerator& accelerator;
    device::Device& host;  // with streams
    Launcher& launcher;    // of this rank's calls on the host; outlives this
    Rank rank{0};
    int32_t rankCount = 1;
    size_t slotBytes = 0;         // equal on all ranks
    bool checksPointers = false;  // NCCL_CHECK_POINTERS
    // From so many bytes of a block on calls go through slots in the GPU's memory instead; equal on
    // all ranks, as is the next. kNever: none does.
    uint64_t gpuFromBytes = kNever;
    bool foldsOnGpu = false;  // also those that fold
  };
  static constexpr uint64_t kNever = UINT64_MAX;
  static Result<std::unique_ptr<StagedLauncher>> open(const Parts& parts);
  // REQUIRES: idle.
  ~StagedLauncher() override;

  Status launch(std::span<const StreamCall> calls) override;

  bool isIdle() override;
  bool isSettled() override { return true; }
  bool waitIdle(Nanoseconds bound, Clock& clock) override;
  Status failure() const override { return parts_.launcher.failure(); }
  bool hasFailed() const override { return parts_.launcher.hasFailed(); }
  Status verdict() const override { return parts_.launcher.verdict(); }
  Status compareCalls() override { return parts_.launcher.compareCalls(); }
  void fail(const Status& status) override { parts_.launcher.fail(status); }
  void retire(observe::Life how) override { parts_.launcher.retire(how); }

 private:
  // Where the device finds a slot's word.
  struct alignas(64) Line {
    StagingBridge::Word done;
  };

  explicit StagedLauncher(const Parts& parts) : parts_(parts), order_(parts.accelerator) {}
  Status initialise();
  Status makeGpuSlots(StagingCutter::Layout layout);
  bool goesThroughGpu(const Call& call) const;
  Status put(std::span<const StreamCall> calls, void* stream, bool isCaptured);
  Status beginRound(const StagingRound& round, void* stream, bool isCaptured);
  Status endRound(void* stream);
  Status copyAll(const std::vector<StagingCopy>& copies, void* stream);

  const Parts parts_;
  std::unique_ptr<device::SharedWords> lines_;       // a Line a slot
  std::unique_ptr<device::SharedWords> memory_;      // the slots
  std::unique_ptr<device::DeviceMemory> gpuMemory_;  // those on the GPU
  std::unique_ptr<StagingBridge> bridge_;

  std::mutex mutex_;  // guards the fields below
  StreamOrder order_;
  std::unique_ptr<StagingCutter> cutter_, gpuCutter_;  // the latter where there are such slots
  std::vector<StreamCall> pinnedCalls_, gpuCalls_;     // of the group at hand
  bool isBusy_ = false;     // something outside of captures may still run
  bool hasStrays_ = false;  // on a stream, and nothing tells when they end
  // The round whose end is not on the stream yet.
  bool hasOpen_ = false;
  size_t openSlot_ = 0;
  std::vector<StagingCopy> openCopies_;
};

}  // namespace tutti::launch
