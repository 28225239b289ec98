// libFuzzer entry: whatever a stranger sends first. Build with clang -fsanitize=fuzzer,address.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "bootstrap/handshake.h"

namespace tutti {
namespace {

// The first byte is the size of the pieces, less one.
void play(std::span<const std::byte> input) {
  SeededRng rng(1);
  const bootstrap::Key key;
  bootstrap::ServerHandshake server(key, bootstrap::Purpose::kReport);
  bootstrap::ClientHandshake client(key, {}, rng);
  const size_t piece = size_t{1} + static_cast<size_t>(input[0]);
  std::span<const std::byte> rest = input.subspan(1);
  while (!rest.empty()) {
    const auto bytes = rest.first(std::min(piece, rest.size()));
    static_cast<void>(server.feed(bytes, rng));
    static_cast<void>(client.feed(bytes));
    rest = rest.subspan(bytes.size());
  }
  if (server.isDone() || client.isDone()) std::abort();
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) tutti::play(std::as_bytes(std::span(data, size)));
  return 0;
}
