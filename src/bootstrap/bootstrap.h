// Bootstrap: the ranks of a job find each other, check each other's secret, and exchange small
// messages during set-up.
//
// Shape: one Endpoint a process and job (a listener and one service thread, none at all when the
// whole job lives in one process); one Bootstrap a rank. Ranks of one process talk through queues,
// others through authenticated sockets that are opened at first use. The service thread accepts and
// reads, so a message arrives while its receiver is busy elsewhere.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/rng.h"
#include "base/status.h"
#include "bootstrap/messages.h"
#include "bootstrap/socket_address.h"
#include "bootstrap/unique_id.h"

namespace tutti::bootstrap {

// The endpoints and roots of this process, by job. One a process, owned by comm/process; outlives
// every Bootstrap. See directory.h.
class Directory;

enum class Tag : uint64_t {};

struct NetworkOptions {
  std::string interfaces;  // NCCL_SOCKET_IFNAME
  int family = 0;          // NCCL_SOCKET_FAMILY: AF_INET, AF_INET6, 0 any
  std::string commId;      // NCCL_COMM_ID, "host:port" or "[v6]:port"; empty: unset
  std::string secretFile;  // TUTTI_SECRET_FILE, mixed into the keys on all ranks; empty: unset
  std::chrono::milliseconds timeout{10'000};  // after which who is silent counts as dead
  // For ranks that have not come yet, or that live and have not begun; 0: timeout.
  std::chrono::milliseconds patience{0};
  std::chrono::milliseconds helloTimeout{5'000};

  std::chrono::milliseconds gathering() const { return patience.count() > 0 ? patience : timeout; }
};

// Makes an id whose root runs in this process: a listener and a thread that serves one job and ends
// when the job's ranks have all been answered and its local communicators are gone, or `timeout`
// after the last of them. With NCCL_COMM_ID set it names that address instead, and rank 0 starts
// the root when it connects.
Result<UniqueId> makeUniqueId(Directory& directory, const NetworkOptions& network, Rng& rng);

// Makes an id for ranks of this process only, without any socket or thread. Elsewhere connect()
// refuses it with kInvalidUsage.
UniqueId makeLocalUniqueId(Directory& directory, Rng& rng);

// The id, without its address, of a job that grew out of another: its name and secret follow from
// the other's secret and the salt, so only who was in that job can know them, and they need not
// travel.
using Salt = std::array<std::byte, 32>;
UniqueId deriveUniqueId(const UniqueId& from, const Salt& salt);

enum class Reach : uint8_t { kProcess, kNetwork };
// Starts the root of a derived job in this process, as makeUniqueId does, and fills in the address;
// with kProcess for ranks of this process only, and the address stays empty.
Status openRoot(Directory& directory, const NetworkOptions& network, Reach reach, UniqueId& id);
// Ends a root that nobody will meet at; none is fine.
void closeRoot(Directory& directory, const UniqueId& id);
// A rank of this process will not come, for a reason of its own: the others learn that at once if
// they meet at a root of this process. No effect once they have met.
void giveUp(Directory& directory, const UniqueId& id, Rank rank, std::string_view why);

// Any thread, several at once; all-gathers and barriers of one rank one after the other.
class Bootstrap {
 public:
  struct Options {
    UniqueId id;
    // Where several roots share the work: each group of ranks meets at one (rank_groups.h). The
    // first is `id`, and all differ. The same on all ranks; empty: all meet at `id`.
    std::vector<UniqueId> places = {};
    Rank rank{0};
    int32_t rankCount = 1;
    NetworkOptions network;
    const std::atomic<bool>* abort = nullptr;  // when it turns true every wait ends within 100 ms;
                                               // may be null
    Clock* clock = &steadyClock();
    Rng* rng = &systemRng();
  };

  // Blocks until all ranks have met, or the deadline: then kRemoteError listing the missing ranks.
  // kInvalidUsage on every rank when two ranks share a number or disagree about the rank count,
  // naming both (host:pid); kInvalidUsage "id already used".
  static Result<std::unique_ptr<Bootstrap>> connect(Directory& directory, const Options& options);

  // all holds rankCount blocks; the caller has filled its own. ceil(log2(rankCount)) rounds. Ranks
  // call it in the same order. `what` is its name for messages: "the agreement on settings".
  Status allGather(std::span<std::byte> all, size_t blockBytes, std::string_view what = {});
  Status barrier(std::string_view what = {});

  // Hands the message to the service (copied); never waits for the receiver. At most
  // kMaxMessageBytes.
  Status send(Rank to, Tag tag, std::span<const std::byte> message);
  // Messages from one rank with one tag arrive in order; others wait in the unexpected-message
  // queue.
  Result<Progress> tryReceive(Rank from, Tag tag, std::vector<std::byte>& message);  // kIdle: not
                                                                                     // there yet
  Status receive(Rank from, Tag tag, std::vector<std::byte>& message);  // waits, up to the deadline

  // Limits of one receive in place of the options'.
  struct Wait {
    std::chrono::milliseconds timeout{0};
    const std::atomic<bool>* abort = nullptr;  // may be null
    std::string_view what;                     // "the split", for messages
  };
  Status receive(Rank from, Tag tag, const Wait& wait, std::vector<std::byte>& message);

  // The rank fails for a reason of its own: whoever waits for it hears that when it is destroyed.
  void noteFailure(std::string_view why);

  // Asks the peer's process for a sign of life and says what is known of it, if one came. Its
  // service thread answers, whatever its user does. An error: it cannot be asked any more.
  Result<std::optional<Sign>> probe(Rank peer);
  // Without asking; also of a peer that has left.
  std::optional<Sign> lastSign(Rank peer);
  // What this rank's signs say to those who probe it: `words()` of at most kMaxWordsBytes, asked by
  // the service thread, which must not wait. Null: nothing; then the one before is not asked any
  // more.
  void say(std::function<std::vector<std::byte>()> words);
  // Now, to all whom this rank has a connection with.
  void tellAll();

  // Where the other ranks reach this one's process; empty: all are in it.
  SocketAddress address() const;

  Rank rank() const;
  int32_t rankCount() const;
  ~Bootstrap();

  static constexpr size_t kMaxMessageBytes = 1u << 20;

 private:
  struct Impl;
  explicit Bootstrap(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::bootstrap
