// Frames: what travels on a connection after its handshake. Pure: bytes in, frames out.
//
//   length u32 (of the payload), type u16, zero u16, counter u64, payload, MAC 16
//
// The payload is encrypted and, with the header, authenticated (ChaCha20-Poly1305, RFC 8439) under
// the key of the connection's direction; the counter is the nonce. It starts at 0 and must be the
// next one, so no frame can be repeated, left out or reordered. Any violation ends the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "bootstrap/key.h"

namespace tutti::bootstrap {

inline constexpr size_t kFrameHeaderBytes = 16;
inline constexpr size_t kFrameMacBytes = 16;

enum class FrameType : uint16_t {
  kReport = 1,      // rank → root: who and where I am
  kAnswer = 2,      // root → rank: the peers to start with
  kFailure = 3,     // root → rank: why the job cannot start
  kMessage = 4,     // rank → rank: tag and bytes
  kCollective = 5,  // rank → rank: a step of an all-gather
  kFarewell = 6,    // rank → rank: why I leave before my time
  kProbe = 7,       // rank → rank: is your process there? Its service answers, not its user
  kSign = 8,        // rank → rank: it is, and what it has to say (Endpoint::say)
};

struct Frame {
  FrameType type = FrameType::kMessage;
  std::vector<std::byte> payload;
};

enum class FrameFault : uint8_t { kNone, kType, kLength, kReserved, kCounter, kMac };

// "a length out of bounds", for the log.
std::string_view toText(FrameFault fault);

// The largest payload of this type; 0 for a type that does not exist. No payload is empty.
size_t maxPayloadBytes(FrameType type);

class FrameEncoder {
 public:
  explicit FrameEncoder(const Key& key) : key_(key) {}
  // Appends one frame to `out`. REQUIRES: 1 to maxPayloadBytes(type) bytes in head and body
  // together.
  void append(FrameType type, std::span<const std::byte> head, std::span<const std::byte> body,
              std::vector<std::byte>& out);

 private:
  Key key_;
  uint64_t counter_ = 0;
};

// Takes bytes in pieces of any size. Memory: at most one frame's payload, set aside only after its
// header was found good.
class FrameDecoder {
 public:
  explicit FrameDecoder(const Key& key) : key_(key) {}

  // Appends the frames that these bytes complete. Anything but kNone: drop the connection; later
  // bytes are not looked at. Frames appended before the fault are good.
  FrameFault feed(std::span<const std::byte> bytes, std::vector<Frame>& frames);

  // True between frames: the connection may end here without loss.
  bool isAtBoundary() const { return filled_ == 0; }

 private:
  FrameFault takeHeader();
  FrameFault takeFrame(std::vector<Frame>& frames);
  std::span<std::byte> currentField();

  Key key_;
  uint64_t nextCounter_ = 0;
  FrameFault fault_ = FrameFault::kNone;
  size_t filled_ = 0;  // bytes of the current frame seen so far
  std::array<std::byte, kFrameHeaderBytes> header_{};
  std::array<std::byte, kFrameMacBytes> mac_{};
  Frame frame_;
};

}  // namespace tutti::bootstrap
