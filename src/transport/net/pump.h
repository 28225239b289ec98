// Moves a link's messages between this side's ring and a connection. To the rank the ring is a link
// like any other: on the sender's host the pump is its receiver, on the receiver's host its sender.
//
// Whoever waits does the work: while the rank's thread polls, it runs the pump itself, so a message
// costs no thread switch; before it sleeps, or goes on, it leaves the pump to the provider's
// thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "net/net.h"
#include "transport/net/slow_way.h"
#include "transport/net/transfer_log.h"
#include "transport/transport.h"
#include "wire/link.h"

namespace tutti::transport::net {

class Pump : public Motor, public tutti::net::Worker, public std::enable_shared_from_this<Pump> {
 public:
  struct Options {
    wire::LinkView ring;
    std::shared_ptr<const void> memory{};  // what the ring lies in; shared with the connection
    tutti::net::Provider& provider;        // outlives the pump's owner
    Clock& clock;
    Nanoseconds patience;     // how long what was sent may take to go out once this side leaves
    bool isForOther = false;  // the ring is another process's: references name nothing here
    int32_t hostCount = 0;    // LinkOptions's
    std::shared_ptr<MeasuredLinks> others{};  // SlowWay's
    // The other side has left, before its fault word says so; called under the pump's lock.
    std::function<void(const Parting&)> onEnd{};
    // Of a sender: the connection has been given this message, of so many bytes; as the one above.
    std::function<void(uint64_t number, uint64_t bytes)> onTaken{};
    // Of a receiver whose ring has slots in a GPU's memory: lets the connection put long messages
    // there; false: it cannot, and they go to the host's slots. Called once, when it comes.
    std::function<bool(tutti::net::Connection&)> takeGpuSlots{};
    std::span<const size_t> adapters{};  // tutti::net::Worker's
    // How close() waits for the provider's thread, at most so long, with the lock given back
    // meanwhile; empty: as threads do. For tests, whose world has one thread and its own time.
    std::function<void(std::unique_lock<std::mutex>&, Nanoseconds)> wait{};
  };
  explicit Pump(const Options& options) : port_{.view = options.ring}, options_(options) {}
  virtual ~Pump() = default;

  const wire::LinkView& ring() const { return port_.view; }
  int32_t hostCount() const { return options_.hostCount; }
  const std::shared_ptr<MeasuredLinks>& others() const { return options_.others; }

  bool run() override;
  void attend() override;
  void settle() override;
  void leave(const Parting& parting) override;
  Parting parting() override;
  Carried carried() const override {
    return {.messages = messages_.load(std::memory_order_relaxed),
            .bytes = bytes_.load(std::memory_order_relaxed)};
  }
  uint64_t arrivedBytes() override;
  void profile(observe::Profiler& profiler) override;
  void beginTransfer(const observe::EventTag& call, const observe::TransferNote& note) override;
  void endTransfer(uint64_t endMessage) override;
  void arrived(std::unique_ptr<tutti::net::Connection> connection) override;
  void work(uint64_t watch) override;
  std::span<const size_t> adapters() const override { return options_.adapters; }

  // Nothing that was published is left to be handed over, or nothing can be any more.
  bool isOut();
  // What was sent and not yet handed over goes out, unless this side aborted, within the patience
  // counted from leave(); then the connection ends, and the ring may go.
  void close();

 protected:
  // All under mutex_, with a connection.
  virtual bool move() = 0;
  virtual tutti::net::Readiness wants() = 0;
  // For what move() does not look at each time.
  virtual void listen() = 0;
  // The rank has used all messages before this one; told where it is profiled.
  virtual void used(uint64_t endMessage) = 0;
  // The rank's operation is over before its end: from now on no memory but the ring's is touched.
  virtual void letGo() = 0;
  // The words of this side's and the other side's leaving.
  virtual std::atomic<uint32_t>& ownFault() = 0;
  virtual std::atomic<uint32_t>& peerFault() = 0;

  tutti::net::Connection& connection() { return *connection_; }
  // After a label with kNotice: kDone when the notice has come and the link is over.
  Result<Progress> receiveNotice(const tutti::net::Label& label);
  void end(wire::LinkFault fault, Parting parting);
  // The connection has failed.
  void lose(const Status& status);
  void count(uint64_t bytes) {
    messages_.store(messages_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    bytes_.store(bytes_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
  bool hasEnded() const { return hasEnded_; }
  Clock& clock() { return options_.clock; }
  TransferLog* log() { return log_.get(); }  // null: nobody asked
  bool isAttended() const { return isAttended_; }
  std::mutex& mutex() { return mutex_; }
  const Options& options() const { return options_; }
  bool usesGpuSlots() const { return usesGpuSlots_; }

  wire::LinkPort port_;  // this side's: the other end of the rank's

 private:
  bool moveNow();
  void sendNotice();
  void watch(const tutti::net::Readiness& readiness);
  void unwatch();

  const Options options_;
  // Written under mutex_, read by anyone: figures for people, which publish nothing.
  std::atomic<uint64_t> messages_{0};
  std::atomic<uint64_t> bytes_{0};

  std::mutex mutex_;  // guards all above and below, but for what is said of them
  std::condition_variable worked_;
  std::unique_ptr<tutti::net::Connection> connection_;
  uint64_t watch_ = 0;             // 0: not watched
  tutti::net::Readiness watched_;  // for this
  bool isAttended_ = false;        // a thread of the rank runs it, or will
  bool usesGpuSlots_ = false;      // a receiver: for long messages
  bool hasEnded_ = false;          // no message will come, or go
  bool hasNoticed_ = false;        // our notice is on its way
  std::optional<Instant> leftAt_;  // when this side left
  std::string ownNotice_;          // as it is sent
  std::vector<std::byte> peerNotice_;
  Parting peerParting_;
  std::unique_ptr<TransferLog> log_;  // where the rank is profiled
};

// Out of the ring, into the connection.
class SendPump final : public Pump {
 public:
  using Pump::Pump;
  bool sends() const override { return true; }

  // The word that the next message to be published will change. For who drives the pump and is not
  // the rank that publishes.
  FutexPoint nextMark();

 private:
  bool move() override;
  tutti::net::Readiness wants() override;
  std::atomic<uint32_t>& ownFault() override { return port_.view.control->senderFault; }
  std::atomic<uint32_t>& peerFault() override { return port_.view.control->receiverFault; }
  void used(uint64_t /*endMessage*/) override {}  // it sends; what it sent may still be under way
  void takeMessages();
  bool releaseSent();
  bool isSound(wire::MessageKind kind, uint32_t bytes) const;
  void letGo() override;
  void listen() override;
  Status hear();

  uint64_t taken_ = 0;  // messages that the connection has been given
  uint32_t idleRuns_ = 0;
  SlowWay slowWay_{hostCount(), others()};
  tutti::net::Label label_;  // of what the receiver says
  bool hasLabel_ = false;
};

// Out of the connection, into the ring.
class ReceivePump final : public Pump {
 public:
  using Pump::Pump;
  bool sends() const override { return false; }

  wire::Landing& landing() { return landing_; }

 private:
  // Where the payload of the label at hand goes.
  enum class Goal : uint8_t { kUndecided, kPostponed, kSlot, kLanding };

  bool move() override;
  tutti::net::Readiness wants() override;
  void listen() override {}  // the next message tells
  void used(uint64_t endMessage) override { log()->passed(endMessage); }
  void letGo() override;
  void decideGoal();
  std::atomic<uint32_t>& ownFault() override { return port_.view.control->receiverFault; }
  std::atomic<uint32_t>& peerFault() override { return port_.view.control->senderFault; }
  Result<Progress> receiveOne();
  void tellWhereQuiet();
  std::byte* slot(size_t bytes);

  tutti::net::Label label_;
  bool hasLabel_ = false;
  Goal goal_ = Goal::kUndecided;
  bool hasLetGo_ = false;
  wire::Landing landing_;
  QuietReceiver quiet_{hostCount()};
};

}  // namespace tutti::transport::net
