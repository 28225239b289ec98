// libFuzzer entry: how the other process of a link agrees on a network with this one, and what then
// comes over the lanes. Build with clang -fsanitize=fuzzer,address.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "net/fabric_meeting.h"
#include "net/foreign_testing.h"

namespace tutti::net {
namespace {

using std::chrono::milliseconds;

constexpr size_t kSlotBytes = 64u << 10;

// Brings messages of the script: their lengths, as an adapter would say them, and their bytes.
class ForeignLane final : public Lane {
 public:
  ForeignLane(std::span<const std::byte>& script, bool isSender)
      : script_(script), isSender_(isSender) {}

  Result<Memory> enroll(std::span<std::byte>) override { return Memory{this}; }
  void release(Memory) override {}
  Result<Request> post(std::span<std::byte> bytes, Memory) override {
    if (count_ == kMaxRequests) return Request{};
    for (std::span<std::byte>& each : posted_) {
      if (each.data() != nullptr) continue;
      each = bytes;
      ++count_;
      return Request{&each};
    }
    return Request{};
  }
  Result<std::optional<size_t>> test(Request request) override {
    auto& posted = *static_cast<std::span<std::byte>*>(request.name);
    std::optional<size_t> moved = posted.size();
    if (!isSender_) {
      if (script_.empty()) return Status(Code::kSystemError, "the lane ends");
      moved = takeNumber<uint16_t>(script_);
      std::ranges::copy(takeFront(script_, std::min(*moved, posted.size())), posted.begin());
    }
    posted = {};
    --count_;
    return moved;
  }

 private:
  std::span<const std::byte>& script_;
  const bool isSender_;
  std::array<std::span<std::byte>, kMaxRequests> posted_;
  size_t count_ = 0;
};

// A lane comes with the second look, or not at all, as the other side's handle says.
class ForeignEnd final : public LaneListener, public LaneDialer {
 public:
  ForeignEnd(std::span<const std::byte>& script, bool isSender)
      : script_(script), isSender_(isSender) {}
  const LaneHandle& handle() const override { return handle_; }
  void hear(const LaneHandle& answer) override { handle_ = answer; }
  Result<std::unique_ptr<Lane>> accept() override { return connect(); }
  Result<std::unique_ptr<Lane>> connect() override {
    if (handle_[0] == std::byte{0xff}) return Status(Code::kSystemError, "no such peer");
    if (handle_[0] == std::byte{0xfe} || ++looks_ < 2) return std::unique_ptr<Lane>();
    return std::unique_ptr<Lane>(std::make_unique<ForeignLane>(script_, isSender_));
  }

 private:
  std::span<const std::byte>& script_;
  const bool isSender_;
  LaneHandle handle_{};
  int looks_ = 0;
};

class ForeignFabric final : public Fabric {
 public:
  ForeignFabric(std::span<const std::byte>& script, size_t deviceCount)
      : script_(script),
        caps_{.name = "foreign",
              .deviceCount = deviceCount,
              .maxMessageBytes = kSlotBytes,
              .description = {}} {}
  const Caps& caps() const override { return caps_; }
  Result<std::unique_ptr<LaneListener>> listen(const LanePlace& place) override {
    if (place.device >= caps_.deviceCount) std::abort();
    return std::unique_ptr<LaneListener>(std::make_unique<ForeignEnd>(script_, false));
  }
  Result<std::unique_ptr<LaneDialer>> dial(const LanePlace& place,
                                           const LaneHandle& handle) override {
    if (place.device >= caps_.deviceCount) std::abort();
    auto end = std::make_unique<ForeignEnd>(script_, true);
    end->hear(handle);
    return std::unique_ptr<LaneDialer>(std::move(end));
  }

 private:
  std::span<const std::byte>& script_;
  const Caps caps_;
};

struct Setting {
  bool isSender = false;
  bool hasFabric = false;
  size_t deviceCount = 1;
  bool namesAdapters = false;
};

Setting settingOf(uint8_t bits) {
  return {.isSender = (bits & 1) != 0,
          .hasFabric = (bits & 2) == 0,
          .deviceCount = 1u + ((bits >> 2) & 7),
          .namesAdapters = (bits & 32) != 0};
}

void use(Connection& connection, bool isSender) {
  const std::vector<std::byte> payload(kSlotBytes);
  for (const uint32_t bytes : {0u, 100u, 40'000u}) {
    if (!isSender) break;
    [[maybe_unused]] const Progress taken =
        connection.send({.bytes = bytes, .signature = 1}, std::span(payload).first(bytes));
    [[maybe_unused]] const Result<Progress> flushed = connection.flush();
  }
  Reader reader(connection, kSlotBytes);
  // Some looks find nothing: a fabric's receiver looks at its control connection now and then.
  for (int look = 0; look < 20'000 && reader.brought().end.empty(); ++look) reader.takeOne();
}

// The first byte is the setting, the second the size of the control connection's pieces less one,
// the next two say how many bytes that brings; the rest comes over lanes.
void play(std::span<const std::byte> input) {
  const Setting setting = settingOf(takeNumber<uint8_t>(input));
  const size_t piece = size_t{1} + takeNumber<uint8_t>(input);
  const auto script = takeFront(input, takeNumber<uint16_t>(input));
  ManualClock clock;
  const auto fabric = std::make_shared<ForeignFabric>(input, setting.deviceCount);
  Meeting::Options options{.fabric = setting.hasFabric ? fabric : nullptr,
                           .obstacle = "no fabric here",
                           .peer = "rank 3",
                           .clock = clock,
                           .patience = milliseconds(100),
                           .deadline = clock.now() + milliseconds(8'000)};
  if (setting.namesAdapters) options.adapters = {setting.deviceCount - 1};
  auto control = std::make_unique<ForeignConnection>(script, piece);
  const auto meeting = setting.isSender ? meetAsSender(std::move(control), std::move(options))
                                        : meetAsReceiver(std::move(control), std::move(options), 1);
  for (int steps = 0; !meeting->step(); ++steps) {
    if (steps > 10'000) std::abort();
    clock.advance(milliseconds(1));
  }
  Result<std::unique_ptr<Connection>> connection = meeting->take();
  if (!connection.ok()) return;
  // Whoever goes without a fabric knows why.
  if (meeting->isOverFabric() != meeting->obstacle().empty()) std::abort();
  use(**connection, setting.isSender);
}

}  // namespace
}  // namespace tutti::net

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) tutti::net::play(std::as_bytes(std::span(data, size)));
  return 0;
}
