// The root: where the ranks of one job meet. Ranks of its own process report by a call, others over
// authenticated connections served by one thread ("tutti-root"). A root for a job that lives in one
// process has neither socket nor thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "base/service_thread.h"
#include "base/status.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/frame.h"
#include "bootstrap/meeting.h"
#include "bootstrap/poller.h"

namespace tutti::bootstrap {

class Root {
 public:
  struct Options {
    Key key;
    std::string job;                       // its public name, for messages
    std::chrono::milliseconds timeout{0};  // how long to stay for late-comers when nobody here uses
                                           // the job; and before the user hears who is missing
    std::chrono::milliseconds helloTimeout{5'000};
    bool isReusable = false;  // NCCL_COMM_ID: the address must be free for the next job at once
    Clock* clock = &steadyClock();
    Rng* rng = &systemRng();
  };

  // For jobs of one process.
  static std::shared_ptr<Root> makeLocal(Options options);
  // Takes over a listening socket and starts the thread.
  static Result<std::shared_ptr<Root>> open(UniqueFd listener, Options options);

  // Joins the thread; ranks that still wait for an answer are told.
  ~Root();

  const SocketAddress& address() const { return address_; }  // empty when local

  // What a rank of this process waits with.
  struct Wait {
    const std::atomic<bool>* abort = nullptr;  // may be null
    // May be null. Not null in it: why the rank has failed at another root, which is what the
    // ranks here are told. Stored with release once it is made, read with acquire; it outlives
    // meet(). A flag would leave the others with "gave up".
    const std::atomic<const Status*>* failure = nullptr;
    // Called when ranks of other processes are in the job: makes this process listen. Under the
    // root's lock.
    std::function<Result<SocketAddress>()> listen;
  };
  // A rank of this process comes, and waits until all have, for report.timeout. Counts as a user of
  // the root from here on, also after an error. Any thread.
  Result<Answer> meet(const Report& report, const Wait& wait);

  // A rank of this process, which had not come to meet(), never will.
  void giveUp(Rank rank, std::string_view who, std::string_view why);

  // A user is gone. True when the root has nothing left to do and may be destroyed.
  bool leave();

  bool isGathering() const;
  size_t presentCount() const;  // ranks that have come so far
  // The thread has ended by itself, or there was none and the job is over.
  bool isFinished() const;
  Acceptor::Counters counters() const;

 private:
  struct Connection {
    UniqueFd fd;
    FrameDecoder decoder;
    FrameEncoder encoder;
    Introduction introduction;
    Instant reportDeadline{};
    bool hasReported = false;
    Status refusal{};  // not ok: it reported after the end
    bool isAnswered = false;
    bool isDone = false;  // the answer is written
    std::vector<std::byte> out;
    size_t written = 0;
  };
  using Connections = std::unordered_map<uint64_t, Connection>;

  explicit Root(Options options);
  void serve();
  bool serveOnce(std::span<const Poller::Event> events);
  void admit(std::vector<Accepted>& accepted);
  bool onReadable(Connection& connection);
  bool isOwedAnswer(const Connection& connection);
  void dropSilent(Instant now);
  bool takeReport(Connection& connection, const Frame& frame);
  void drop(Connections::iterator which, std::string_view why);
  void expire(Instant now);
  void settle();
  void openLocalListener();
  void answerAll();
  void answer(uint64_t key, Connection& connection);
  static bool flush(Connection& connection);
  std::string_view obstacle() const;
  bool isAnswering() const;
  bool isWaitingForLateComers() const;
  bool close();
  bool mayEnd(Instant now) const;
  std::optional<Instant> nextTime() const;

  // Constant after construction.
  Options options_;
  SocketAddress address_;

  mutable std::mutex mutex_;  // guards all below but poller_ and thread_
  std::condition_variable changed_;
  Meeting meeting_;
  int localUsers_ = 0;
  bool hadLocalUser_ = false;
  bool isStopping_ = false;
  bool isFinished_ = false;
  std::optional<Instant> overSince_;
  std::function<Result<SocketAddress>()> listenLocally_;
  uint64_t localProcess_ = 0;
  std::string localName_;  // of the rank that came last
  uint64_t nextKey_ = Acceptor::kFirstFreeKey;
  Connections connections_;
  std::unique_ptr<Poller> poller_;  // before the acceptor, which uses it
  std::unique_ptr<Acceptor> acceptor_;
  std::thread thread_;
};

}  // namespace tutti::bootstrap
