#include "net/fabric_meeting.h"

#include <algorithm>
#include <cstring>

#include "base/char_field.h"

namespace tutti::net {
namespace {

using Word = Mail::Word;

constexpr size_t kMaxLanes = 1 + kMaxPayloadLanes;
constexpr uint32_t kVersion = 2;

struct Offer {
  uint32_t version = kVersion;
  uint32_t laneCount = 0;
  uint32_t firstDevice = 0;
  uint32_t zero = 0;
  uint64_t maxMessageBytes = 0;
  std::array<char, 64> fabric{};  // its name, zero-terminated
  std::array<LaneHandle, kMaxLanes> handles{};
};
struct Answer {
  uint64_t maxMessageBytes = 0;
  std::array<LaneHandle, kMaxLanes> answers{};
};
constexpr size_t kMaxLetterBytes = 2048;
static_assert(sizeof(Offer) <= kMaxLetterBytes && sizeof(Answer) <= kMaxLetterBytes);

template <typename T>
std::span<const std::byte> bytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
bool read(const Mail::Letter& letter, T& value) {
  if (letter.body.size() != sizeof value) return false;
  std::memcpy(&value, letter.body.data(), sizeof value);
  return true;
}

}  // namespace

// ---- mail ---------------------------------------------------------------------------------------

std::string Mail::Letter::text() const { return foreignText(body); }

void Mail::send(Word word, std::span<const std::byte> body) {
  const auto kept = body.first(std::min(body.size(), kMaxLetterBytes));
  outgoing_.emplace_back(kept.begin(), kept.end());
  // Two letters at most: a connection takes them.
  [[maybe_unused]] const Progress taken = connection_->send(
      {.bytes = static_cast<uint32_t>(kept.size()), .signature = static_cast<uint32_t>(word)},
      outgoing_.back());
}

Result<bool> Mail::flush() {
  if (outgoing_.empty()) return true;
  TUTTI_TRY(connection_->flush().takeStatus());
  for (; sentCount_ != connection_->sentCount(); ++sentCount_) outgoing_.pop_front();
  return outgoing_.empty();
}

Result<std::optional<Mail::Letter>> Mail::receive() {
  if (!hasLabel_) {
    TUTTI_TRY_ASSIGN(const Progress progress, connection_->receiveLabel(label_));
    if (progress == Progress::kIdle) return std::optional<Letter>();
    if (label_.bytes > kMaxLetterBytes || label_.signature < static_cast<uint32_t>(Word::kOffer) ||
        label_.signature > static_cast<uint32_t>(Word::kNo)) {
      return remoteError("a link begins with {} bytes of kind {}, which is no word of a meeting",
                         label_.bytes, label_.signature);
    }
    hasLabel_ = true;
    body_.resize(label_.bytes);
  }
  TUTTI_TRY_ASSIGN(const Progress progress, connection_->receivePayload(body_));
  if (progress == Progress::kIdle) return std::optional<Letter>();
  hasLabel_ = false;
  return std::optional<Letter>(
      Letter{.word = static_cast<Word>(label_.signature), .body = std::move(body_)});
}

// ---- both sides ---------------------------------------------------------------------------------

Meeting::Meeting(std::unique_ptr<Connection> control, Options options)
    : options_(std::move(options)), mail_(std::move(control)) {
  lanes_.peer = options_.peer;
  if (options_.fabric != nullptr) options_.obstacle.clear();
}

// Labels go where the first payloads do.
size_t Meeting::deviceOf(size_t lane, size_t first) const {
  const size_t place = first + (lane == 0 ? 0 : lane - 1);
  const std::vector<size_t>& own = options_.adapters;
  return own.empty() ? place % options_.fabric->caps().deviceCount : own[place % own.size()];
}

void Meeting::refuse(std::string why) {
  options_.obstacle = why.empty() ? "no reason given" : std::move(why);
}

bool Meeting::step() {
  if (result_) return true;
  Result<bool> isOver = advance();
  if (!isOver.ok()) {
    result_.emplace(isOver.takeStatus());
  } else if (*isOver) {
    result_.emplace(finish());
  } else if (options_.clock.now() > options_.deadline) {
    result_.emplace(remoteError(
        "{} does not say within {} ms (TUTTI_TIMEOUT_MS) which network a link is to use",
        options_.peer,
        std::chrono::duration_cast<std::chrono::milliseconds>(2 * options_.patience).count()));
  }
  return result_.has_value();
}

Result<std::unique_ptr<Connection>> Meeting::finish() {
  if (hasRefused()) return mail_.takeConnection();
  isOverFabric_ = true;
  return connectOver(mail_.takeConnection(), std::move(lanes_));
}

Result<std::unique_ptr<Connection>> Meeting::take() { return std::move(*result_); }

namespace {

// ---- the sender ---------------------------------------------------------------------------------

class SenderMeeting final : public Meeting {
 public:
  SenderMeeting(std::unique_ptr<Connection> control, Options options)
      : Meeting(std::move(control), std::move(options)) {}

 private:
  enum class Stage : uint8_t { kAwaitOffer, kDial, kAnswer, kAwaitVerdict };

  Result<std::unique_ptr<Connection>> connectOver(std::unique_ptr<Connection> control,
                                                  LaneSet lanes) override {
    return FabricSender::open(std::move(control), std::move(lanes));
  }

  Result<bool> advance() override {
    switch (stage_) {
      case Stage::kAwaitOffer: return awaitOffer();
      case Stage::kDial: return dial();
      case Stage::kAnswer: {
        TUTTI_TRY_ASSIGN(const bool isSent, mail_.flush());
        if (!isSent) return false;
        if (hasRefused()) return true;
        stage_ = Stage::kAwaitVerdict;
        return false;
      }
      case Stage::kAwaitVerdict: return awaitVerdict();
    }
    return true;
  }

  Result<bool> awaitOffer() {
    TUTTI_TRY_ASSIGN(const std::optional<Mail::Letter> letter, mail_.receive());
    if (!letter) return false;
    if (letter->word == Word::kNo) {
      refuse(fmt::format("{}: {}", options_.peer, letter->text()));
      return true;
    }
    Offer offer;
    if (letter->word != Word::kOffer || !read(*letter, offer) || offer.version != kVersion)
      return Status(Code::kRemoteError, fmt::format("{} makes a garbled offer", options_.peer));
    if (options_.fabric == nullptr) return answerNo(options_.obstacle);
    const Fabric::Caps& caps = options_.fabric->caps();
    if (caps.name != textOf(offer.fabric)) {
      return answerNo(fmt::format("the network here is {}, at {} {}", caps.name, options_.peer,
                                  textOf(offer.fabric)));
    }
    if (offer.laneCount < 2 || offer.laneCount > kMaxLanes ||
        offer.maxMessageBytes < kLabelSlotBytes) {
      return Status(Code::kRemoteError,
                    fmt::format("{} offers {} lanes for messages of {} bytes", options_.peer,
                                offer.laneCount, offer.maxMessageBytes));
    }
    lanes_.maxMessageBytes =
        static_cast<size_t>(std::min<uint64_t>(offer.maxMessageBytes, caps.maxMessageBytes));
    return startDialing(offer);
  }

  // Adapter n there is dialed from adapter n here, as rails are cabled, where that may be.
  Result<bool> startDialing(const Offer& offer) {
    const auto own = std::ranges::find(options_.adapters, offer.firstDevice);
    const size_t first = own == options_.adapters.end()
                             ? offer.firstDevice
                             : static_cast<size_t>(own - options_.adapters.begin());
    for (size_t i = 0; i < offer.laneCount; ++i) {
      const size_t device = deviceOf(i, first);
      Result<std::unique_ptr<LaneDialer>> dialer = options_.fabric->dial(device, offer.handles[i]);
      if (!dialer.ok()) return answerNo(std::string(dialer.status().message()));
      dialers_.push_back(std::move(dialer).value());
      lanes_.devices.push_back(device);
    }
    lanes_.lanes.resize(offer.laneCount);
    fabricDeadline_ = options_.clock.now() + options_.patience;
    stage_ = Stage::kDial;
    return false;
  }

  Result<bool> dial() {
    bool isThrough = true;
    for (size_t i = 0; i < dialers_.size(); ++i) {
      if (lanes_.lanes[i]) continue;
      Result<std::unique_ptr<Lane>> lane = dialers_[i]->connect();
      if (!lane.ok()) return answerNo(std::string(lane.status().message()));
      lanes_.lanes[i] = std::move(lane).value();
      isThrough = isThrough && lanes_.lanes[i] != nullptr;
    }
    if (!isThrough) {
      if (!isTooLate()) return false;
      return answerNo(fmt::format("{} does not connect to {} in time", options_.fabric->caps().name,
                                  options_.peer));
    }
    Answer answer{.maxMessageBytes = lanes_.maxMessageBytes};
    for (size_t i = 0; i < dialers_.size(); ++i) answer.answers[i] = dialers_[i]->answer();
    mail_.send(Word::kYes, bytesOf(answer));
    stage_ = Stage::kAnswer;
    return false;
  }

  Result<bool> answerNo(std::string why) {
    lanes_.lanes.clear();
    dialers_.clear();
    refuse(std::move(why));
    mail_.send(Word::kNo, std::as_bytes(std::span(obstacle())));
    stage_ = Stage::kAnswer;
    return false;
  }

  Result<bool> awaitVerdict() {
    TUTTI_TRY_ASSIGN(const std::optional<Mail::Letter> letter, mail_.receive());
    if (!letter) return false;
    if (letter->word == Word::kYes) return true;
    lanes_.lanes.clear();
    refuse(fmt::format("{}: {}", options_.peer, letter->text()));
    return true;
  }

  Stage stage_ = Stage::kAwaitOffer;
  std::vector<std::unique_ptr<LaneDialer>> dialers_;
};

// ---- the receiver -------------------------------------------------------------------------------

class ReceiverMeeting final : public Meeting {
 public:
  ReceiverMeeting(std::unique_ptr<Connection> control, Options options, size_t firstDevice)
      : Meeting(std::move(control), std::move(options)) {
    if (options_.fabric == nullptr) {
      sayNo(options_.obstacle);
    } else {
      makeOffer(firstDevice);
    }
  }

 private:
  enum class Stage : uint8_t { kAwaitAnswer, kAccept, kVerdict };

  Result<std::unique_ptr<Connection>> connectOver(std::unique_ptr<Connection> control,
                                                  LaneSet lanes) override {
    return FabricReceiver::open(std::move(control), std::move(lanes));
  }

  void makeOffer(size_t firstDevice) {
    const Fabric::Caps& caps = options_.fabric->caps();
    const size_t adapters = options_.adapters.empty() ? caps.deviceCount : options_.adapters.size();
    Offer offer{.laneCount = static_cast<uint32_t>(1 + std::min(kMaxPayloadLanes, adapters)),
                .firstDevice = static_cast<uint32_t>(deviceOf(0, firstDevice)),
                .maxMessageBytes = caps.maxMessageBytes};
    setText(offer.fabric, caps.name);
    for (size_t i = 0; i < offer.laneCount; ++i) {
      const size_t device = deviceOf(i, firstDevice);
      Result<std::unique_ptr<LaneListener>> listener = options_.fabric->listen(device);
      if (!listener.ok()) return sayNo(std::string(listener.status().message()));
      lanes_.devices.push_back(device);
      offer.handles[i] = listener.value()->handle();
      listeners_.push_back(std::move(listener).value());
    }
    lanes_.lanes.resize(offer.laneCount);
    mail_.send(Word::kOffer, bytesOf(offer));
  }

  // Instead of the offer, or as the verdict.
  void sayNo(std::string why) {
    lanes_.lanes.clear();
    listeners_.clear();
    refuse(std::move(why));
    mail_.send(Word::kNo, std::as_bytes(std::span(obstacle())));
    stage_ = Stage::kVerdict;
  }

  // Fabrics may want accept() to be called while the sender dials.
  Result<bool> advance() override {
    TUTTI_TRY_ASSIGN(const bool isSent, mail_.flush());
    if (!isSent) return false;
    if (stage_ == Stage::kVerdict) return true;
    const bool hasAll = acceptAll();
    if (stage_ == Stage::kAwaitAnswer) return awaitAnswer();
    if (!trouble_.empty()) {
      sayNo(trouble_);
    } else if (hasAll) {
      listeners_.clear();
      mail_.send(Word::kYes, {});
      stage_ = Stage::kVerdict;
    } else if (isTooLate()) {
      sayNo(fmt::format("{} brings no connection from {} in time", options_.fabric->caps().name,
                        options_.peer));
    }
    return false;
  }

  bool acceptAll() {
    bool hasAll = true;
    for (size_t i = 0; i < listeners_.size() && trouble_.empty(); ++i) {
      if (lanes_.lanes[i]) continue;
      Result<std::unique_ptr<Lane>> lane = listeners_[i]->accept();
      if (!lane.ok()) {
        trouble_ = lane.status().message();
      } else {
        lanes_.lanes[i] = std::move(lane).value();
      }
      hasAll = hasAll && lanes_.lanes[i] != nullptr;
    }
    return hasAll && trouble_.empty();
  }

  Result<bool> awaitAnswer() {
    TUTTI_TRY_ASSIGN(const std::optional<Mail::Letter> letter, mail_.receive());
    if (!letter) return false;
    if (letter->word == Word::kNo) {
      refuse(fmt::format("{}: {}", options_.peer, letter->text()));
      lanes_.lanes.clear();
      listeners_.clear();
      return true;
    }
    Answer answer;
    if (letter->word != Word::kYes || !read(*letter, answer) ||
        answer.maxMessageBytes < kLabelSlotBytes ||
        answer.maxMessageBytes > options_.fabric->caps().maxMessageBytes) {
      return Status(Code::kRemoteError, fmt::format("{} gives a garbled answer", options_.peer));
    }
    for (size_t i = 0; i < listeners_.size(); ++i) listeners_[i]->hear(answer.answers[i]);
    lanes_.maxMessageBytes = static_cast<size_t>(answer.maxMessageBytes);
    fabricDeadline_ = options_.clock.now() + options_.patience;
    stage_ = Stage::kAccept;
    return false;
  }

  Stage stage_ = Stage::kAwaitAnswer;
  std::vector<std::unique_ptr<LaneListener>> listeners_;
  std::string trouble_;
};

}  // namespace

std::unique_ptr<Meeting> meetAsSender(std::unique_ptr<Connection> control,
                                      Meeting::Options options) {
  return std::make_unique<SenderMeeting>(std::move(control), std::move(options));
}

std::unique_ptr<Meeting> meetAsReceiver(std::unique_ptr<Connection> control,
                                        Meeting::Options options, size_t firstDevice) {
  return std::make_unique<ReceiverMeeting>(std::move(control), std::move(options), firstDevice);
}

}  // namespace tutti::net
