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

Result<RelayAnswer> ask(int channel, const RelayOptions& options, const RelayRequest& request) {
  if (::send(channel, &request, sizeof request, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof request))
    return Status(Code::kRemoteError, "its process has closed the channel");
  RelayAnswer answer;
  TUTTI_TRY(receiveRecord(channel, answer, options.clock, options.timeout * 2));
  return answer;
}

// An offer of the ring that nobody takes is taken back.
class RingOffer {
 public:
  RingOffer(bootstrap::Handoff& handoff, const bootstrap::HandoffToken& token)
      : handoff_(handoff), token_(token) {}
  RingOffer(const RingOffer&) = delete;
  RingOffer& operator=(const RingOffer&) = delete;
  ~RingOffer() { handoff_.withdraw(token_); }

 private:
  bootstrap::Handoff& handoff_;
  const bootstrap::HandoffToken token_;
};

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

Result<std::unique_ptr<RelayedEnd>> askCarrier(const RelayOptions& options,
                                               const wire::LinkGeometry& geometry,
                                               const Offer& offer) {
  const auto decline = [&](std::string_view why) {
    log::warn("what rank {} sends to rank {} does not go by way of rank {}, but directly: {}",
              options.sender.rank, options.receiver.rank, options.carrier.rank, why);
    return std::unique_ptr<RelayedEnd>();
  };
  Result<UniqueFd> channel = bootstrap::Handoff::take(textOf(options.carrier.handoffName),
                                                      options.carrier.relayToken, options.timeout);
  if (!channel.ok()) return decline(channel.status().message());
  TUTTI_TRY_ASSIGN(Segment segment, createSegment(relaySegmentBytes(geometry), kPurpose));
  RelayRequest request{.sender = options.sender.rank,
                       .receiver = options.receiver.rank,
                       .slotCount = geometry.slotCount,
                       .slotBytes = geometry.slotBytes,
                       .offer = offer};
  TUTTI_TRY_ASSIGN(request.segmentToken, options.handoff->offer(segment.fd.get(), 1));
  const RingOffer ring(*options.handoff, request.segmentToken);
  request.senderHandoff = options.sender.handoffName;
  Result<RelayAnswer> answer = ask(channel->get(), options, request);
  if (!answer.ok()) return decline(answer.status().message());
  Result<std::string> why = readAnswer(*answer);
  if (!why.ok()) return decline(why.status().message());
  switch (answer->outcome) {
    case RelayAnswer::Outcome::kCarried: break;
    case RelayAnswer::Outcome::kUnreachable:
      return remoteError("rank {}, which is to carry what rank {} sends to rank {}: {}",
                         options.carrier.rank, options.sender.rank, options.receiver.rank, *why);
    case RelayAnswer::Outcome::kRefused: return decline(*why);
  }
  log::info(log::Subsystem::kP2p, "what rank {} sends to rank {} goes by way of rank {}",
            options.sender.rank, options.receiver.rank, options.carrier.rank);
  return std::make_unique<RelayedEnd>(
      RelayedEnd::Parts{.memory = std::move(segment.memory),
                        .geometry = geometry,
                        .channel = std::make_shared<UniqueFd>(std::move(channel).value()),
                        .carrier = options.carrier,
                        .sender = options.sender.rank,
                        .receiver = options.receiver.rank,
                        .clock = options.clock});
}

}  // namespace tutti::transport::net
