// Messages over TCP: label (8 bytes, little endian), payload, and so on, over a first connection;
// a long payload is cut into parts, one over each of several connections ("streams"). Which bytes
// go where follows from the label and the message's number, so parts carry nothing of their own.
// With checksums the label is followed by those of the payload and of itself. Before a long payload
// the head fills a cache line. The first message's head, where it is short, is a filler longer, and
// that of every second one of some length a little: both are for the receiver's acknowledgements
// (net/socket/intake.h).
// TCP's own flow control stands for credits: who does not read makes the sender wait.
//
// The caller (one thread at a time, net/net.h) moves all bytes itself, or gives long payloads'
// streams to their threads (net/socket/stream_threads.h), which then go on between calls; it takes
// back what these have not begun when it looks again, so that it moves bytes where it would only
// wait. Who may touch what:
// - A Stream's half for one direction, with that direction of its pipe, is its thread's while
//   something was given there that is not through, else the caller's. With the first stream's
//   receiving half goes what is staged.
// - Sending: given are the messages before Sending::givenCount, which are constant until all have
//   passed them; through are those before writtenCount. sentCount() is the least of these.
// - Receiving: one payload is under way, of which each stream's part is given once; it is through
//   when Receiving::isTheirs is false, and the last one counts Threads::partsUnderWay_ down to 0.
// - The caller looks at these words when it calls; it waits for nothing but, in stop() and
//   keepCopies(), the few system calls a thread may be in. Who sleeps watches the threads' Bell.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cache_lines.h"
#include "base/status.h"
#include "net/net.h"
#include "net/socket/first_fault.h"
#include "net/socket/pipe.h"
#include "net/socket/stream_threads.h"

namespace tutti::net::socket {

inline constexpr size_t kMaxStreams = 64;

class SocketConnection final : public Connection {
 public:
  // All are connected, authenticated and non-blocking, in the same order on both sides; `peer` says
  // who is there, for messages. Threads move long payloads over several streams; null, or none of
  // them, or no descriptor to be had: the caller moves all. They outlive the connection.
  // `isChecked`, the same on both sides: bytes that changed on their way are an error.
  SocketConnection(std::vector<Pipe> pipes, std::string peer, StreamThreads* threads = nullptr,
                   bool isChecked = false);
  ~SocketConnection() override;

  Progress send(const Label& label, std::span<const std::byte> payload) override;
  Result<Progress> flush() override;
  uint64_t sentCount() const override { return sentCount_; }
  void keepCopies(std::span<const std::byte> own) override;
  void stop() override;
  std::optional<Way> way() const override;
  uint64_t arrivedBytes() const override;
  Result<Progress> receiveLabel(Label& label) override;
  Result<Progress> receivePayload(std::span<std::byte> payload) override;

  // The descriptors at which what is waited for happens next.
  struct Watched {
    int fd = -1;
    bool toSend = false;
  };
  std::vector<Watched> toWatch(const Readiness& readiness);

 private:
  // What goes before a payload; the sums (CRC-32C) only where they are checked.
  struct Head {
    Label label;
    uint32_t payloadSum = 0;
    uint32_t ownSum = 0;                                                // of what is before it
    std::array<std::byte, kCacheLineBytes - 2 * sizeof(Label)> rest{};  // sent before long payloads

    uint32_t sum() const;
  };
  static_assert(sizeof(Head) == kCacheLineBytes);
  struct Outgoing {
    Head head;
    std::span<const std::byte> payload;
  };
  struct Stream {
    Pipe pipe;
    // Sending.
    uint64_t message = 0;  // the first of which not all has been written here
    size_t written = 0;    // bytes of it that have
    // Receiving.
    size_t received = 0;  // bytes of the present payload's part
  };
  class Threads;
  struct Part {
    size_t begin = 0;
    size_t end = 0;
    size_t bytes() const { return end - begin; }
  };

  Part partOf(uint64_t message, size_t payloadBytes, size_t stream) const;
  size_t headBytes(uint64_t message, size_t payloadBytes) const;
  size_t bytesOver(uint64_t message, size_t stream) const;
  bool hasUnsent(size_t stream) const { return streams_[stream].message != takenCount_; }
  size_t unsentBytes() const;
  void write(size_t stream);
  Progress writeOnce(size_t stream, uint64_t end);
  void advance(size_t stream, size_t written, uint64_t end);
  bool beginPayload(std::span<std::byte> payload);
  void readPart(size_t stream, std::span<std::byte> payload);
  void readFirst(std::span<std::byte> part, bool isLong);
  Progress readBehind(std::span<std::byte> rest);
  Result<Progress> stage(size_t bytes);
  Progress fill(size_t most);
  size_t staged() const { return end_ - begin_; }
  bool isAwaited(size_t stream) const;
  Status ended(int errnoValue) const;
  Status changed(std::string_view what, uint32_t wanted, uint32_t got);

  static constexpr size_t kMaxOutgoing = 32;  // messages under way; a power of two
  const std::string peer_;
  const bool isChecked_;
  const size_t shortHeadBytes_;  // that are sent of a head before a short payload
  std::vector<Stream> streams_;
  FirstFault sendFault_;
  FirstFault receiveFault_;

  std::array<Outgoing, kMaxOutgoing> outgoing_;  // message m at m % kMaxOutgoing
  uint64_t takenCount_ = 0;
  uint64_t sentCount_ = 0;
  std::vector<std::byte> copies_;

  // What was read of the first stream beyond the payload asked for: labels and short messages come
  // many at a time.
  std::vector<std::byte> stage_;
  size_t ahead_;  // bytes to stage when a label is wanted; behind a long message just the next head
  bool isEmptied_ = false;  // the last read took less than it could: the next look would find
                            // nothing
  size_t begin_ = 0;
  size_t end_ = 0;
  uint64_t labelCount_ = 0;   // received; the present payload is of the last
  uint32_t payloadSum_ = 0;   // that it should have
  bool isReceiving_ = false;  // a payload, of so many bytes
  size_t payloadBytes_ = 0;

  std::unique_ptr<Threads> threads_;  // null: the caller moves all
};

}  // namespace tutti::net::socket
