// A network that moves messages between registered memories by request: what plug-ins, libfabric
// and verbs have in common. FabricProvider makes connections of it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/gpu_memory.h"
#include "net/network_wish.h"
#include "net/requests.h"

namespace tutti::net {

// How a lane's two ends find each other; opaque, travels over an authenticated connection.
using LaneHandle = std::array<std::byte, 256>;

// One end of a one-way lane: what one end posts in some order, the other receives in that order.
// One thread at a time; nothing blocks; errors are final. They are made, not logged: whoever owns
// the connection says what they mean for the call.
class Lane {
 public:
  using Memory = MemoryName;
  using Request = net::Request;

  // Before any of its bytes are posted.
  virtual Result<Memory> enroll(std::span<std::byte> memory) = 0;
  // Memory of a GPU, whole. An error where this adapter cannot reach it.
  virtual Result<Memory> enrollGpu(const GpuRegion& region);
  // REQUIRES: no request in it is under way, unless the lane ends with this.
  virtual void release(Memory memory) = 0;

  // Starts to send the bytes, or, at the receiving end, to receive up to so many. They stay
  // unchanged, or untouched, until test() is through. No request: not now, ask again.
  virtual Result<Request> post(std::span<std::byte> bytes, Memory memory) = 0;
  // How many bytes were moved; nothing while it is under way. Then the request is over.
  virtual Result<std::optional<size_t>> test(Request request) = 0;
  // At the receiving end, after a receive into a GPU's memory is through: once test() is through
  // with this, too, the GPU sees what came. No request: it does so already.
  virtual Result<Request> flush(std::span<std::byte> /*bytes*/, Memory /*memory*/) {
    return Request{};
  }

  // The library's functions that those above call, for who waits for one; of static storage.
  struct CallNames {
    const char* enroll = "registering memory";
    const char* release = "forgetting memory";
    const char* post = "posting a message";
    const char* test = "looking for messages";
    const char* flush = "flushing";
    const char* close = "closing a connection";
  };
  virtual CallNames callNames() const { return {}; }

  virtual ~Lane() = default;
};

inline Result<Lane::Memory> Lane::enrollGpu(const GpuRegion&) {
  return Status(Code::kInvalidUsage, "this network moves memory of the host only");
}

// A lane that comes to be. Polled; null: not yet.
class LaneListener {
 public:
  virtual const LaneHandle& handle() const = 0;
  // What the dialing end answers, once. Before, accept() gives no lane where it needs that.
  virtual void hear(const LaneHandle& /*answer*/) {}
  virtual Result<std::unique_ptr<Lane>> accept() = 0;
  virtual ~LaneListener() = default;
};
class LaneDialer {
 public:
  virtual Result<std::unique_ptr<Lane>> connect() = 0;
  // What the listening end is to hear, once there is a lane here; zeros: nothing.
  virtual LaneHandle answer() const { return {}; }
  virtual ~LaneDialer() = default;
};

// Where a lane of this side is to be.
struct LanePlace {
  size_t device = 0;
  int trafficClass = kNoTrafficClass;  // of its packets, where the network has such
};

// Thread-safe; different lanes may be used by different threads. Outlives its lanes.
class Fabric {
 public:
  struct Caps {
    std::string name;                 // as NCCL_NET names it
    std::string library{};            // "libibverbs"
    size_t deviceCount = 1;           // network adapters
    std::vector<Adapter> adapters{};  // these, where some can reach memory of GPUs; else empty
    size_t maxMessageBytes = 1 << 30;
    bool registersMemory = true;  // else lanes move any memory, and enroll() costs nothing
    bool returnsAtOnce = false;   // calls to lanes do, as their library promises: no thread is
                                  // needed that may be left in one
    std::string description{};    // "4 devices: mlx5_0 (200 Gb/s), ...", for the log
  };
  virtual const Caps& caps() const = 0;
  virtual Result<std::unique_ptr<LaneListener>> listen(const LanePlace& place) = 0;
  virtual Result<std::unique_ptr<LaneDialer>> dial(const LanePlace& place,
                                                   const LaneHandle& handle) = 0;
  virtual ~Fabric() = default;
};

}  // namespace tutti::net
