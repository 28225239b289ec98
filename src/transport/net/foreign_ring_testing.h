// For fuzz targets: a ring, and what goes with it, that another process has mapped and writes to as
// a fuzzer says.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "net/foreign_testing.h"
#include "wire/link.h"

namespace tutti::transport::net {

// Of exactly its length, so that a sanitizer sees what lies outside.
class ForeignRing {
 public:
  explicit ForeignRing(const wire::LinkGeometry& geometry)
      : bytes_(wire::linkBytes(geometry)),
        memory_(static_cast<std::byte*>(std::aligned_alloc(kCacheLineBytes, bytes_))),
        view_(wire::viewLink(memory_.get(), geometry)) {
    std::memset(memory_.get(), 0, bytes_);
  }
  const wire::LinkView& view() const { return view_; }
  bool holds(const void* address) const {
    const auto* at = static_cast<const std::byte*>(address);
    return at >= memory_.get() && at < memory_.get() + bytes_;
  }

  // One thing that its owner does: a message of any length and kind at the next number, or some
  // bytes anywhere.
  void befall(std::span<const std::byte>& input) {
    const auto kind = tutti::net::takeNumber<uint8_t>(input);
    if (kind < 128) {
      wire::MessageHead& message = view_.message(published_);
      message.bytes = kind < 64 ? kind : tutti::net::takeNumber<uint32_t>(input);
      message.signature = kind;
      message.kind = static_cast<wire::MessageKind>(kind >= 96 ? kind % 4 : 0);
      message.mark.store(++published_, std::memory_order_release);
      return;
    }
    poke({memory_.get(), bytes_}, input, kind);
  }

  // So many bytes of the input, at a place that it names.
  static void poke(std::span<std::byte> memory, std::span<const std::byte>& input, uint8_t count) {
    const size_t at = tutti::net::takeNumber<uint16_t>(input) % memory.size();
    const auto bytes =
        tutti::net::takeFront(input, std::min<size_t>(count % 32, memory.size() - at));
    std::ranges::copy(bytes, memory.subspan(at).begin());
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  const size_t bytes_;
  const std::unique_ptr<std::byte, Free> memory_;
  const wire::LinkView view_;
  uint64_t published_ = 0;
};

}  // namespace tutti::transport::net
