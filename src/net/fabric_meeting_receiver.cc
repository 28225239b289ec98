// The receiver's side of a meeting: it listens, offers its lanes, and has the last word.
#include <algorithm>
#include <utility>

#include "base/char_field.h"
#include "net/fabric_letters.h"

namespace tutti::net {
namespace {

using Word = Mail::Word;

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
  ~ReceiverMeeting() override { leave(); }
  ReceiverMeeting(const ReceiverMeeting&) = delete;
  ReceiverMeeting& operator=(const ReceiverMeeting&) = delete;

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
    Result<bool> accept(const std::optional<MeetingAnswer>& answer) {
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
    MeetingOffer offer{.laneCount = static_cast<uint32_t>(side_->listeners.size()),
                       .firstDevice = static_cast<uint32_t>(lanes_.devices.front()),
                       .maxMessageBytes = caps.maxMessageBytes};
    setText(offer.fabric, caps.name);
    for (size_t i = 0; i < side_->listeners.size(); ++i)
      offer.handles[i] = side_->listeners[i]->handle();
    mail_.send(Word::kOffer, letterOf(offer));
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
    drop(std::move(side_));
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
      drop(std::move(side_));
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
    MeetingAnswer answer;
    if (letter->word != Word::kYes || !readLetter(*letter, answer) ||
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
  std::optional<MeetingAnswer> answer_;  // the sender's, not handed on yet
  bool hasAll_ = false;
  std::string trouble_;
};

}  // namespace

std::unique_ptr<Meeting> meetAsReceiver(std::unique_ptr<Connection> control,
                                        Meeting::Options options, size_t firstDevice) {
  return std::make_unique<ReceiverMeeting>(std::move(control), std::move(options), firstDevice);
}

}  // namespace tutti::net
