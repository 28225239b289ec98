// Communicator: one rank's membership in a group of ranks. Its life is told in src/README.md; how
// it begins, in init.cc; how it grows out of another, in derive.cc.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/peer_info.h"
#include "channel/link_set.h"
#include "channel/peer_segments.h"
#include "comm/gpu_direct.h"
#include "comm/host_member.h"
#include "comm/link_register.h"
#include "comm/peer_level.h"
#include "comm/reduction.h"
#include "comm/registrations.h"
#include "comm/user_ops.h"
#include "device/device.h"
#include "graph/merge.h"
#include "launch/gpu_batch.h"
#include "launch/launcher.h"
#include "launch/virtual_launcher.h"
#include "net/network_wish.h"
#include "plan/plan.h"

namespace tutti::launch {
class GpuLauncher;
}

namespace tutti::comm {

class Process;

class Communicator;

// What the caller asked for, defaults filled in.
struct Config {
  bool isBlocking = true;
  std::string name;
  int32_t maxBlocks = wire::kGpuMaxBlocks;  // of a kernel
  int32_t minBlocks = 1;                    // the same, where they have something to do
  bool prefersEngines = false;              // copy engines instead of thread blocks
  bool savesBlocks = false;                 // at some cost of speed
  bool adaptsBlocks = true;                 // saves them while other kernels have the GPU
  std::string algorithms{};                 // in NCCL_ALGO's place; empty: as it says
  bool reducesInNetwork = false;            // where that can be done
  bool mixesGraphs = true;                  // captured calls keep the order with all others
  net::NetworkWish network{};
};

struct RankCpus;

// How a communicator grows out of another: its ranks meet over the parent's bootstrap first.
struct Derivation {
  enum class Kind : uint8_t { kSplit, kShrink };
  Kind kind = Kind::kSplit;
  std::shared_ptr<Communicator> parent{};  // shared with the handle table: it may be destroyed as
                                           // soon as the child is ready, or before its group ends
  uint64_t tag = 0;                        // of the messages of this derivation; low byte free
  int32_t color = 0;                       // split
  int32_t key = 0;                         // split
  std::vector<Rank> remaining{};           // the parent's ranks that take part; split: as far as
                                           // this rank knows
  bool followsFailure = false;             // of the parent's, as its ranks learn it one by one
};

class Communicator {
 public:
  struct Options {
    bootstrap::UniqueId id;                        // these four: not of a derived communicator
    std::vector<bootstrap::UniqueId> places = {};  // Bootstrap::Options::places
    Rank rank{0};
    int32_t rankCount = 1;
    Config config;
    uint64_t idsHash = 0;              // of all ids that were given, where there were several
    device::Device* device = nullptr;  // where it runs; nullptr: the host
    std::optional<Derivation> derivation = std::nullopt;
  };
  Communicator(Process& process, Options options);
  ~Communicator();

  // The whole of start-up: bootstrap, peers, agreement, planner, launcher. Blocks until all ranks
  // have come, or fails. Once.
  Status initialise();
  // The same on a thread of its own; wait with joinInitialise().
  Status startInitialise();
  bool hasStarted() const { return state_.load(std::memory_order_acquire) != State::kNew; }
  Status joinInitialise();
  // Before initialise() of a child made of this one: lets this one's end and state know of it.
  // kInvalidUsage when this one has ended meanwhile.
  Status adopt(const std::shared_ptr<Communicator>& child);

  // kInvalidArgument while it initialises, kInvalidUsage after finalize or revoke; the error when
  // initialisation or an operation failed; else ok.
  Status checkReady() const {
    const bool isReady = state_.load(std::memory_order_acquire) == State::kReady;
    return isReady && !runner_->hasFailed() ? Status() : refuseCall();
  }
  // Whether it is ready, and calls without a stream run in their threads, unquestioned.
  bool runsInCalls() const {
    return state_.load(std::memory_order_acquire) == State::kReady && streamRunner_ == nullptr &&
           ownStream_ == nullptr && !checksBuffers_;
  }
  // The failure of a call. Where the ranks call different things, or wait in a circle, the log
  // tells where the program has called from: of the call itself if its thread comes upon it, else
  // where the program hears of it. REQUIRES: an operation has failed.
  enum class Heard : uint8_t { kNot, kLater, kInItsCall };
  Status failureOfCall(Heard how) const;
  // kInvalidArgument before it has initialised, else ok.
  Status checkInitialised() const { return mayInitialise() ? refuseCall() : Status(); }
  // Whether others can be made of it: ready or revoked; with kMayHaveFailed also after an operation
  // failed.
  enum class Fitness : uint8_t { kSound, kMayHaveFailed };
  Status checkParent(Fitness fitness) const;
  // As ncclCommGetAsyncError: ok, kInProgress or the error.
  Code asyncError();

  // Waits for all operations. Afterwards only destroy, abort and the queries are allowed.
  Status finalize();
  // Ends all operations with an error and waits for their end (a non-blocking one: kInProgress if
  // they have not ended yet). Then only destroy, abort, split and shrink are left.
  Status revoke();
  // Finalizes if need be and lets go of the peers. The handle is gone by now; the object follows
  // with its last user.
  void shutDown();
  // Makes every operation and wait of this communicator end with an error. Any thread, any phase;
  // does not wait.
  void requestAbort();
  // False while operations or the initialisation are still ending.
  bool waitQuiet(Nanoseconds bound);

  // Rank -1 of 0 while a split has not found out.
  Rank rank() const { return rank_.load(std::memory_order_acquire); }
  int32_t rankCount() const { return rankCount_.load(std::memory_order_acquire); }
  // Equal on all its ranks; 0 while a split has not found out.
  uint64_t hash() const { return hash_.load(std::memory_order_relaxed); }
  bool isBlocking() const { return config_.isBlocking; }
  const Config& config() const { return config_; }
  // Of CPU ranks: GPU ranks' launchers do it (NCCL_CHECK_POINTERS).
  bool checksBuffers() const { return checksBuffers_; }
  const std::string& name() const { return config_.name; }
  device::Device& device() const { return device_; }
  UserOps& userOps() { return userOps_; }
  // The handle of a registration, which GPU ranks' kernels gain from where peers can map the
  // memory.
  Result<void*> addBuffer(const void* buffer, size_t bytes);
  // A window's handle; null, logged, for memory that peers of this rank cannot use in place, where
  // a window would promise what it does not hold.
  // `isSymmetric`: of all ranks, each of which uses it at the same place in the same calls.
  Result<void*> addWindow(const void* buffer, size_t bytes, bool isSymmetric);
  Status removeBuffer(Registrations::Kind kind, const void* handle);

  // The tag for the next split, or the next shrink to these ranks: equal on all ranks that have
  // made the same calls.
  uint64_t nextSplitTag();
  uint64_t nextShrinkTag(std::span<const Rank> remaining);

  // What all ranks of a ready communicator agreed on.
  const plan::Agreement& agreement() const { return planner_->agreement(); }
  // The launcher of a ready communicator of CPU ranks.
  launch::Launcher& launcher() { return *launcher_; }
  // In its place on a GPU or a virtual device; nullptr on the host.
  launch::StreamRunner* streamRunner() { return streamRunner_.get(); }
  // Whether GPU kernels carry the bytes.
  bool hasKernels() const {
    return streamRunner_ != nullptr && launcher_ == nullptr && virtualLauncher_ == nullptr;
  }
  // What streamRunner() is of a virtual rank; nullptr of others.
  launch::VirtualLauncher* virtualLauncher() { return virtualLauncher_; }
  // The stream that runs a non-blocking communicator's calls without a stream; nullptr for a
  // blocking one.
  void* ownStream() const { return ownStream_; }

  // For people; any thread. kInvalidArgument while it initialises.
  Result<std::string> describe();

  // The text of the last error of a call on this communicator; thread-safe.
  void setLastError(std::string_view text);
  std::string lastError() const;

 private:
  // kOutside: the split gave this rank no communicator.
  enum class State : uint8_t {
    kNew,
    kInitialising,
    kReady,
    kFailed,
    kRevoked,
    kFinalized,
    kOutside
  };

  Status refuseCall() const;
  Result<void*> addGpuWindow(const void* buffer, size_t bytes, bool isSymmetric);
  Status startInitThread();
  Status runInitialiseSafely();
  Status runInitialise();
  Status checkNotAborted() const;
  Status derive();
  Status meetChild(const std::vector<Rank>& members);
  Status nameTheDead(Status failed) const;
  // How ranks of this one, and this rank among them, can meet.
  bootstrap::Reach reachOf(std::span<const Rank> members) const;
  Status meetPeers();
  Status agree();
  Status agreeOnNetwork(std::span<const ReductionOffer> offers, plan::Agreement& agreement);
  launch::OwnSegment makeOutbox(const plan::Agreement& agreement);
  void settleOnHost(const std::vector<RankCpus>& cpus);
  Result<std::optional<topology::Description>> learnMachine(bool isWanted);
  Status keepPeerLevel(const std::vector<InitRecord>& records,
                       const std::optional<topology::Description>& machine);
  Status show(const std::optional<topology::Description>& machine);
  void showPlan();
  Status joinVirtualWorld();
  Status prepareToRun();
  Status prepareHost(std::unique_ptr<observe::Recorder> recorder);
  // A null result: some rank's memory cannot be mapped by another, as all ranks know.
  Result<std::unique_ptr<channel::PeerSegments>> shareSegments();
  Status prepareGpu(std::unique_ptr<channel::PeerSegments> segments,
                    std::unique_ptr<observe::Recorder> recorder);
  Status prepareStaged(std::unique_ptr<observe::Recorder> recorder);
  Status prepareGpuDirect();
  Result<transport::Transport*> findNetwork(std::optional<Nanoseconds> patience);
  Result<std::vector<net::Adapter>> findAdapters();
  std::string describeGpuDirect() const;
  void openProfiler();
  void openLinks(std::unique_ptr<observe::Recorder> recorder);
  // What this rank's device knows of memory that peers can map; null where they may not.
  device::SharedMemory* sharedMemory();
  void become(State state);
  Status fail(Status status);
  void tellPeersOfFailure();
  bool isInitialising() const;
  std::string_view stateName() const;
  std::string describeGraphs();
  bool mayInitialise() const;  // does, or may yet begin to
  bool waitInitialised(Nanoseconds bound);
  bool hasFormingChild();
  bool leaveChildren(Nanoseconds bound);
  Status outcome();
  void tellCallers(Heard how) const;
  Code note(const Status& status);
  void warnOfDifferentCalls();

  Process& process_;
  device::Device& device_;
  const Config config_;
  const bool checksBuffers_;
  const uint64_t idsHash_;

  // Of a derived communicator written once, when the split has found out; rankCount_ last, with
  // release.
  std::atomic<uint64_t> hash_;
  std::atomic<Rank> rank_;
  std::atomic<int32_t> rankCount_;

  // Written by the initialising thread before state_ becomes kReady, constant afterwards.
  std::optional<Derivation> derivation_;  // while it lasts
  bootstrap::UniqueId id_;
  std::vector<bootstrap::UniqueId> places_;
  std::vector<bootstrap::PeerInfo> peers_;
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;
  std::optional<bootstrap::HandoffToken> boardOffer_;
  graph::MergedGraph graph_;      // over all ranks: in which order they are neighbours
  std::vector<HostMember> host_;  // the ranks of this host
  std::unique_ptr<plan::Planner> planner_;
  std::unique_ptr<observe::Profiler> profiler_;  // null: nobody asked
  channel::LinkSet::NetworkSeat networkSeat_;    // until there are links
  GpuDirectView gpuDirectView_{};  // of GPU ranks of several hosts; the links refer to it
  GpuDirectAgreement gpuDirect_{};
  std::unique_ptr<channel::LinkSet> links_;
  std::optional<LinkRegister::Entry> linksShown_;       // in bundles
  std::unique_ptr<launch::DeviceFolder> folder_;        // with GPUDirect
  std::unique_ptr<launch::Launcher> launcher_;          // on the host, for CPU ranks or staged ones
  std::unique_ptr<launch::StreamRunner> streamRunner_;  // of GPU ranks and virtual ones
  launch::VirtualLauncher* virtualLauncher_ = nullptr;  // the same of a virtual rank
  launch::GpuLauncher* gpuLauncher_ = nullptr;          // the same where kernels carry the bytes
  launch::Runner* runner_ = nullptr;                    // the one that calls go to
  bool ownsGpu_ = false;                                // no other rank is on it
  launch::GpuBatcher::Limits gpuLimits_{};
  std::string noPeersReason_;  // why GPU ranks go through host memory; empty: they need not
  std::shared_ptr<const GpuDistances> distances_;  // shared with children; null: nobody asked
  std::vector<int32_t> farPeers_;                  // GpuSlots'
  size_t stagingBytes_ = 0;                        // of a slot, if they do
  void* ownStream_ = nullptr;
  int32_t ranksOnHost_ = 0;
  int32_t homeCpu_ = HomeCpu::kNone;
  int32_t helpers_ = 0;             // of long calls
  std::vector<uint8_t> sharesCpu_;  // launch::Launcher::Parts
  int32_t ranksOnCpus_ = 0;         // of those, as many as share this process's CPUs

  // Written with release by the thread that causes the change, read with acquire by any other: what
  // a state promises (a built launcher, a recorded failure) was written before. Moves forward only.
  std::atomic<State> state_{State::kNew};
  // Set once with release by abort, polled with acquire by every wait of this communicator. Never
  // cleared.
  std::atomic<bool> abort_{false};
  Code codeBeforeRevoke_ = Code::kOk;  // written before state_ becomes kRevoked

  std::mutex threadMutex_;  // guards initThread_, and state_ where it leaves kInitialising
  std::condition_variable initialised_;
  std::thread initThread_;

  std::mutex childMutex_;  // guards the four below
  bool isLeft_ = false;    // no more children
  // That may still initialise. Weak: a child that has gone must not keep its memory, links and
  // place on the board until its parent goes.
  std::vector<std::weak_ptr<Communicator>> children_;
  // Children without a colour, which nobody else holds while they initialise. They have no links.
  std::vector<std::shared_ptr<Communicator>> outsiders_;
  uint64_t splitCount_ = 0;
  std::map<uint64_t, uint64_t> shrinkCounts_;  // by hash of the remaining ranks

  // The most that the log has told of callers. Any thread; orders nothing else.
  mutable std::atomic<Heard> toldCallers_{Heard::kNot};

  mutable std::mutex errorMutex_;  // guards the two below
  Status initFailure_;
  std::string lastError_;

  UserOps userOps_;
  Registrations registrations_;
};

}  // namespace tutti::comm
