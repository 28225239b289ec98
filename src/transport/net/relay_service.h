// Carries links of other processes of this host to other hosts (PXN): their ring is memory of
// theirs, the pump and the connection are here. Whoever's rank this is need not call anything.
//
// One thread a process ("tutti-relay"), from the first link on: it moves what is there, and sleeps
// on the rings' next marks.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "bootstrap/handoff.h"
#include "net/net.h"
#include "transport/net/relay_wire.h"
#include "transport/net/slow_way.h"

namespace tutti::transport::net {

class CarriedLink;

// Thread-safe.
class RelayService {
 public:
  struct Options {
    tutti::net::Provider& provider;  // outlives the service
    bootstrap::HandoffToken token;   // who has it may ask
    std::chrono::milliseconds timeout;
    Clock& clock;
    std::shared_ptr<MeasuredLinks> others{};  // Pump's
  };
  explicit RelayService(const Options& options);
  ~RelayService();
  RelayService(const RelayService&) = delete;
  RelayService& operator=(const RelayService&) = delete;

  // For the hand-off service: a channel over which one link may be asked for; empty where the token
  // is another's. Does not block.
  UniqueFd open(const bootstrap::HandoffToken& token);
  // The process ends: no link is taken on any more, and none that is being made waits for its
  // sender, which goes directly. Until all whose links are carried have left, at most so long.
  void awaitOwners(Nanoseconds bound);

 private:
  struct SetUp {
    std::thread thread;
    bool isOver = false;  // under mutex_
  };

  Status startService();
  void joinFinished();
  void setUp(UniqueFd channel);
  Result<std::unique_ptr<tutti::net::Connection>> connect(const AskedLink& asked,
                                                          const RelayRequest& request, int channel);
  Result<std::unique_ptr<CarriedLink>> carry(UniqueFd channel, const RelayRequest& request);
  void serve();
  bool takeArrivals(std::vector<std::unique_ptr<CarriedLink>>& links);
  void dropEnded(std::vector<std::unique_ptr<CarriedLink>>& links);
  void sleep(std::span<const std::unique_ptr<CarriedLink>> links, uint64_t seen);
  void wake();

  const Options options_;
  // Raised, and woken, by whoever has something new for the thread; counts up, wraps never.
  std::atomic<uint64_t> news_{0};
  // Set once, with release; set-ups, which read it with acquire, wait for no sender then. No other
  // memory goes by it.
  std::atomic<bool> isEnding_{false};
  // Likewise; then they do not wait for receivers either. Written under mutex_.
  std::atomic<bool> isStopping_{false};

  std::mutex mutex_;  // guards all below
  std::condition_variable left_;
  std::list<SetUp> setUps_;  // a thread for each link that is being made
  std::vector<std::unique_ptr<CarriedLink>> arrivals_;
  size_t carriedCount_ = 0;  // those that have arrived, too
  std::thread thread_;
};

}  // namespace tutti::transport::net
