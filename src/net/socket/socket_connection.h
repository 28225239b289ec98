// Messages over one TCP connection: label (8 bytes, little endian), payload, and so on. TCP's own
// flow control stands for credits: who does not read makes the sender wait.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "net/net.h"

namespace tutti::net::socket {

class SocketConnection final : public Connection {
 public:
  // `fd` is connected, authenticated and non-blocking; `peer` says who is there, for messages.
  SocketConnection(UniqueFd fd, std::string peer);

  Progress send(const Label& label, std::span<const std::byte> payload) override;
  Result<Progress> flush() override;
  uint64_t sentCount() const override { return sentCount_; }
  void keepCopies() override;
  Result<Progress> receiveLabel(Label& label) override;
  Result<Progress> receivePayload(std::span<std::byte> payload) override;

  int fd() const { return fd_.get(); }

 private:
  struct Outgoing {
    Label label;
    std::span<const std::byte> payload;
    size_t bytes() const { return sizeof(Label) + payload.size(); }
  };

  void advance(size_t written);
  Result<Progress> fill(size_t most);
  Result<Progress> readPayload(std::span<std::byte> rest);
  size_t staged() const { return end_ - begin_; }
  Status ended(int errnoValue) const;

  static constexpr size_t kMaxOutgoing = 32;  // messages under way; a power of two
  const UniqueFd fd_;
  const std::string peer_;

  std::array<Outgoing, kMaxOutgoing> outgoing_;  // message m at m % kMaxOutgoing
  uint64_t takenCount_ = 0;
  uint64_t sentCount_ = 0;
  size_t written_ = 0;  // bytes of message sentCount_ that the system has taken
  std::vector<std::byte> copies_;

  // What was read beyond the payload asked for: labels and short messages come many at a time.
  std::vector<std::byte> stage_;
  size_t ahead_;  // bytes to read when a label is wanted; behind a long message just the next label
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t received_ = 0;  // bytes of the present payload
};

}  // namespace tutti::net::socket
