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
  lanes_.segments = options_.segments;
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

std::string Meeting::hang() const {
  const std::optional<Nanoseconds> age =
      options_.calls == nullptr ? std::nullopt : options_.calls->jobAge();
  if (!age || *age < (isTooLate() ? options_.patience / 2 : options_.patience)) return {};
  return options_.calls->complaint(*age);
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

  // The fabric's calls work on it, while one is under way nobody else.
  struct Side {
    std::shared_ptr<Fabric> fabric;
    std::vector<size_t> devices;
    std::array<LaneHandle, kMaxLanes> handles;
    int trafficClass = kNoTrafficClass;
    std::vector<std::unique_ptr<LaneDialer>> dialers{};
    std::vector<std::unique_ptr<Lane>> lanes{};

    // True once there are all lanes.
    Result<bool> connect() {
      for (size_t i = dialers.size(); i < devices.size(); ++i) {
        TUTTI_TRY_ASSIGN(
            auto dialer,
            fabric->dial({.device = devices[i], .trafficClass = trafficClass}, handles[i]));
        dialers.push_back(std::move(dialer));
      }
      bool hasAll = true;
      for (size_t i = 0; i < dialers.size(); ++i) {
        if (lanes[i]) continue;
        TUTTI_TRY_ASSIGN(lanes[i], dialers[i]->connect());
        hasAll = hasAll && lanes[i] != nullptr;
      }
      return hasAll;
    }
  };

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
    for (size_t i = 0; i < offer.laneCount; ++i) lanes_.devices.push_back(deviceOf(i, first));
    side_ = std::make_shared<Side>(Side{.fabric = options_.fabric,
                                        .devices = lanes_.devices,
                                        .handles = offer.handles,
                                        .trafficClass = options_.trafficClass});
    side_->lanes.resize(offer.laneCount);
    fabricDeadline_ = options_.clock.now() + options_.patience;
    stage_ = Stage::kDial;
    return false;
  }

  Result<bool> dial() {
    if (!call_.isUnderWay()) {
      call_.start(options_.calls, [side = side_] { return side->connect(); });
    }
    const std::optional<Result<bool>> isThrough = call_.take();
    if (isThrough && !isThrough->ok()) return answerNo(std::string(isThrough->status().message()));
    if (!isThrough || !isThrough->value()) {
      if (std::string call = hang(); !isThrough && !call.empty()) return answerNo(std::move(call));
      if (!isTooLate()) return false;
      return answerNo(fmt::format("{} does not connect to {} in time", options_.fabric->caps().name,
                                  options_.peer));
    }
    Answer answer{.maxMessageBytes = lanes_.maxMessageBytes};
    for (size_t i = 0; i < side_->dialers.size(); ++i)
      answer.answers[i] = side_->dialers[i]->answer();
    lanes_.lanes = std::move(side_->lanes);
    mail_.send(Word::kYes, bytesOf(answer));
    stage_ = Stage::kAnswer;
    return false;
  }

  Result<bool> answerNo(std::string why) {
    call_.drop();
    side_.reset();
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
  std::shared_ptr<Side> side_;  // shared with the call
  Awaited<bool> call_;
};

// ---- the receiver -------------------------------------------------------------------------------

class ReceiverMeeting final : public Meeting {
 public:
  ReceiverMeeting(std::unique_ptr<Connection> control, Options options, size_t firstDevice)
      : Meeting(std::move(control), std::move(options)) {
    if (options_.fabric == nullptr) {
      sayNo(options_.obstacle);
    } else {
      beginListening(firstDevice);
    }
  }

 private:
  enum class Stage : uint8_t { kListen, kAwaitAnswer, kAccept, kVerdict };

  // The fabric's calls work on it, while one is under way nobody else.
  struct Side {
    std::shared_ptr<Fabric> fabric;
    std::vector<size_t> devices;
    int trafficClass = kNoTrafficClass;
    std::vector<std::unique_ptr<LaneListener>> listeners{};
    std::vector<std::unique_ptr<Lane>> lanes{};

    Result<bool> listen() {
      for (const size_t device : devices) {
        TUTTI_TRY_ASSIGN(auto listener,
                         fabric->listen({.device = device, .trafficClass = trafficClass}));
        listeners.push_back(std::move(listener));
      }
      lanes.resize(listeners.size());
      return true;
    }
    // True once there are all lanes. `answer`: if there is news from the sender.
    Result<bool> accept(const std::optional<Answer>& answer) {
      for (size_t i = 0; answer && i < listeners.size(); ++i)
        listeners[i]->hear(answer->answers[i]);
      bool hasAll = true;
      for (size_t i = 0; i < listeners.size(); ++i) {
        if (lanes[i]) continue;
        TUTTI_TRY_ASSIGN(lanes[i], listeners[i]->accept());
        hasAll = hasAll && lanes[i] != nullptr;
      }
      return hasAll;
    }
  };

  Result<std::unique_ptr<Connection>> connectOver(std::unique_ptr<Connection> control,
                                                  LaneSet lanes) override {
    return FabricReceiver::open(std::move(control), std::move(lanes));
  }

  void beginListening(size_t firstDevice) {
    const Fabric::Caps& caps = options_.fabric->caps();
    const size_t adapters = options_.adapters.empty() ? caps.deviceCount : options_.adapters.size();
    const size_t laneCount = 1 + std::min(kMaxPayloadLanes, adapters);
    for (size_t i = 0; i < laneCount; ++i) lanes_.devices.push_back(deviceOf(i, firstDevice));
    side_ = std::make_shared<Side>(Side{.fabric = options_.fabric,
                                        .devices = lanes_.devices,
                                        .trafficClass = options_.trafficClass});
    fabricDeadline_ = options_.clock.now() + options_.patience;
    call_.start(options_.calls, [side = side_] { return side->listen(); });
  }

  void makeOffer() {
    const std::optional<Result<bool>> outcome = call_.take();
    if (!outcome) {
      if (std::string call = hang(); !call.empty()) return sayNo(std::move(call));
      if (isTooLate())
        sayNo(fmt::format("{} does not listen in time", options_.fabric->caps().name));
      return;
    }
    if (!outcome->ok()) return sayNo(std::string(outcome->status().message()));
    const Fabric::Caps& caps = options_.fabric->caps();
    Offer offer{.laneCount = static_cast<uint32_t>(side_->listeners.size()),
                .firstDevice = static_cast<uint32_t>(lanes_.devices.front()),
                .maxMessageBytes = caps.maxMessageBytes};
    setText(offer.fabric, caps.name);
    for (size_t i = 0; i < side_->listeners.size(); ++i)
      offer.handles[i] = side_->listeners[i]->handle();
    mail_.send(Word::kOffer, bytesOf(offer));
    fabricDeadline_.reset();
    stage_ = Stage::kAwaitAnswer;
  }

  // Instead of the offer, or as the verdict.
  void sayNo(std::string why) {
    leave();
    refuse(std::move(why));
    mail_.send(Word::kNo, std::as_bytes(std::span(obstacle())));
    stage_ = Stage::kVerdict;
  }

  void leave() {
    call_.drop();
    side_.reset();
  }

  // Fabrics may want accept() to be called while the sender dials.
  Result<bool> advance() override {
    TUTTI_TRY_ASSIGN(const bool isSent, mail_.flush());
    if (!isSent) return false;
    if (stage_ == Stage::kVerdict) return true;
    if (stage_ == Stage::kListen) {
      makeOffer();
      return false;
    }
    acceptAll();
    if (stage_ == Stage::kAwaitAnswer) return awaitAnswer();
    if (!trouble_.empty()) {
      sayNo(trouble_);
    } else if (hasAll_ && !answer_) {
      lanes_.lanes = std::move(side_->lanes);
      side_.reset();
      mail_.send(Word::kYes, {});
      stage_ = Stage::kVerdict;
    } else if (isTooLate()) {
      sayNo(fmt::format("{} brings no connection from {} in time", options_.fabric->caps().name,
                        options_.peer));
    }
    return false;
  }

  void acceptAll() {
    if (!trouble_.empty() || (hasAll_ && !answer_)) return;
    if (!call_.isUnderWay()) {
      hasAll_ = false;
      call_.start(options_.calls, [side = side_, answer = std::exchange(answer_, std::nullopt)] {
        return side->accept(answer);
      });
    }
    const std::optional<Result<bool>> outcome = call_.take();
    if (!outcome) {
      trouble_ = hang();
    } else if (!outcome->ok()) {
      trouble_ = outcome->status().message();
    } else {
      hasAll_ = outcome->value();
    }
  }

  Result<bool> awaitAnswer() {
    TUTTI_TRY_ASSIGN(const std::optional<Mail::Letter> letter, mail_.receive());
    if (!letter) return false;
    if (letter->word == Word::kNo) {
      refuse(fmt::format("{}: {}", options_.peer, letter->text()));
      leave();
      return true;
    }
    Answer answer;
    if (letter->word != Word::kYes || !read(*letter, answer) ||
        answer.maxMessageBytes < kLabelSlotBytes ||
        answer.maxMessageBytes > options_.fabric->caps().maxMessageBytes) {
      return Status(Code::kRemoteError, fmt::format("{} gives a garbled answer", options_.peer));
    }
    answer_ = answer;
    lanes_.maxMessageBytes = static_cast<size_t>(answer.maxMessageBytes);
    fabricDeadline_ = options_.clock.now() + options_.patience;
    stage_ = Stage::kAccept;
    return false;
  }

  Stage stage_ = Stage::kListen;
  std::shared_ptr<Side> side_;  // shared with the call
  Awaited<bool> call_;
  std::optional<Answer> answer_;  // the sender's, not handed on yet
  bool hasAll_ = false;
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
