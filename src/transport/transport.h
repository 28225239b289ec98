// Transport: makes links between two ranks. Tried in the order of transports(); the first that can
// connect a pair is used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "bootstrap/peer_info.h"
#include "device/accelerator.h"
#include "net/gpu_memory.h"
#include "observe/profiler.h"
#include "wire/link.h"

namespace tutti::net {
struct RanksHere;
}

namespace tutti::transport {

// What a side that leaves tells the other.
struct Parting {
  int32_t guilty = -1;             // the rank whose fault it is, as far as known
  std::string text{};              // a message that names it, or what became of the connection
  Code code = Code::kRemoteError;  // kInvalidUsage, too: the ranks' calls do not fit together
  bool isOwn = false;              // nobody has left: this side's network hangs
};

// Moves a link's messages where memory alone does not: between its ring and a network. Called by
// the thread that drives the link's operation; while that sleeps or has gone on, the transport's
// own thread does the work.
class Motor {
 public:
  // Moves what can be moved without waiting; true when something was. Cheap when there is nothing,
  // but for a look at the network where it receives.
  virtual bool run() = 0;
  // Out of this rank, rather than to it.
  virtual bool sends() const = 0;
  // The thread goes to sleep until a message comes or a slot is free: somebody else must see to it.
  virtual void attend() = 0;
  // The operation is over: what is still to be sent goes out without this thread.
  virtual void settle() = 0;
  // This side has set its fault word: the other is to know, and why.
  virtual void leave(const Parting& parting) = 0;
  // What is known once the other side's fault word is set.
  virtual Parting parting() = 0;
  // What has gone through it so far: messages of data and their bytes. Any thread.
  struct Carried {
    uint64_t messages = 0;
    uint64_t bytes = 0;
  };
  virtual Carried carried() const { return {}; }
  // net::Connection::arrivedBytes() of its connection.
  virtual uint64_t arrivedBytes() { return 0; }

  // For a rank that is profiled. Before the first message.
  virtual void profile(observe::Profiler& profiler) = 0;
  // The rank has come to the call that these messages belong to. After profile(), these two.
  virtual void beginTransfer(const observe::EventTag& call, const observe::TransferNote& note) = 0;
  // It is through with it: of a link that it receives on, with all messages before this one.
  virtual void endTransfer(uint64_t endMessage) = 0;

 protected:
  ~Motor() = default;
};

// One side of a link. Owns that side's mapping; the view is valid until destruction. The side that
// leaves first should have set its fault word (wire::LinkFault), the memory itself stays until both
// sides are gone.
class LinkEnd {
 public:
  virtual const wire::LinkView& view() const = 0;
  // Maps what the other end announces. Null where no memory can be shared so.
  virtual wire::SegmentMapper* mapper() { return nullptr; }
  // A receiving end's: where messages may land outside of the ring. Null where they cannot.
  virtual wire::Landing* landing() { return nullptr; }
  // What its motor reads at a sender's references, or writes at a receiver's landings.
  virtual wire::CarrierReach carrierReach() const { return wire::CarrierReach::kLinkOnly; }
  // A sending end's: the rank whose process moves its messages, where that is not this one's; -1.
  virtual int32_t carrier() const { return -1; }
  // nullptr where both sides address the same memory. The end's; lives as long as it.
  virtual Motor* motor() = 0;
  virtual ~LinkEnd() = default;
};

// A sending end on its way; to let go of it gives it up. One thread at a time.
class PendingEnd {
 public:
  // Null: not there yet. Any other answer is the last one. Does not block.
  virtual Result<std::unique_ptr<LinkEnd>> poll() = 0;
  virtual ~PendingEnd() = default;
};

// What the receiver tells the sender so that it can connect. Secret; opaque, fixed size,
// range-checked by connect().
using Offer = std::array<std::byte, 216>;

struct Listening {
  std::unique_ptr<LinkEnd> end;
  Offer offer;
};

// Over which other process of the sender's host a link is to go: one that is beside the adapter.
struct Detour {
  const bootstrap::PeerInfo& carrier;
  bool isForced = false;  // else only where the sender's own adapters may not lead to the receiver
};

// For links whose long messages are a GPU's: whose, and which adapters of the network may reach it
// from here. Ranks of one host need no adapter: the sender's GPU writes to the receiver's. All
// outlive the links.
struct GpuSlots {
  device::Accelerator* gpu = nullptr;
  bool usesDmaBuffers = true;
  bool reachesPeers = true;         // other GPUs of the host: without NCCL_P2P_DISABLE
  std::vector<int32_t> farPeers{};  // ranks whose GPUs are farther than NCCL_P2P_LEVEL allows
  // By adapter, as tutti::net::GpuRegion has them; and those without, the nearest.
  std::vector<std::string> sendObstacles, receiveObstacles;
  std::vector<size_t> sendAdapters, receiveAdapters;
};

struct LinkOptions {
  // Implicit: most links are of host memory.
  LinkOptions(const wire::LinkGeometry& ofLink, const GpuSlots* ofGpu = nullptr)
      : geometry(ofLink), gpu(ofGpu) {}
  wire::LinkGeometry geometry;
  const GpuSlots* gpu = nullptr;  // null: host memory
  int32_t hostCount = 0;          // of the communicator; 0: not known
  // Of a link from another host: its number among those of this process, by which links take turns
  // in what they begin with (tutti::net::withTurn()).
  uint32_t turn = 0;
};

// Thread-safe. Lives as long as the process's communicators.
class Transport {
 public:
  struct Caps {
    std::string_view name;      // "local", "shm", ...
    bool mapped = true;         // both sides address the slots directly
    bool mapsSegments = false;  // receivers map segments that senders announce
    bool needsOneProcess = false;
    bool needsOneHost = false;
  };

  virtual const Caps& caps() const = 0;
  // As tutti::net::Provider::prepare().
  virtual Result<Progress> prepare() { return Progress::kDone; }
  // Why it cannot connect them, in a few words for a message; empty when it can.
  virtual std::string obstacle(const bootstrap::PeerInfo& sender,
                               const bootstrap::PeerInfo& receiver) const = 0;

  // The receiver's half: makes the link's memory. Does not block.
  virtual Result<Listening> listen(const bootstrap::PeerInfo& sender,
                                   const bootstrap::PeerInfo& receiver,
                                   const LinkOptions& options) = 0;
  // The sender's half, which never waits for the receiver's user. Does not block. Let go of before
  // the transport.
  virtual Result<std::unique_ptr<PendingEnd>> connect(const bootstrap::PeerInfo& sender,
                                                      const bootstrap::PeerInfo& receiver,
                                                      const LinkOptions& options,
                                                      const Offer& offer) = 0;
  // The same by way of another process, where the transport knows of adapters. Where that process
  // cannot, directly.
  virtual Result<std::unique_ptr<PendingEnd>> connectOver(const Detour& /*detour*/,
                                                          const bootstrap::PeerInfo& sender,
                                                          const bootstrap::PeerInfo& receiver,
                                                          const LinkOptions& options,
                                                          const Offer& offer) {
    return connect(sender, receiver, options, offer);
  }
  // The process ends: others' links that it carries may end first, for so long at most.
  virtual void awaitOwners(Nanoseconds /*bound*/) {}
  // As tutti::net::Provider::noteRanks().
  virtual void noteRanks(const tutti::net::RanksHere& /*ranks*/) {}
  // Of the network that it goes over, as tutti::net::Provider has them.
  virtual Result<std::vector<tutti::net::Adapter>> adapters() {
    return std::vector<tutti::net::Adapter>();
  }
  virtual ~Transport() = default;
};

}  // namespace tutti::transport
