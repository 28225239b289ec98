// For fuzz targets: another process at the far end of a connection, which sends what a fuzzer says.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "base/crc32c.h"
#include "net/net.h"

namespace tutti::net {

// The front of the input, at most so many bytes, which are then gone from it.
inline std::span<const std::byte> takeFront(std::span<const std::byte>& input, size_t bytes) {
  const auto front = input.first(std::min(bytes, input.size()));
  input = input.subspan(front.size());
  return front;
}
// What the input does not say is 0.
template <typename T>
T takeNumber(std::span<const std::byte>& input) {
  T number{};
  const auto bytes = takeFront(input, sizeof number);
  if (!bytes.empty()) std::memcpy(&number, bytes.data(), bytes.size());
  return number;
}

// Brings these bytes, at most `piece` of them with each look, then its end. What is sent over it is
// read, all of it, and forgotten.
class ForeignConnection final : public Connection {
 public:
  ForeignConnection(std::span<const std::byte> script, size_t piece)
      : script_(script), piece_(piece) {}

  Progress send(const Label& label, std::span<const std::byte> payload) override {
    if ((label.bytes & ~kNotice) != payload.size()) std::abort();
    sum_ = crc32c(payload, sum_);
    ++taken_;
    return Progress::kAdvanced;
  }
  Result<Progress> flush() override {
    sent_ = taken_;
    return Progress::kDone;
  }
  uint64_t sentCount() const override { return sent_; }
  Result<Progress> receiveLabel(Label& label) override {
    if (label_.size() < sizeof label) {
      const auto come = takeFront(script_, std::min(piece_, sizeof label - label_.size()));
      label_.insert(label_.end(), come.begin(), come.end());
      if (label_.size() < sizeof label) return idleOrEnd();
    }
    std::memcpy(&label, label_.data(), sizeof label);
    label_.clear();
    received_ = 0;
    return Progress::kDone;
  }
  Result<Progress> receivePayload(std::span<std::byte> payload) override {
    const auto come = takeFront(script_, std::min(piece_, payload.size() - received_));
    std::ranges::copy(come, payload.subspan(received_).begin());
    received_ += come.size();
    return received_ == payload.size() ? Progress::kDone : idleOrEnd();
  }

 private:
  Result<Progress> idleOrEnd() const {
    if (!script_.empty()) return Progress::kIdle;
    return Status(Code::kRemoteError, "the connection was closed");
  }

  std::span<const std::byte> script_;
  const size_t piece_;
  std::vector<std::byte> label_;
  size_t received_ = 0;
  uint64_t taken_ = 0;
  uint64_t sent_ = 0;
  uint32_t sum_ = 0;
};

// What a connection brings a reader who takes no longer messages than a link's slots do.
struct Brought {
  std::vector<Label> labels;
  std::vector<std::vector<std::byte>> payloads;
  std::string end;  // why there was no more; empty: nothing more came

  bool operator==(const Brought& other) const {
    const auto isSame = [](const Label& a, const Label& b) {
      return a.bytes == b.bytes && a.signature == b.signature;
    };
    return std::ranges::equal(labels, other.labels, isSame) && payloads == other.payloads &&
           end == other.end;
  }
};

class Reader {
 public:
  Reader(Connection& connection, size_t slotBytes)
      : connection_(connection), slotBytes_(slotBytes) {}

  // False: nothing more is there now, or ever (`brought().end` says why).
  bool takeOne() {
    if (!brought_.end.empty()) return false;
    Result<bool> taken = tryOne();
    if (!taken.ok()) brought_.end = taken.status().message();
    return taken.ok() && *taken;
  }
  const Brought& brought() const { return brought_; }

 private:
  Result<bool> tryOne() {
    if (!hasLabel_) {
      TUTTI_TRY_ASSIGN(const Progress progress, connection_.receiveLabel(label_));
      if (progress == Progress::kIdle) return false;
      const bool isNotice = (label_.bytes & kNotice) != 0;
      const size_t bytes = label_.bytes & ~kNotice;
      if (bytes > (isNotice ? kMaxNoticeBytes : slotBytes_))
        return Status(Code::kRemoteError, "too long");
      hasLabel_ = true;
      payload_.assign(bytes, std::byte{0});
    }
    TUTTI_TRY_ASSIGN(const Progress progress, connection_.receivePayload(payload_));
    if (progress == Progress::kIdle) return false;
    hasLabel_ = false;
    brought_.labels.push_back(label_);
    brought_.payloads.push_back(std::move(payload_));
    if ((label_.bytes & kNotice) != 0) return Status(Code::kRemoteError, "it has left");
    return true;
  }

  Connection& connection_;
  const size_t slotBytes_;
  Label label_;
  bool hasLabel_ = false;
  std::vector<std::byte> payload_;
  Brought brought_;
};

}  // namespace tutti::net
