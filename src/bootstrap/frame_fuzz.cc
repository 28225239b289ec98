// libFuzzer entry: what may follow a handshake, and the messages in it. Build with clang
// -fsanitize=fuzzer,address.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bootstrap/frame.h"
#include "bootstrap/messages.h"

namespace tutti {
namespace {

void parse(std::span<const std::byte> bytes) {
  static_cast<void>(bootstrap::decodeReport(bytes));
  static_cast<void>(bootstrap::decodeAnswer(bytes, 8));
  static_cast<void>(bootstrap::decodeContact(bytes));
  const Status failure = bootstrap::decodeFailure(bytes);
  static_cast<void>(failure.ok());

  const bootstrap::Key key;
  bootstrap::FrameDecoder decoder(key);
  std::vector<bootstrap::Frame> frames;
  static_cast<void>(decoder.feed(bytes, frames));
  // The same bytes behind a good header reach the payload and the MAC.
  std::vector<std::byte> wire;
  bootstrap::FrameEncoder encoder(key);
  const size_t body =
      std::min(bytes.size(), bootstrap::maxPayloadBytes(bootstrap::FrameType::kMessage));
  if (body > 0) encoder.append(bootstrap::FrameType::kMessage, {}, bytes.first(body), wire);
  bootstrap::FrameDecoder second(key);
  static_cast<void>(second.feed(wire, frames));
  static_cast<void>(second.feed(bytes, frames));
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tutti::parse(std::as_bytes(std::span(data, size)));
  return 0;
}
