// StagedLauncher: calls of GPU ranks that cannot write into each other's memory, or are on several
// hosts, run on the host: copied to pinned memory, executed by the Launcher of CPU ranks over
// whatever links there are, copied back. All of it in the order of the user's stream; nobody waits
// here.
//
// A round of staging.h goes onto the stream as copies in, a word that tells the host of it, a wait
// for the word by which the host tells that its calls have ended (staging_bridge.h), and copies
// out; a short one as one kernel that does all of this. In a graph a host function tells, each time
// it is replayed.
#pragma once

#include <array>
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
#include "launch/staging_bridge.h"
#include "launch/stream_order.h"

namespace tutti::launch {

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
    bool mixesGraphs = true;  // StreamOrder's
    // No other rank uses this GPU, so a kernel of ours may wait there for a peer.
    bool ownsGpu = false;
  };
  static constexpr uint64_t kNever = UINT64_MAX;
  static Result<std::unique_ptr<StagedLauncher>> open(const Parts& parts);
  // REQUIRES: idle.
  ~StagedLauncher() override;

  Status launch(std::span<const StreamCall> calls, bool isUsersGroup) override;

  bool isIdle() override;
  bool isSettled() override { return true; }
  bool waitIdle(Nanoseconds bound, Clock& clock) override;
  Status failure() const override { return parts_.launcher.failure(); }
  bool hasFailed() const override { return parts_.launcher.hasFailed(); }
  Status verdict() const override { return parts_.launcher.verdict(); }
  std::string lastCall() const override { return parts_.launcher.lastCall(); }
  Status compareCalls() override { return parts_.launcher.compareCalls(); }
  void fail(const Status& status) override { parts_.launcher.fail(status); }
  void retire(observe::Life how) override { parts_.launcher.retire(how); }
  bool isDead(int32_t rank) const override { return parts_.launcher.isDead(rank); }

 private:
  explicit StagedLauncher(const Parts& parts)
      : parts_(parts), order_(parts.accelerator, parts.mixesGraphs) {}
  Status initialise();
  Status makeSlots();
  Status makeGpuSlots(StagingCutter::Layout layout);
  enum class Kind : uint8_t { kShort, kLong, kOnGpu };
  static constexpr size_t kKinds = 3;
  Kind kindOf(const Call& call) const;
  bool goesThroughGpu(const Call& call) const;
  StagingCutter& cutterOf(Kind kind, bool isCaptured) const;
  Status put(std::span<const StreamCall> calls, void* stream, bool isCaptured);
  Status putRound(const StagingRound& round, void* stream, bool isCaptured);
  bool goesByKernel(const StagingRound& round) const;
  Status putKernel(const StagingRound& round, void* stream);
  // What had it before; of rounds outside of graphs.
  struct Slot {
    uint32_t lastRound = 0;    // 0: none
    bool mayBeBehind = false;  // the stream does not wait for it
  };
  StagingBridge::Beginning beginningOf(const StagingRound& round, uint32_t number, uint32_t blocks,
                                       const Slot& before) const;
  Status beginInGraph(const StagingRound& round, void* stream);
  Status begin(const StagingRound& round, void* stream);
  Status endRound(void* stream);
  Status copyAll(const std::vector<StagingCopy>& copies, void* stream);

  const Parts parts_;
  const device::Kernel* kernel_ = nullptr;            // kStageKernel; null: not to be used
  std::unique_ptr<device::SharedWords> memory_;       // the slots
  std::unique_ptr<device::SharedWords> shortMemory_;  // those of short calls
  std::unique_ptr<device::DeviceMemory> gpuMemory_;   // those on the GPU
  std::unique_ptr<StagingBridge> bridge_;

  std::mutex mutex_;  // guards the fields below
  StreamOrder order_;
  std::unique_ptr<StagingCutter> cutter_, shortCutter_;
  std::unique_ptr<StagingCutter> gpuCutter_;           // where there are such slots
  std::array<std::vector<StreamCall>, kKinds> kinds_;  // of the group at hand
  std::array<Slot, kAllSlots> slots_{};
  bool isBusy_ = false;     // something outside of captures may still run
  bool hasStrays_ = false;  // on a stream, and nothing tells when they end
  // The round whose end is not on the stream yet.
  struct Open {
    void* ended = nullptr;  // the word of the device's that holds `value` once it has; null: none
    uint32_t value = 0;
    bool isInGraph = false;  // the word is set back
    std::vector<StagingCopy> after;
  } open_;
};

}  // namespace tutti::launch
