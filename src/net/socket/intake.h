// Reads what comes over a TCP connection whose messages go one way, so that short ones cost few
// acknowledgements. Nothing takes those along there, and the system sends one whenever a read has
// emptied the socket of its second message: a packet of its own, made before read() returns. So
// short messages are read but left in the socket (MSG_PEEK behind SO_PEEK_OFF, Linux 6.9; IPv6
// 6.12), a few of them, and let go when nothing is there to read: mostly after an answer. Short are
// those of which a few are no more than the longest segment that came: beyond it the system
// acknowledges at once, whoever reads.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "bootstrap/socket.h"

namespace tutti::net::socket {

// One socket's, by one thread at a time. Where the system cannot, it reads as anyone does.
class Intake {
 public:
  Intake();

  bootstrap::IoResult read(int fd, std::span<const iovec> pieces);
  // Lets go what was read. Before somebody waits for the socket, which would look readable, and
  // before it is closed, which would reset the connection.
  void settle(int fd);

 private:
  bootstrap::IoResult peek(int fd, std::span<const iovec> pieces);
  void count(int fd, size_t bytes);
  void countEmpty(int fd);
  void beginPeeking(int fd);
  void endPeeking();

  enum class Peeking : uint8_t { kNo, kYes, kRefused };
  Peeking peeking_ = Peeking::kNo;
  bool hasPlace_ = false;  // from which to peek: behind what was read
  size_t shortBytes_;
  uint32_t readsBefore_;     // short ones in a row before peeking pays
  uint32_t shortReads_ = 0;  // in a row
  uint32_t held_ = 0;        // reads whose bytes are still in the socket
  size_t heldBytes_ = 0;
  uint32_t emptyReads_ = 0;  // since the last that was not
};

}  // namespace tutti::net::socket
