// Messages over TCP: label (8 bytes, little endian), payload, and so on, over a first connection;
// a long payload is cut into parts, one over each of several connections ("streams"). Which bytes
// go where follows from the label and the message's number, so parts carry nothing of their own.
// With checksums the label is followed by those of the payload and of itself. Before a long payload
// the head fills a cache line. The first message's head, where it is short, is a filler longer, and
// that of every second one of some length a little: both are for the receiver's acknowledgements
// (net/socket/intake.h).
// TCP's own flow control stands for credits: who does not read makes the sender wait.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cache_lines.h"
#include "base/status.h"
#include "net/net.h"
#include "net/socket/helpers.h"
#include "net/socket/pipe.h"

namespace tutti::net::socket {

inline constexpr size_t kMaxStreams = 64;

class SocketConnection final : public Connection {
 public:
  // All are connected, authenticated and non-blocking, in the same order on both sides; `peer` says
  // who is there, for messages. Helpers move the bytes of several streams at once; null: the caller
  // moves all. They outlive the connection. `isChecked`, the same on both sides: bytes that changed
  // on their way are an error.
  SocketConnection(std::vector<Pipe> pipes, std::string peer, Helpers* helpers = nullptr,
                   bool isChecked = false);

  Progress send(const Label& label, std::span<const std::byte> payload) override;
  Result<Progress> flush() override;
  uint64_t sentCount() const override { return sentCount_; }
  void keepCopies() override;
  std::optional<Way> way() const override;
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
  // Touched by one thread at a time, which may be a helper's during flush() and receivePayload().
  struct Stream {
    Pipe pipe;
    uint64_t message = 0;  // the first of which not all has been written here
    size_t written = 0;    // bytes of it that have
    size_t received = 0;   // bytes of the present payload's part
    Status sendFault{};
    Status receiveFault{};
  };
  struct Part {
    size_t begin = 0;
    size_t end = 0;
    size_t bytes() const { return end - begin; }
  };

  Part partOf(uint64_t message, size_t payloadBytes, size_t stream) const;
  size_t headBytes(uint64_t message, size_t payloadBytes) const;
  size_t bytesOver(uint64_t message, size_t stream) const;
  bool hasUnsent(size_t stream) const { return streams_[stream].message != takenCount_; }
  template <typename Work>
  Status onStreams(size_t wantedBytes, Status Stream::*fault, const Work& work);
  void write(size_t stream);
  void advance(size_t stream, size_t written);
  void readPart(size_t stream, std::span<std::byte> payload);
  void readFirst(std::span<std::byte> part, bool isLong);
  Progress readBehind(std::span<std::byte> rest);
  Result<Progress> stage(size_t bytes);
  Progress fill(size_t most);
  size_t staged() const { return end_ - begin_; }
  Status ended(int errnoValue) const;
  Status changed(std::string_view what, uint32_t wanted, uint32_t got);

  static constexpr size_t kMaxOutgoing = 32;  // messages under way; a power of two
  const std::string peer_;
  Helpers* const helpers_;
  const bool isChecked_;
  const size_t shortHeadBytes_;  // that are sent of a head before a short payload
  std::vector<Stream> streams_;

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
};

}  // namespace tutti::net::socket
