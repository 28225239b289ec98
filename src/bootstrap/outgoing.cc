#include "bootstrap/outgoing.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "bootstrap/bytes.h"
#include "bootstrap/mailbox.h"
#include "bootstrap/socket.h"
#include "bootstrap/trouble.h"

namespace tutti::bootstrap {
std::chrono::milliseconds backoff(int attempts) {
  return std::min(std::chrono::milliseconds(1 << std::min(attempts, 7)),
                  std::chrono::milliseconds(100));
}

Outgoing::Outgoing(const Options& options)
    : options_(options), deadline_(options.clock->now() + options.timeout) {
  begin();
}

bool Outgoing::send(FrameType type, uint64_t tag, std::span<const std::byte> body) {
  const size_t queued = waitingBytes_ + (out_.size() - written_);
  if (queued + body.size() + kMessageCostBytes > kMaxWaitingBytes) return false;
  if (stage_ == Stage::kOpen) {
    append(type, tag, body);
    flush();
    return true;
  }
  waiting_.push_back({type, tag, {body.begin(), body.end()}});
  waitingBytes_ += body.size() + kMessageCostBytes;
  return true;
}

void Outgoing::onEvent(const Poller::Event& event) {
  switch (stage_) {
    case Stage::kConnecting: approach(); break;
    case Stage::kReply:
      if (event.isReadable) onReply();
      break;
    case Stage::kOpen: {
      // Nothing is ever received on an open connection but its end.
      std::array<std::byte, 1> byte;
      if (event.isReadable && readSome(fd_.get(), byte).state != IoState::kWouldBlock) {
        breakOff("closed its connection");
      } else if (event.isWritable) {
        flush();
      }
      break;
    }
    case Stage::kPausing:
    case Stage::kBroken: break;
  }
}

void Outgoing::onTime(Instant now) {
  if (stage_ == Stage::kOpen || stage_ == Stage::kBroken) return;
  if (now >= deadline_) {
    breakOff(
        fmt::format("could not be reached at {} within {} ms{}{}; TUTTI_TIMEOUT_MS changes "
                    "this limit",
                    options_.address.text(), options_.timeout.count(),
                    lastTrouble_.empty() ? "" : ": ", lastTrouble_));
  } else if (stage_ == Stage::kPausing && now >= retryAt_) {
    begin();
  } else if (stage_ == Stage::kConnecting && now >= approach_->nextLook()) {
    approach();
  }
}

std::optional<Instant> Outgoing::nextTime() const {
  switch (stage_) {
    case Stage::kPausing: return std::min(deadline_, retryAt_);
    case Stage::kConnecting: return std::min(deadline_, approach_->nextLook());
    case Stage::kReply: return deadline_;
    case Stage::kOpen:
    case Stage::kBroken: return std::nullopt;
  }
  return std::nullopt;
}

std::string Outgoing::whyUnreached() const {
  if (encoder_) return "";
  if (stage_ == Stage::kBroken) return fault_;
  return fmt::format("has not been reached at {} yet{}{}", options_.address.text(),
                     lastTrouble_.empty() ? "" : ": ", lastTrouble_);
}

void Outgoing::begin() {
  stage_ = Stage::kConnecting;
  approach_.emplace(Approach::Options{.address = options_.address,
                                      .introduction = options_.introduction,
                                      .key = options_.key,
                                      .clock = options_.clock,
                                      .rng = options_.rng,
                                      .poller = options_.poller,
                                      .pollerKey = options_.pollerKey,
                                      .timeout = options_.timeout});
  approach();
}

void Outgoing::approach() {
  switch (approach_->look()) {
    case Approach::State::kPending: return;
    case Approach::State::kFailed: return retry(connectTrouble(approach_->failure().errnoValue));
    case Approach::State::kHeard: break;
  }
  Approach::Line line = approach_->take();
  approach_.reset();
  fd_ = std::move(line.fd);
  handshake_ = std::move(line.handshake);
  stage_ = Stage::kReply;
}

void Outgoing::onReply() {
  std::array<std::byte, kReplyBytes> buffer;
  const auto wanted = std::span(buffer).first(handshake_->wantedBytes());
  const IoResult read = readSome(fd_.get(), wanted);
  if (read.state == IoState::kWouldBlock) return;
  if (read.state == IoState::kClosed) return retry(connectTrouble(read.errnoValue));
  if (handshake_->feed(wanted.first(read.count)) != Refusal::kNone) {
    return breakOff(
        fmt::format("is not at {}: {}", options_.address.text(), toText(Refusal::kReply)));
  }
  if (!handshake_->isDone()) return;
  // Had this thread no CPU for long, the peer may have given up what nothing came over. Nothing is
  // lost yet.
  if (isEnded(fd_.get())) return retry("it gave up a connection that was silent for long");
  open();
}

void Outgoing::open() {
  const auto confirm = handshake_->confirm();
  out_.assign(confirm.begin(), confirm.end());
  written_ = 0;
  encoder_.emplace(handshake_->keys().clientToServer);
  handshake_.reset();
  stage_ = Stage::kOpen;
  for (const Message& message : std::exchange(waiting_, {})) {
    append(message.type, message.tag, message.body);
  }
  waitingBytes_ = 0;
  flush();
}

void Outgoing::append(FrameType type, uint64_t tag, std::span<const std::byte> body) {
  std::array<std::byte, sizeof tag> head;
  storeLittle(head.data(), tag);
  encoder_->append(type, head, body, out_);
}

void Outgoing::flush() {
  while (written_ < out_.size()) {
    const IoResult sent = writeSome(fd_.get(), std::span(out_).subspan(written_));
    if (sent.state == IoState::kClosed) return breakOff("closed its connection");
    if (sent.state == IoState::kWouldBlock) {
      options_.poller->change(fd_.get(), options_.pollerKey, Interest::kReadWrite);
      return;
    }
    written_ += sent.count;
  }
  out_.clear();
  written_ = 0;
  options_.poller->change(fd_.get(), options_.pollerKey, Interest::kRead);
}

void Outgoing::retry(std::string why) {
  approach_.reset();
  fd_.reset();
  handshake_.reset();
  lastTrouble_ = std::move(why);
  if (++attempts_ >= kMaxAttempts) {
    return breakOff(fmt::format("could not be reached at {} in {} attempts: {}",
                                options_.address.text(), attempts_, lastTrouble_));
  }
  stage_ = Stage::kPausing;
  retryAt_ = options_.clock->now() + backoff(attempts_);
}

void Outgoing::breakOff(std::string why) {
  approach_.reset();
  fd_.reset();
  fault_ = std::move(why);
  stage_ = Stage::kBroken;
  waiting_.clear();
  waitingBytes_ = 0;
  out_.clear();
  written_ = 0;
}

}  // namespace tutti::bootstrap
