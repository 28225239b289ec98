// Tests only: a network that a seed drives. Bytes are taken in pieces, are under way for a while,
// are held back where nobody reads, and end where a wire is cut; the services of virtual processes
// run one step at a time, also too late and for nothing.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "net/net.h"
#include "transport/net/bare_provider_testing.h"

namespace tutti::transport::net {

// One direction.
struct VirtualWire {
  std::deque<std::byte> flying;
  std::deque<std::byte> arrived;
  size_t capacity = 64;
  bool isEnded = false;   // its reader finds the end behind what has arrived
  bool isBroken = false;  // its writer is told so

  size_t room() const { return capacity - std::min(capacity, flying.size() + arrived.size()); }
  bool isReadable() const { return !arrived.empty() || (isEnded && flying.empty()); }
  bool deliver(SeededRng& rng) {
    if (flying.empty()) return false;
    const auto end = flying.begin() + static_cast<ptrdiff_t>(1 + rng.below(flying.size()));
    arrived.insert(arrived.end(), flying.begin(), end);
    flying.erase(flying.begin(), end);
    return true;
  }
  void cut() {
    flying.clear();
    isEnded = isBroken = true;
  }
};

class VirtualConnection final : public tutti::net::Connection {
 public:
  // `alive` counts connections.
  VirtualConnection(VirtualWire& out, VirtualWire& in, SeededRng& rng, int& alive)
      : out_(out), in_(in), rng_(rng), alive_(alive), mostTaken_(1 + rng.below(6)) {
    ++alive_;
  }
  ~VirtualConnection() override {
    out_.isEnded = true;
    in_.isBroken = true;
    --alive_;
  }

  Progress send(const tutti::net::Label& label, std::span<const std::byte> payload) override {
    if (taken_.size() >= mostTaken_) return Progress::kIdle;
    taken_.push_back({.label = label, .payload = payload, .copy = {}});
    return Progress::kAdvanced;
  }
  Result<Progress> flush() override {
    while (!taken_.empty()) {
      if (out_.isBroken) return Status(Code::kRemoteError, "the wire was cut");
      Taken& first = taken_.front();
      const size_t all = sizeof first.label + first.payload.size();
      const size_t some = std::min({out_.room(), all - first.written, upTo(all)});
      if (some == 0) return Progress::kIdle;
      for (size_t i = 0; i < some; ++i) out_.flying.push_back(byteOf(first, first.written++));
      if (first.written == all) {
        taken_.pop_front();
        ++sent_;
      }
      if (rng_.below(4) == 0 && !taken_.empty()) return Progress::kIdle;
    }
    return Progress::kDone;
  }
  uint64_t sentCount() const override { return sent_; }
  void keepCopies(std::span<const std::byte>) override {
    for (Taken& each : taken_) {
      each.copy.assign(each.payload.begin(), each.payload.end());
      each.payload = each.copy;
    }
  }

  Result<Progress> receiveLabel(tutti::net::Label& label) override {
    EXPECT_EQ(into_, nullptr) << "a label is asked for amid a payload";
    if (staged_.size() < sizeof label) read(upTo(40), staged_);
    if (staged_.size() < sizeof label) return idleOrEnd();
    std::memcpy(&label, staged_.data(), sizeof label);
    staged_.erase(staged_.begin(), staged_.begin() + sizeof label);
    return Progress::kDone;
  }
  Result<Progress> receivePayload(std::span<std::byte> payload) override {
    if (into_ != nullptr) {
      EXPECT_EQ(into_, payload.data()) << "the place of a payload has changed";
    }
    into_ = payload.data();
    const size_t wanted = payload.size() - received_;
    if (staged_.size() < wanted) read(std::min(wanted - staged_.size(), upTo(wanted)), staged_);
    const size_t some = std::min(staged_.size(), wanted);
    std::copy_n(staged_.begin(), some, payload.subspan(received_).begin());
    staged_.erase(staged_.begin(), staged_.begin() + static_cast<ptrdiff_t>(some));
    received_ += some;
    if (received_ != payload.size()) return idleOrEnd();
    into_ = nullptr;
    received_ = 0;
    return Progress::kDone;
  }

  bool isReady(const tutti::net::Readiness& readiness) const {
    return (readiness.toReceive && (in_.isReadable() || out_.isBroken)) ||
           (readiness.toSend && !taken_.empty() && (out_.room() > 0 || out_.isBroken));
  }

 private:
  struct Taken {
    tutti::net::Label label;
    std::span<const std::byte> payload;
    std::vector<std::byte> copy;
    size_t written = 0;
  };

  static std::byte byteOf(const Taken& message, size_t at) {
    const auto label = std::as_bytes(std::span(&message.label, 1));
    return at < label.size() ? label[at] : message.payload[at - label.size()];
  }
  size_t upTo(size_t most) { return 1 + rng_.below(std::max<size_t>(most, 1)); }
  void read(size_t most, std::vector<std::byte>& into) {
    const auto some = static_cast<ptrdiff_t>(std::min(most, in_.arrived.size()));
    into.insert(into.end(), in_.arrived.begin(), in_.arrived.begin() + some);
    in_.arrived.erase(in_.arrived.begin(), in_.arrived.begin() + some);
  }
  Result<Progress> idleOrEnd() const {
    if (!in_.isEnded || !in_.isReadable() || !in_.arrived.empty()) return Progress::kIdle;
    return Status(Code::kRemoteError, "the wire was cut");
  }

  VirtualWire& out_;
  VirtualWire& in_;
  SeededRng& rng_;
  int& alive_;
  const size_t mostTaken_;
  std::deque<Taken> taken_;
  uint64_t sent_ = 0;
  std::vector<std::byte> staged_;  // read, and not asked for yet
  std::byte* into_ = nullptr;
  size_t received_ = 0;
};

// One process's, for all links that end there.
class VirtualService final : public BareProvider {
 public:
  VirtualService(SeededRng& rng, bool refusesWatches)
      : BareProvider({.name = "virtual", .reach = wire::CarrierReach::kAnything}),
        rng_(rng),
        refuses_(refusesWatches) {}

  Result<uint64_t> watch(tutti::net::Connection& connection, const tutti::net::Readiness& readiness,
                         std::shared_ptr<tutti::net::Worker> worker) override {
    EXPECT_FALSE(isWatched(connection));
    if (refuses_ && rng_.below(4) == 0) return Status(Code::kSystemError, "no watch is left");
    watches_[++last_] = {static_cast<VirtualConnection*>(&connection), readiness,
                         std::move(worker)};
    return last_;
  }
  void unwatch(uint64_t watch) override { watches_.erase(watch); }

  // Takes up a connection that is ready, or calls for one that was taken up before, whose watch may
  // have been taken back since. False: there is nothing to do.
  bool step() {
    if (!called_.empty() && (rng_.below(2) == 0 || !takeUp())) {
      const auto which = called_.begin() + static_cast<ptrdiff_t>(rng_.below(called_.size()));
      const auto [number, worker] = *which;
      called_.erase(which);
      worker->work(number);
      return true;
    }
    return takeUp();
  }
  bool isIdle() const {
    return called_.empty() && std::ranges::none_of(watches_, [](const auto& each) {
             return each.second.connection->isReady(each.second.readiness);
           });
  }
  bool isWatched(const tutti::net::Connection& connection) const {
    return std::ranges::any_of(
        watches_, [&](const auto& each) { return each.second.connection == &connection; });
  }
  size_t watchCount() const { return watches_.size(); }

 private:
  struct Watched {
    VirtualConnection* connection = nullptr;
    tutti::net::Readiness readiness;
    std::shared_ptr<tutti::net::Worker> worker;  // shared with the test
  };

  bool takeUp() {
    const bool isForNothing = rng_.below(64) == 0;
    const size_t skipped = watches_.empty() ? 0 : rng_.below(watches_.size());
    for (size_t i = 0; i < watches_.size(); ++i) {
      const auto at =
          std::next(watches_.begin(), static_cast<ptrdiff_t>((i + skipped) % watches_.size()));
      if (!isForNothing && !at->second.connection->isReady(at->second.readiness)) continue;
      called_.emplace_back(at->first, std::move(at->second.worker));
      watches_.erase(at);
      return true;
    }
    return false;
  }

  SeededRng& rng_;
  const bool refuses_;
  std::map<uint64_t, Watched> watches_;
  std::vector<std::pair<uint64_t, std::shared_ptr<tutti::net::Worker>>> called_;
  uint64_t last_ = 0;
};

}  // namespace tutti::transport::net
