// A network as links use it: connections that carry whole messages from one rank to another, in
// order. A provider is one kind of network (sockets, verbs, a plug-in).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "bootstrap/socket_address.h"
#include "net/gpu_memory.h"
#include "wire/carrier_reach.h"

namespace tutti::net {

// What each message begins with; the payload follows.
struct Label {
  uint32_t bytes = 0;      // of the payload; with kNotice: of a notice, the last thing sent
  uint32_t signature = 0;  // of the call; of a notice: why its sender leaves
};
inline constexpr uint32_t kNotice = 1u << 31;
inline constexpr uint32_t kMaxNoticeBytes = 2048;

// What a connection's bytes go over, for who finds it slow.
struct Way {
  std::string text;             // "eth0 (10.0.1.5) to rank 3 at 10.0.2.7:41234"
  uint64_t bytesPerSecond = 0;  // by its interfaces, or supposed where they do not tell
  bool isSupposed = false;
  uint64_t interfaceBytes = 0;     // that they have sent so far, everybody's; 0: not known
  uint64_t interfaceArrived = 0;   // and received
  uint64_t measuredPerSecond = 0;  // bytes that arrived at the other side, lately
  Nanoseconds roundTrip{0};        // the shortest seen
  Nanoseconds receiverLimited{0};  // how long the other side has had no room for more
};

// One end of a connection. One thread at a time; nothing blocks. Errors are final.
class Connection {
 public:
  // Takes a message whose payload stays unchanged until sentCount() has passed it. kIdle: enough
  // are under way, it was not taken.
  virtual Progress send(const Label& label, std::span<const std::byte> payload) = 0;
  // Hands over what was taken. kDone: all of it; kIdle: the network takes nothing more now.
  virtual Result<Progress> flush() = 0;
  // Messages whose payload is the caller's again.
  virtual uint64_t sentCount() const = 0;
  // All payloads outside of the link's `own` memory are the caller's again: copies of what is not
  // handed over go out in their place, or nothing but a notice goes out any more. May wait a tenth
  // of a second.
  virtual void keepCopies(std::span<const std::byte> /*own*/) {}
  // From its return on no payload's memory is read or written, whatever is under way. Afterwards
  // nothing more is received, nor sent if something was being sent. For connections that go on
  // between calls.
  virtual void stop() {}

  // What the link's own memory lies in: the connection lets go of it when the network has. Before
  // the first message.
  virtual void keep(std::shared_ptr<const void> /*memory*/) {}
  // Its errors are this side's: the network's library has not returned from a call for long. A
  // notice can be sent even then.
  virtual bool isHung() const { return false; }

  // From here on payloads may lie in this memory, too, which stays until the connection has gone;
  // what is received there is to be seen by the GPU once receivePayload() is through. Before the
  // first message. An error, not logged, says why not; the connection is as it was.
  virtual Status takeGpuMemory(const GpuRegion& region);

  // Some system calls. Empty where there is no wire, or nothing is known of it.
  virtual std::optional<Way> way() const { return std::nullopt; }
  // Bytes that have arrived so far, here and at the other side, messages in part too, as the system
  // counts them. Some system calls. 0 where it does not.
  virtual uint64_t arrivedBytes() const { return 0; }

  // kDone: the next message's label, whose payload, also an empty one, is to be received next.
  virtual Result<Progress> receiveLabel(Label& label) = 0;
  // Whether payloads can be received there, outside of the link's own memory.
  virtual bool reaches(std::span<std::byte> /*memory*/) { return true; }
  // Into the same place until kDone. kAdvanced: it never comes whole, since its sender has left;
  // the next label is its notice's.
  virtual Result<Progress> receivePayload(std::span<std::byte> payload) = 0;

  virtual ~Connection() = default;
};

// Whoever owns a connection and lets the provider's service thread work on it at times.
class Worker {
 public:
  // The connection that was expected.
  virtual void arrived(std::unique_ptr<Connection> connection) = 0;
  // The connection of this watch is ready, or has ended. The watch is over, or was taken back just
  // now.
  virtual void work(uint64_t watch) = 0;
  // Which of Provider::adapters() the connection is to go over; empty: any. As long as this.
  virtual std::span<const size_t> adapters() const { return {}; }
  virtual ~Worker() = default;
};

struct Readiness {
  bool toReceive = false;
  bool toSend = false;
};

// A link's number is chance, but for its highest byte: the link begins with so manieth of the
// adapters or interfaces, counted round. Labels and short messages go there alone.
inline constexpr int kTurnShift = 56;
constexpr uint64_t withTurn(uint64_t number, uint64_t turn) {
  return (number & ((uint64_t{1} << kTurnShift) - 1)) | turn << kTurnShift;
}
constexpr size_t turnOf(uint64_t number) { return number >> kTurnShift; }

// Who opens a connection, and for what.
struct Caller {
  uint64_t number = 0;  // the one under which the other side expects it; withTurn()
  Rank self{0};
  Rank peer{0};
  bool isControl = false;              // carries words, no data
  std::span<const size_t> adapters{};  // as Worker::adapters()
};

// How many ranks share the CPUs that this process may use, and how many it has itself; its place
// among the processes of its host; and where those of other hosts have reached it already, so that
// links may go there, too.
struct RanksHere {
  int32_t onCpus = 1;
  int32_t inProcess = 1;
  int32_t place = 0;               // ranks of the host before its own first one
  bootstrap::SocketAddress met{};  // empty: not known
};

// A connection on its way; to let go of it gives it up. One thread at a time; nothing blocks.
class PendingConnection {
 public:
  // Null: not there yet. Any other answer is the last one.
  virtual Result<std::unique_ptr<Connection>> poll() = 0;
  virtual ~PendingConnection() = default;
};

// Thread-safe. Workers are called on its service thread, which holds none of its locks then.
class Provider {
 public:
  struct Caps {
    std::string_view name;  // "socket", ...
    // Where payloads may lie. What is not the link's goes away after keepCopies(), or once nobody
    // receives any more.
    wire::CarrierReach reach = wire::CarrierReach::kLinkOnly;
    // Reaches all of a peer's interfaces by this host's routes, whichever adapters the process
    // names.
    bool isRouted = false;
  };
  // Where and with what secret peers reach this process. To be sent over authenticated channels
  // only; opaque.
  using Contact = std::array<std::byte, 192>;

  virtual const Caps& caps() const = 0;

  // What threads a provider begins goes by that. Before any other call; later it changes nothing.
  virtual void noteRanks(const RanksHere& /*ranks*/) {}
  // kDone: no other call has to wait until it is known which network there is: that may take a
  // library its time, and who does not ask this before waits for it. Does not block.
  virtual Result<Progress> prepare() { return Progress::kDone; }
  // Listens from the first call on.
  virtual Result<Contact> contact() = 0;
  // Those that connections go over, where they could reach memory of GPUs; empty: none could.
  virtual Result<std::vector<Adapter>> adapters() { return std::vector<Adapter>(); }
  // A connection opened under this number goes to the worker, once. Shared with the worker's owner.
  virtual void expect(uint64_t number, std::shared_ptr<Worker> worker) = 0;
  virtual void forget(uint64_t number) = 0;

  // To the other process's service, which answers without its user; within `timeout`. Let go of
  // before the provider.
  virtual Result<std::unique_ptr<PendingConnection>> connect(const Contact& contact,
                                                             const Caller& caller,
                                                             std::chrono::milliseconds timeout) = 0;

  // Calls worker->work() once when the connection is ready; under a number that is never 0. The
  // connection is this provider's and is not watched.
  virtual Result<uint64_t> watch(Connection& connection, const Readiness& readiness,
                                 std::shared_ptr<Worker> worker) = 0;
  // Before a watched connection goes, or is watched anew. Nothing when the watch is over.
  virtual void unwatch(uint64_t watch) = 0;

  virtual ~Provider() = default;
};

inline Status Connection::takeGpuMemory(const GpuRegion&) {
  return Status(Code::kInvalidUsage, "this network moves memory of the host only");
}

}  // namespace tutti::net
