#include "transport/net/relayed_end.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/char_field.h"
#include "base/log.h"
#include "base/segment.h"

namespace tutti::transport::net {
namespace {

constexpr SegmentPurpose kPurpose{.name = "tutti-relay",
                                  .what = "a link that another rank's process carries",
                                  .instead = "NCCL_PXN_DISABLE=1"};

constexpr Nanoseconds kBetweenLooks = std::chrono::milliseconds(20);

void tellDeclined(const RelayOptions& options, std::string_view why) {
  log::warn("what rank {} sends to rank {} does not go by way of rank {}, but directly: {}",
            options.sender.rank, options.receiver.rank, options.carrier.rank, why);
}

}  // namespace

void RelayedEnd::profile(observe::Profiler& profiler) {
  const std::lock_guard lock(mutex_);
  log_ = std::make_unique<TransferLog>(profiler, parts_.clock);
  page().wantsTimes.store(1, std::memory_order_relaxed);
}

void RelayedEnd::beginTransfer(const observe::EventTag& call, const observe::TransferNote& note) {
  const std::lock_guard lock(mutex_);
  if (log_ == nullptr) return;
  follow();  // with the transfers before
  log_->begin(call, note);
}

void RelayedEnd::endTransfer(uint64_t /*endMessage*/) {
  const std::lock_guard lock(mutex_);
  if (log_ != nullptr) follow();
}

// What the carrier writes is no more than figures: no message is told of that this rank has not
// published, and none at a time to come.
void RelayedEnd::follow() {
  const Instant now = parts_.clock.now();
  const uint64_t taken = page().takenCount.load(std::memory_order_acquire);
  const auto isPublished = [this](uint64_t number) {
    return view_.message(number).mark.load(std::memory_order_acquire) > number;
  };
  for (size_t i = 0; i < kTakenMessages && toldTaken_ < taken && isPublished(toldTaken_); ++i) {
    const TakenMessage& message = page().taken[toldTaken_ % kTakenMessages];
    lastTaken_ = std::clamp(Instant{message.at.load(std::memory_order_relaxed)}, lastTaken_, now);
    log_->appeared(toldTaken_, message.bytes.load(std::memory_order_relaxed), lastTaken_);
    log_->moved(toldTaken_, lastTaken_);
    ++toldTaken_;
  }
  for (uint64_t next = toldTaken_; next - toldTaken_ <= view_.mask; ++next) {
    const wire::MessageHead& message = view_.message(next);
    if (message.mark.load(std::memory_order_acquire) != next + 1) break;
    log_->appeared(next, message.bytes, now);
  }
  // The connection has them, or their slots are free.
  log_->passed(toldTaken_, lastTaken_);
}

bool RelayedEnd::run() {
  const std::lock_guard lock(mutex_);
  if (log_ != nullptr) follow();
  const Instant now = parts_.clock.now();
  if (now < nextLook_) return false;
  nextLook_ = now + kBetweenLooks;
  std::atomic<uint32_t>& fault = view_.control->receiverFault;
  if (fault.load(std::memory_order_acquire) != 0 || !hasGone(parts_.channel->get())) return false;
  ownParting_ = {.guilty = parts_.carrier.rank,
                 .text = fmt::format("{}, has left", describeCarrier(parts_.carrier, parts_.sender,
                                                                     parts_.receiver))};
  uint32_t none = 0;
  fault.compare_exchange_strong(none, static_cast<uint32_t>(wire::LinkFault::kAborted),
                                std::memory_order_release);
  return true;
}

void RelayedEnd::leave(const Parting& parting) { write(page().ofSender, parting); }

Parting RelayedEnd::parting() {
  Parting parting;
  if (read(page().ofCarrier, parting)) return parting;
  const std::lock_guard lock(mutex_);
  return ownParting_;
}

Motor::Carried RelayedEnd::carried() const {
  return {.messages = page().messages.load(std::memory_order_relaxed),
          .bytes = page().bytes.load(std::memory_order_relaxed)};
}

CarrierRequest::CarrierRequest(const RelayOptions& options, const LinkOptions& ofLink,
                               const Offer& offer)
    : options_(options),
      ofLink_(ofLink),
      offer_(offer),
      taking_(textOf(options.carrier.handoffName), options.carrier.relayToken, options.timeout) {}

// Over the channel. False: that process has closed it.
Result<bool> CarrierRequest::ask() {
  const wire::LinkGeometry& geometry = ofLink_.geometry;
  TUTTI_TRY_ASSIGN(Segment segment, createSegment(relaySegmentBytes(geometry), kPurpose));
  TUTTI_TRY_ASSIGN(token_, options_.handoff->offer(segment.fd.get(), 1));
  memory_ = std::move(segment.memory);
  deadline_ = options_.clock.now() + options_.timeout * 2;
  const RelayRequest words{.sender = options_.sender.rank,
                           .receiver = options_.receiver.rank,
                           .slotCount = geometry.slotCount,
                           .slotBytes = geometry.slotBytes,
                           .hostCount = ofLink_.hostCount,
                           .offer = offer_,
                           .senderHandoff = options_.sender.handoffName,
                           .segmentToken = token_};
  return ::send(channel_.get(), &words, sizeof words, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof words);
}

Result<Progress> CarrierRequest::poll() {
  if (!channel_) {
    Result<UniqueFd> channel = taking_.poll();
    if (channel.ok() && !*channel) return Progress::kIdle;
    if (!channel.ok()) {
      tellDeclined(options_, channel.status().message());
      return Progress::kDone;
    }
    channel_ = std::move(channel).value();
    TUTTI_TRY_ASSIGN(const bool isAsked, ask());
    if (!isAsked) {
      tellDeclined(options_, "its process has closed the channel");
      return Progress::kDone;
    }
  }
  RelayAnswer answer;
  Result<Progress> heard = tryReceiveRecord(channel_.get(), answer);
  if (heard.ok() && *heard == Progress::kIdle) {
    if (options_.clock.now() < deadline_) return Progress::kIdle;
    heard = Status(Code::kRemoteError, "its process does not answer");
  }
  Result<std::string> why = heard.ok() ? readAnswer(answer) : heard.takeStatus();
  if (!why.ok()) {
    tellDeclined(options_, why.status().message());
    return Progress::kDone;
  }
  switch (answer.outcome) {
    case RelayAnswer::Outcome::kCarried: carry(); break;
    case RelayAnswer::Outcome::kUnreachable:
      return remoteError("rank {}, which is to carry what rank {} sends to rank {}: {}",
                         options_.carrier.rank, options_.sender.rank, options_.receiver.rank, *why);
    case RelayAnswer::Outcome::kRefused: tellDeclined(options_, *why); break;
  }
  return Progress::kDone;
}

void CarrierRequest::carry() {
  log::info(log::Subsystem::kP2p, "what rank {} sends to rank {} goes by way of rank {}",
            options_.sender.rank, options_.receiver.rank, options_.carrier.rank);
  end_ = std::make_unique<RelayedEnd>(
      RelayedEnd::Parts{.memory = std::move(memory_),
                        .geometry = ofLink_.geometry,
                        .channel = std::make_shared<UniqueFd>(std::move(channel_)),
                        .carrier = options_.carrier,
                        .sender = options_.sender.rank,
                        .receiver = options_.receiver.rank,
                        .clock = options_.clock});
}

}  // namespace tutti::transport::net
