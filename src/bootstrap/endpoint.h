// The part of a process that takes part in one job: the mailboxes of its ranks, a listener, the
// connections to and from other processes, and one service thread ("tutti-boot") that reads them.
// Listener and thread exist only when another process is in the job. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "base/status.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/frame.h"
#include "bootstrap/mailbox.h"
#include "bootstrap/messages.h"
#include "bootstrap/outgoing.h"
#include "bootstrap/poller.h"

namespace tutti::bootstrap {

class Endpoint {
 public:
  struct Options {
    Key key;
    std::string job;            // its public name, for messages
    uint64_t processHash = 0;   // of this process
    SocketAddress rootAddress;  // listen in its subnet, where the interfaces allow
    std::string interfaces;     // NCCL_SOCKET_IFNAME
    int family = 0;
    std::chrono::milliseconds timeout{0};
    std::chrono::milliseconds patience{0};  // with a peer whose process answers; at least timeout
    std::chrono::milliseconds helloTimeout{5'000};
    Clock* clock = &steadyClock();
    Rng* rng = &systemRng();
  };

  // Where a message belongs.
  struct Slot {
    Rank self{0};  // a rank of this process
    Rank peer{0};
    FrameType type = FrameType::kMessage;
    uint64_t tag = 0;
  };

  // How long to wait, and how to say what for.
  struct Wait {
    std::chrono::milliseconds timeout{0};
    const std::atomic<bool>* abort = nullptr;  // may be null
    std::string_view what;                     // "all-gather 3", for messages
    std::string_view doubt = {};               // why else the peer may be silent: "; the root ..."
  };

  explicit Endpoint(Options options);
  // REQUIRES: all ranks have been detached.
  ~Endpoint();

  // Starts listener and thread, once; the address to tell others.
  Result<SocketAddress> listen();
  SocketAddress address() const;  // empty when it does not listen

  // Gives a rank its mailbox. False when this process has that rank already.
  bool attach(Rank rank);
  // Before detach(), of a rank that fails: tells `peers`, who may wait for it, why. That is the
  // fault of another rank where there was one, so that all name the same; else `why`.
  void bidFarewell(Rank rank, std::span<const Rank> peers, std::string_view why);
  // The rank sends and receives no more: others are told by the end of its connections. Waits a
  // little, and when `isHasty` hardly at all, for its last messages to be handed to the system.
  void detach(Rank rank, bool isHasty) noexcept;

  // The root has answered: only connections of this epoch are heard.
  void setEpoch(uint64_t epoch);
  void learn(Rank rank, const Contact& contact);

  // Queues the message. Does not wait. kRemoteError when the peer is gone, does not take what was
  // sent before, or is unknown.
  Status send(const Slot& slot, std::span<const std::byte> body);

  Result<Progress> tryReceive(const Slot& slot, std::vector<std::byte>& message);
  // Waits `wait.timeout`, and for a peer whose process answers as much longer as Options::patience
  // exceeds Options::timeout; at least half of it or 1 s, as what that waits for itself, it can
  // name when its own time is up.
  Status receive(const Slot& slot, const Wait& wait, std::vector<std::byte>& message);

  // Asks the peer's process for a sign of life, and says what is known of it, if any came. Does
  // not wait. An error when nothing can be asked any more: the peer has left, or cannot be reached.
  Result<std::optional<Sign>> probe(Rank self, Rank peer);
  // Without asking; also of a peer that has left.
  std::optional<Sign> lastSign(Rank self, Rank peer) const;

  // What the rank's signs say besides: `words()` of at most kMaxWordsBytes, asked by the service
  // thread, which must not wait. Null, and after detach(): nothing; then the one before is not
  // asked any more.
  using Words = std::function<std::vector<std::byte>()>;
  void say(Rank rank, Words words);
  // Says it now, to all whom the rank has a connection with. Waits a little until that is out.
  void tellAll(Rank rank);

  // "rank 3 (host:pid)".
  std::string describe(Rank rank) const;

 private:
  // How long the last messages of a rank that has failed may take to reach the system's buffers:
  // enough to connect to a peer and say why.
  static constexpr std::chrono::milliseconds kHastyFlushTime{100};

  struct Incoming {
    UniqueFd fd;
    FrameDecoder decoder;
    Introduction introduction;
  };
  using IncomingMap = std::unordered_map<uint64_t, Incoming>;
  using OutgoingMap = std::map<std::pair<Rank, Rank>, std::unique_ptr<Outgoing>>;

  // Under mutex_, all of them.
  Status startService();
  void serve();
  void serveOnce(std::span<const Poller::Event> events);
  void admit(Accepted accepted);
  void onReadable(uint64_t key);
  void deliver(const Incoming& from, Frame frame, std::string& why);
  void answer(Rank self, Rank peer, uint64_t tag);
  void drop(uint64_t key, std::string_view why);
  bool mayStillHear(Rank self, Rank peer) const;
  void noteFault(const std::pair<Rank, Rank>& pair, const Outgoing& outgoing);
  std::optional<Instant> nextTime() const;
  Status sendLocally(const Slot& slot, Mailbox& mailbox, std::span<const std::byte> body);
  Result<Outgoing*> outgoingFor(const Slot& slot);
  Status ask(const Slot& slot);
  std::optional<Sign> findSign(const Slot& slot) const;
  void hearFarewell(const Incoming& from, std::span<const std::byte> text);
  void closeFor(Mailbox& mailbox, Rank leaver, const std::string& cause);
  const std::string* whyClosed(const Slot& slot);
  std::string unreachedBy(const Slot& slot, std::string_view told = {}) const;
  bool isFlushed(Rank rank) const;
  std::string name(Rank rank) const;

  // Constant after construction.
  Options options_;

  mutable std::mutex mutex_;  // guards all below; the service thread waits on poller_ without it
  std::condition_variable flushed_;
  std::map<Rank, std::unique_ptr<Mailbox>> mailboxes_;
  std::unordered_map<int32_t, Contact> contacts_;
  std::unordered_map<int32_t, std::string> causes_;  // by rank that left: the fault it named
  std::map<Rank, std::string> faultsMet_;            // by rank of ours: why a peer failed it
  std::map<std::pair<Rank, Rank>, Sign> signs_;      // by ours and peer: its last sign of life
  std::map<Rank, Words> words_;                      // by rank of ours
  uint64_t epoch_ = 0;                               // 0: not known yet
  std::vector<Accepted> early_;  // came before the epoch was known; not read until then
  uint32_t scope_ = 0;           // of our own link-local address
  uint64_t nextKey_ = Acceptor::kFirstFreeKey;
  bool isStopping_ = false;
  std::unique_ptr<Poller> poller_;  // before those who use it
  std::unique_ptr<Acceptor> acceptor_;
  IncomingMap incoming_;
  OutgoingMap outgoing_;
  std::unordered_map<uint64_t, std::pair<Rank, Rank>> outgoingKeys_;
  std::vector<std::byte> readBuffer_;  // not on the thread's stack, which may be as small (ulimit
                                       // -s)
  std::thread thread_;
};

}  // namespace tutti::bootstrap
