// PeerBuffers: which of the user's buffers all peers have mapped, so that their kernels can write
// there (docs/decisions/0009-gpu-registration.md).
//
// A rank that registers a buffer offers its allocation to the peers by a message each. They look at
// their mail when they next call what would gain, map the allocation and answer with the address at
// which they have it. Once all have answered, the buffer is reached. Nobody waits for anybody, and
// nothing goes wrong while only some have answered: whether a call's outputs are written directly
// is agreed upon by its kernels.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/handoff.h"
#include "bootstrap/peer_info.h"
#include "device/accelerator.h"
#include "wire/gpu_work.h"

namespace tutti::channel {

// Thread-safe. Messages are only looked at in the calls that say so.
class PeerBuffers {
 public:
  struct Parts {
    bootstrap::Bootstrap& bootstrap;
    bootstrap::Handoff& handoff;
    const std::vector<bootstrap::PeerInfo>& peers;  // by rank
    device::Accelerator& accelerator;
    Clock& clock;
    std::chrono::milliseconds timeout;  // of handing over a descriptor
    uint32_t* alive;                    // device memory: kGpuMaxAlive words of this rank's, zero
    const std::atomic<bool>* abort = nullptr;  // ends waiting for one; may be null
  };
  explicit PeerBuffers(const Parts& parts) : parts_(parts) {}
  ~PeerBuffers();
  PeerBuffers(const PeerBuffers&) = delete;
  PeerBuffers& operator=(const PeerBuffers&) = delete;

  enum class Kind : uint8_t { kBuffer, kWindow };
  // A range of device memory under a handle of the caller's. kInvalidUsage, not logged, where peers
  // cannot map it: not within one allocation of this device, or one that cannot be shared. A window
  // is known to the peers by how many were added before it: all ranks add theirs in one order.
  Status add(const void* handle, const void* memory, size_t bytes, Kind kind = Kind::kBuffer);
  // The peers give their mappings back once calls up to the last that used them have ended.
  void remove(const void* handle);

  // Looks at the mail, and for what is gone. `finished`: calls up to this launch have ended.
  void poll(uint64_t finished);
  // The same until all answers to own offers are there, or the bound.
  void settle(Nanoseconds bound, uint64_t finished);

  struct Use {
    const void* buffer = nullptr;
    size_t bytes = 0;
    uint64_t launch = 0;      // its number
    bool isCaptured = false;  // it becomes part of a graph
  };
  // Where each peer has the buffer. False: not reached, or not registered. Allocates nothing.
  bool find(const Use& use, wire::GpuReach& reach);
  // Where this rank has what the peers have at the same place of theirs, of a buffer in a window.
  // False: it is in none. Null of a peer whose window is not mapped here. What a graph uses stays
  // mapped.
  using Places = std::array<std::byte*, wire::kGpuMaxRanks>;
  bool findInWindow(const Use& use, Places& theirs);
  // Registers the whole allocation of a buffer for as long as it exists: what a graph holds has no
  // other owner here. True when peers have just been offered it.
  bool addForGraph(const void* buffer, size_t bytes);
  // Before it goes: graphs that live on find nothing alive. What they may write to stays as long as
  // they do.
  void leaveToGraphs(std::weak_ptr<const void> graphs);

 private:
  struct Message;
  // An allocation of this rank's that peers were offered.
  struct Own {
    uint32_t number = 0;
    device::Allocation memory;
    bootstrap::HandoffToken token{};
    bool isOffered = false;                               // the token is
    std::array<std::byte*, wire::kGpuMaxRanks> theirs{};  // where peers have its base
    int32_t answers = 0;                                  // still to come
    bool isRefused = false;                               // by a peer
    int32_t registrations = 0;
    bool isOfGraph = false;
    bool isWithdrawn = false;  // still mapped by peers until `lastUse` has ended
    uint64_t lastUse = 0;      // the launch
    uint32_t word = 0;         // of alive, never used again; kNoWord: none was left
  };
  struct Range {
    uintptr_t first = 0;
    size_t bytes = 0;
    uint32_t number = 0;  // of the allocation
    uint32_t window = 0;  // 0: none
  };
  // A peer's allocation, as this rank has it; no memory where it is used as it is.
  struct Mapped {
    std::unique_ptr<device::DeviceMemory> memory;
    std::byte* base = nullptr;
    bool isKept = false;  // a graph may write there
  };
  struct TheirWindow {
    uint32_t number = 0;  // of the allocation
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  int32_t self() const { return index(parts_.bootstrap.rank()); }
  Result<Own*> ownFor(const void* memory, size_t bytes);
  Status offer(Own& own);
  void receiveFrom(int32_t peer);
  void handle(int32_t peer, const Message& message);
  std::byte* map(int32_t peer, const Message& message);
  Result<std::byte*> tryMap(int32_t peer, const Message& message);
  void send(int32_t peer, const Message& message);
  void withdraw(Own& own);
  void releaseWithdrawn(uint64_t finished);
  void pollLocked(uint64_t finished);
  bool isSettled() const;
  Own* find(uint32_t number);
  Status setAlive(const Own& own, uint32_t value);

  const Parts parts_;

  std::mutex mutex_;                  // guards all below
  std::weak_ptr<const void> graphs_;  // none, where there are none when it goes
  uint32_t lastNumber_ = 0;
  uint32_t nextWord_ = 0;
  uint32_t windowCount_ = 0;
  std::list<Own> own_;
  std::map<const void*, Range> ranges_;  // by handle
  // By peer, and the number of the allocation or window.
  std::map<std::pair<int32_t, uint32_t>, Mapped> mapped_;
  std::map<std::pair<int32_t, uint32_t>, TheirWindow> windows_;
};

}  // namespace tutti::channel
