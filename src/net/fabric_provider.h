// Connections over a fabric, made and watched with another network's help: sockets, which bring
// the two sides together, tell of their deaths, and carry a link themselves where the fabric
// cannot.
//
// A fabric has nothing to sleep on. So one thread ("tutti-fabric"), there from the first use on,
// looks at what is under way: at once again while something moves, else after a pause that doubles
// up to a millisecond; it sleeps while there is nothing to look at. The fabric may hang in
// somebody's library, so what finds it and makes its lanes is called on another
// (net/foreign_calls.h), and given up for a fabric that fails once a time limit is over; lanes
// whose calls may not return at once are called on a third (net/lane_thread.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "net/fabric.h"
#include "net/fabric_meeting.h"
#include "net/foreign_calls.h"
#include "net/lane_thread.h"
#include "net/net.h"

namespace tutti::net {

class FabricProvider final : public Provider {
 public:
  // What there is of a fabric in this process.
  struct Found {
    std::shared_ptr<Fabric> fabric;  // null: none; shared with calls that make lanes
    std::string obstacle;            // why not
  };
  struct Options {
    std::unique_ptr<Provider> sockets;
    // Called once, at the first use, on a thread that may outlive the provider, so it owns what it
    // uses. An error: no link to another host can be made.
    std::function<Result<Found>()> find;
    bool isForced = false;                     // somebody named the fabric: no link goes without it
    std::string namedBy{};                     // where and how: "NCCL_NET=ofi"
    int trafficClass = kNoTrafficClass;        // of the links' packets
    device::SharedMemory* segments = nullptr;  // LaneSet's; outlives the provider
    std::chrono::milliseconds timeout{10'000};  // of finding it, too
    Clock* clock = &steadyClock();
  };
  explicit FabricProvider(Options options);
  ~FabricProvider() override;

  // The sockets' where there is no fabric; known once the contact is.
  const Caps& caps() const override { return *capsInUse_.load(std::memory_order_acquire); }
  void noteRanks(const RanksHere& ranks) override { options_.sockets->noteRanks(ranks); }
  Result<Progress> prepare() override;
  Result<Contact> contact() override;
  Result<std::vector<Adapter>> adapters() override;
  void expect(uint64_t number, std::shared_ptr<Worker> worker) override;
  void forget(uint64_t number) override;
  Result<std::unique_ptr<PendingConnection>> connect(const Contact& contact, const Caller& caller,
                                                     std::chrono::milliseconds timeout) override;
  Result<uint64_t> watch(Connection& connection, const Readiness& readiness,
                         std::shared_ptr<Worker> worker) override;
  void unwatch(uint64_t watch) override;

 private:
  class Arrival;
  class Pending;
  struct Appointment {
    std::unique_ptr<Meeting> meeting;
    uint64_t number = 0;             // a receiver's: what it expected
    std::shared_ptr<Worker> worker;  // a receiver's; shared with the link's end
    bool isOver = false;             // under mutex_
  };

  Result<Progress> tryOpen();
  Status open(std::unique_lock<std::mutex>& lock);
  Result<std::optional<Found>> find();
  Status startService();
  Status startLanes();
  void receive(uint64_t number, std::unique_ptr<Connection> control,
               std::shared_ptr<Worker> worker);
  Result<std::shared_ptr<Appointment>> meet(std::unique_ptr<Connection> control, std::string peer,
                                            Nanoseconds timeout, std::span<const size_t> adapters);
  bool isOver(const Appointment& appointment);
  void giveUp(const std::shared_ptr<Appointment>& appointment);
  Meeting::Options meetingOptions(std::string peer, Nanoseconds timeout,
                                  std::span<const size_t> adapters);
  void serve();
  void stepMeetings(std::unique_lock<std::mutex>& lock);
  void deliver(Appointment& appointment);
  Result<std::unique_ptr<Connection>> conclude(Meeting& meeting, std::string_view link);

  const Caps unknownCaps_{.name = "fabric"};
  Caps fabricCaps_{.name = "fabric"};  // written before they are in use
  Options options_;
  std::atomic<const Caps*> capsInUse_{&unknownCaps_};  // set once, under mutex_, with release

  // For the service's thread. Also told when lanes have moved, without the mutex: at worst that
  // thread sleeps out its pause. Shared with the lanes' thread.
  const std::shared_ptr<std::condition_variable> wake_ =
      std::make_shared<std::condition_variable>();
  std::mutex mutex_;  // guards all below
  bool isOpen_ = false;
  std::string hang_;  // of a search that did not end, where nothing takes the fabric's place
  Found found_;
  std::unique_ptr<CallThread> calls_;  // while there is a fabric, or may be
  std::shared_ptr<LaneThread> lanes_;  // shared with connections; null before the first, and where
                                       // none is needed
  Awaited<Found> search_;
  Instant searchEnd_{};  // when it has taken too long
  // Shared by the thread that steps it and, a sender's, the pending connection.
  std::vector<std::shared_ptr<Appointment>> appointments_;
  struct Watched {
    uint64_t watch = 0;
    std::shared_ptr<Worker> worker;  // shared with the connection's owner
  };
  std::vector<Watched> watched_;
  uint64_t nextWatch_ = 0;
  bool hasMoved_ = false;
  bool hasWarned_ = false;
  bool isStopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::net
