// GpuProfile: what a GPU rank's launcher tells its communicator's profiler: groups and calls when
// they are made, and their runs when the GPU has been there.
//
// Stamps (gpu_stamps.h) lie before and after each launch on its stream. Calls that share a launch
// share its times. Calls that become part of a graph have no run: of replays nobody would read the
// stamps in time.
//
// Plug-ins may take long, and must keep nobody from finding out that a rank is dead. So none is
// called under a launcher's mutex or on the watcher's thread: who launches tells of what begins,
// and a thread for that (Parts::teller) of what the GPU has done.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "device/accelerator.h"
#include "launch/call.h"
#include "launch/gpu_batch.h"
#include "launch/gpu_chooser.h"
#include "launch/gpu_stamps.h"
#include "launch/gpu_watcher.h"
#include "observe/profiler.h"

namespace tutti::launch {

class GpuProfile final : public GpuWatcher::Watched {
 public:
  // Of tell(), that may be under way; what comes then is not told of (ProfilerSink::drop).
  static constexpr uint64_t kMostLaunches = 1024;
  // Of looks at what is under way: a plug-in hears of an end so soon.
  static constexpr Nanoseconds kLookInterval = std::chrono::milliseconds(1);

  struct Parts {
    observe::Profiler& profiler;
    device::Accelerator& accelerator;
    GpuWatcher& teller;
    Clock& clock;
    GpuLimits limits;
    int32_t rank = 0;
    Nanoseconds timeout{};  // TUTTI_TIMEOUT_MS
  };
  // REQUIRES: nothing on the GPU waits for this rank.
  static Result<std::unique_ptr<GpuProfile>> open(const Parts& parts);
  // Ends what is open. REQUIRES: nobody launches.
  ~GpuProfile();
  GpuProfile(const GpuProfile&) = delete;
  GpuProfile& operator=(const GpuProfile&) = delete;

  const device::Kernel& kernel() const { return stamps_->kernel(); }

  struct Group {
    std::span<const StreamCall> calls;
    bool isUsers = false;  // between the program's ncclGroupStart and ncclGroupEnd
  };
  // Tells of the calls and has them launched. Any thread; serialised.
  Status tell(const Group& group, const std::function<Status()>& launch);
  // Around each launch, by what tell() calls.
  Status begin(const GpuBatch& batch, void* stream);
  Status end(void* stream);

  // Nothing is launched from here on, and what the GPU does not end soon is ended. Any thread.
  void giveUp() { isOver_.store(true, std::memory_order_relaxed); }

  Nanoseconds look() override;

 private:
  struct ToldCall {
    observe::EventTag call;
    observe::EventTag run;
    int32_t round = kCollective;  // of sends and receives
    int32_t span = kNone;         // of the launch's
    bool isOpen = false;
    bool isRunning = false;
  };
  static constexpr int32_t kCollective = -1, kNoElements = -2, kNone = -1;
  // Stamps, by number.
  struct Span {
    uint64_t begin = 0;
    uint64_t end = 0;  // 0: none, since the launch has failed
  };
  // What one tell() has launched.
  struct Launch {
    observe::EventTag group;
    Instant begun{};     // the last of its calls
    Instant launched{};  // the host is through
    std::vector<ToldCall> calls;
    std::vector<Span> spans;
    size_t nextCollective = 0;  // of the calls, for the next launch
    uint64_t lastStamp = 0;

    // By who reads.
    size_t at = 0;           // in the spans
    bool isRunning = false;  // the GPU has come to the begin of that one
    uint64_t runTimer = 0;   // when, by its timer
    Instant ran{};           // by the host's clock, of the begin or of the last end
  };

  explicit GpuProfile(const Parts& parts)
      : parts_(parts), chooser_(parts.limits), launches_(kMostLaunches) {}
  bool isOpen() const { return retired_.load() != published_.load(); }
  Launch* takeLaunch(bool isCaptured);
  void beginEvents(Launch& launch, const Group& group, bool isCaptured);
  observe::CallNote noteOf(const StreamCall& item, bool isCaptured);
  std::string_view algorithmOf(const Call& call);
  void drop(size_t calls);
  void readAll();
  bool readOn(Launch& launch);
  void endRun(ToldCall& call, Instant now);
  void finish(Launch& launch, Instant now);
  void finishAll();

  const Parts parts_;
  std::unique_ptr<GpuStamps> stamps_;

  std::mutex launchMutex_;  // guards the fields down to the blank line; before any other
  GpuChooser chooser_;
  uint64_t sequence_ = 0;      // of collectives, as the recorder has it
  Launch* current_ = nullptr;  // what tell() launches; null: it goes into a graph, or is not told
                               // of
  Launch captured_;
  bool hasWarned_ = false;

  // A ring: who launches publishes, who reads retires.
  std::vector<Launch> launches_;
  std::atomic<uint64_t> published_{0};
  std::atomic<uint64_t> retired_{0};

  std::mutex readMutex_;  // serialises who reads. Sinks are told under it.
  Instant overSince_{};
  std::atomic<bool> isOver_{false};  // orders nothing
};

}  // namespace tutti::launch
