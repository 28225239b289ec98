#include "bootstrap/frame.h"

#include <sodium.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "bootstrap/bytes.h"
#include "bootstrap/messages.h"

namespace tutti::bootstrap {
namespace {

constexpr size_t kTypeAt = 4;
constexpr size_t kZeroAt = 6;
constexpr size_t kCounterAt = 8;

static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == kFrameMacBytes);
static_assert(crypto_aead_chacha20poly1305_ietf_KEYBYTES == sizeof(Key));
static_assert(crypto_aead_chacha20poly1305_ietf_NPUBBYTES == kCounterNonceBytes);

}  // namespace

std::string_view toText(FrameFault fault) {
  switch (fault) {
    case FrameFault::kNone: return "none";
    case FrameFault::kType: return "an unknown frame type";
    case FrameFault::kLength: return "a frame length out of bounds";
    case FrameFault::kReserved: return "a reserved field that is not zero";
    case FrameFault::kCounter: return "a repeated or missing frame";
    case FrameFault::kMac: return "a frame changed on its way";
  }
  return "";
}

size_t maxPayloadBytes(FrameType type) {
  switch (type) {
    case FrameType::kReport: return 512;
    case FrameType::kAnswer: return 16_KiB;
    case FrameType::kFailure: return 16_KiB;
    case FrameType::kMessage: return 1_MiB + 16;
    case FrameType::kCollective: return 1_MiB + 16;
    case FrameType::kFarewell: return 1_KiB;
    case FrameType::kProbe: return sizeof(uint64_t);
    case FrameType::kSign: return sizeof(uint64_t) + kMaxWordsBytes;
  }
  return 0;
}

void FrameEncoder::append(FrameType type, std::span<const std::byte> head,
                          std::span<const std::byte> body, std::vector<std::byte>& out) {
  std::array<std::byte, kFrameHeaderBytes> header{};
  const size_t length = head.size() + body.size();
  storeLittle(header.data(), static_cast<uint32_t>(length));
  storeLittle(&header[kTypeAt], static_cast<uint16_t>(type));
  storeLittle(&header[kCounterAt], counter_);
  const size_t begin = out.size();
  out.reserve(begin + header.size() + length + kFrameMacBytes);
  out.insert(out.end(), header.begin(), header.end());
  out.insert(out.end(), head.begin(), head.end());
  out.insert(out.end(), body.begin(), body.end());
  out.resize(out.size() + kFrameMacBytes);
  unsigned char* payload = raw(out.data() + begin + header.size());
  const auto nonce = nonceOf(counter_++);
  crypto_aead_chacha20poly1305_ietf_encrypt(payload, nullptr, payload, length, raw(header.data()),
                                            header.size(), nullptr, nonce.data(),
                                            key_.bytes().data());
}

FrameFault FrameDecoder::feed(std::span<const std::byte> bytes, std::vector<Frame>& frames) {
  while (!bytes.empty() && fault_ == FrameFault::kNone) {
    const std::span<std::byte> field = currentField();
    const size_t count = std::min(field.size(), bytes.size());
    std::copy_n(bytes.begin(), count, field.begin());
    bytes = bytes.subspan(count);
    filled_ += count;
    if (count < field.size()) break;
    if (filled_ == kFrameHeaderBytes) fault_ = takeHeader();
    if (filled_ == kFrameHeaderBytes + frame_.payload.size() + kFrameMacBytes) {
      fault_ = takeFrame(frames);
    }
  }
  return fault_;
}

// Where the next byte goes: header, then payload, then MAC. Never empty: a good header has a
// payload.
std::span<std::byte> FrameDecoder::currentField() {
  if (filled_ < kFrameHeaderBytes) return std::span(header_).subspan(filled_);
  const size_t past = filled_ - kFrameHeaderBytes;
  if (past < frame_.payload.size()) return std::span(frame_.payload).subspan(past);
  return std::span(mac_).subspan(past - frame_.payload.size());
}

FrameFault FrameDecoder::takeHeader() {
  const auto length = loadLittle<uint32_t>(header_.data());
  const auto type = static_cast<FrameType>(loadLittle<uint16_t>(&header_[kTypeAt]));
  const size_t limit = maxPayloadBytes(type);
  if (limit == 0) return FrameFault::kType;
  if (loadLittle<uint16_t>(&header_[kZeroAt]) != 0) return FrameFault::kReserved;
  if (length == 0 || length > limit) return FrameFault::kLength;
  if (loadLittle<uint64_t>(&header_[kCounterAt]) != nextCounter_) return FrameFault::kCounter;
  frame_.type = type;
  frame_.payload.resize(length);
  return FrameFault::kNone;
}

FrameFault FrameDecoder::takeFrame(std::vector<Frame>& frames) {
  unsigned char* payload = raw(frame_.payload.data());
  const auto nonce = nonceOf(nextCounter_);
  const int opened = crypto_aead_chacha20poly1305_ietf_decrypt_detached(
      payload, nullptr, payload, frame_.payload.size(), raw(mac_.data()), raw(header_.data()),
      header_.size(), nonce.data(), key_.bytes().data());
  if (opened != 0) return FrameFault::kMac;
  frames.push_back(std::exchange(frame_, Frame()));
  filled_ = 0;
  ++nextCounter_;
  return FrameFault::kNone;
}

}  // namespace tutti::bootstrap
