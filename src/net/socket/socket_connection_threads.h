// A connection's side of its streams' threads (net/socket/socket_connection.h says who may touch
// what): which stream is whose, how far each is, and what wakes whoever waits.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "base/units.h"
#include "net/socket/bell.h"
#include "net/socket/socket_connection.h"

namespace tutti::net::socket {

// From so many bytes on that are to be moved, a thread is worth waking.
inline constexpr size_t kGivenBytes = 128_KiB;

// All but the works' own functions by the connection's caller.
class SocketConnection::Threads {
 public:
  // Null: there are none, or no descriptor for the bell.
  static std::unique_ptr<Threads> open(SocketConnection& connection, StreamThreads& threads);
  Threads(SocketConnection& connection, StreamThreads& threads);
  ~Threads();

  // Gives what is unsent to the threads where it is much, or where they are at it; writes the rest,
  // and what they have not begun.
  void flush();
  bool isSending(size_t stream) const { return senders_[stream].isTheirs(); }
  // All streams are the caller's again, wherever they are.
  void retractSending();

  // Of the next payload. True: gives its parts to the threads, since they are long.
  bool begin(std::span<std::byte> payload);
  bool isReceiving(size_t stream) const {
    return receivers_[stream].isTheirs.load(std::memory_order_acquire);
  }
  // Takes back a part that its thread has not begun.
  void takeOne();
  // Parts of the present payload that are the threads'; 0: all streams are the caller's.
  size_t partsUnderWay() const { return partsUnderWay_.load(std::memory_order_seq_cst); }
  void retractReceiving();

  // What becomes readable when the threads have done what is waited for; -1: they have nothing to.
  int await(const Readiness& readiness);

 private:
  // One stream's. Its thread touches the stream while something is theirs, else the caller does.
  struct Sending final : StreamWork {
    Sending(Threads& owner, size_t stream) : threads(owner), place(stream) {}
    Progress move() override { return threads.sendSome(*this); }
    pollfd awaited() const override { return threads.awaited(place, POLLOUT); }
    bool isTheirs() const {
      return writtenCount.load(std::memory_order_acquire) <
             givenCount.load(std::memory_order_relaxed);
    }
    // Back from the thread, which does not touch it.
    void takeBack() {
      givenCount.store(writtenCount.load(std::memory_order_acquire), std::memory_order_relaxed);
    }
    Threads& threads;
    const size_t place;
    // Messages before this one the thread is to write: the caller's, raised (release) before a
    // post.
    std::atomic<uint64_t> givenCount{0};
    // Messages before this one are written here. By whose the stream is, behind all it does to it;
    // sequentially consistent, since a look at the bell follows.
    std::atomic<uint64_t> writtenCount{0};
  };
  struct Receiving final : StreamWork {
    Receiving(Threads& owner, size_t stream) : threads(owner), place(stream) {}
    Progress move() override { return threads.receiveSome(*this); }
    pollfd awaited() const override { return threads.awaited(place, POLLIN); }
    Threads& threads;
    const size_t place;
    // The present payload's part. Set by the caller before a post, cleared (release) by the thread
    // behind all it does to the stream.
    std::atomic<bool> isTheirs{false};
  };

  StreamThread& senderOf(size_t stream) { return threads_.sender(firstPlace_ + stream); }
  StreamThread& receiverOf(size_t stream) { return threads_.receiver(firstPlace_ + stream); }
  Progress sendSome(Sending& work);
  Progress receiveSome(Receiving& work);
  pollfd awaited(size_t stream, short events) const;
  uint64_t leastWritten() const;

  SocketConnection& connection_;
  StreamThreads& threads_;
  const size_t firstPlace_;
  Bell bell_;

  std::deque<Sending> senders_;
  uint64_t flushedCount_ = 0;  // messages that the last flush() knew
  // What the caller knew of to be sent when it began to wait. Before Bell::await().
  std::atomic<uint64_t> knownCount_{0};

  std::deque<Receiving> receivers_;
  std::span<std::byte> payload_;  // constant while parts are under way; empty: was not given
  // Counted down behind Receiving::isTheirs, sequentially consistent: as above.
  std::atomic<size_t> partsUnderWay_{0};
};

}  // namespace tutti::net::socket
