// One TCP connection of a link: bytes as they are, or sealed, as TUTTI_SECURE says.
//
// Sealed bytes travel as records: length u32 (little endian, of the plain bytes), these encrypted,
// tag 16. The tag covers the length, and the record's number in its direction is the nonce: a
// record that is changed, repeated, left out or reordered does not open. Each direction of each
// connection has a key of its own, of the handshake that opened it.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/fd.h"
#include "bootstrap/key.h"
#include "bootstrap/socket.h"
#include "net/socket/intake.h"
#include "net/socket/send_buffer.h"

namespace tutti::net::socket {

// As connections say it in their hello. AES-256-GCM wants hardware on both sides.
enum class Cipher : uint32_t { kNone = 0, kChaCha20Poly1305 = 1, kAes256Gcm = 2 };

std::string_view toText(Cipher cipher);
bool isKnown(Cipher cipher);
// Whether this machine's processor has what AES-256-GCM wants.
bool hasAes();

// What seals one end of a connection.
struct PipeKeys {
  bootstrap::Key send;
  bootstrap::Key receive;
};

// Used as a descriptor is: by one thread at a time for each direction; nothing blocks.
class Pipe {
 public:
  explicit Pipe(UniqueFd fd);
  Pipe(UniqueFd fd, Cipher cipher, const PipeKeys& keys);
  Pipe(Pipe&& other) noexcept;
  Pipe& operator=(Pipe&& other) noexcept;
  ~Pipe();

  int fd() const { return fd_.get(); }

  // Of a connection that sends over a way of this speed: bounds what the system holds of it.
  void boundSendBuffer(size_t mbit);
  // Bytes that were handed to the system, in the order of the pieces. After kWouldBlock of a sealed
  // pipe the next call's pieces must begin with the same bytes: some may be under way already.
  bootstrap::IoResult write(std::span<const iovec> pieces);
  // kClosed with EBADMSG: a record was not the other side's next. A count below the pieces' bytes
  // says that no more is there now.
  bootstrap::IoResult read(std::span<const iovec> pieces);
  // Acknowledges what comes with what goes out, or after two segments, or 40 ms; until the system
  // finds the connection idle. TCP alone would answer each short message with a packet of its own.
  void holdAcks();
  // Before somebody waits for the descriptor: nothing that was read makes it readable.
  void settle() { intake_.settle(fd_.get()); }
  // Bytes that read() gives without the descriptor, which says nothing of them.
  bool hasMore() const;

 private:
  class Seal;
  bootstrap::IoResult writePlain(std::span<const iovec> pieces);

  UniqueFd fd_;
  Intake intake_;
  std::unique_ptr<Seal> seal_;  // null: in the clear
  SendBuffer sendBuffer_;
};

}  // namespace tutti::net::socket
