// The sender's side of a meeting: it dials the lanes that it is offered.
#include <algorithm>
#include <utility>

#include "base/char_field.h"
#include "net/fabric_letters.h"

namespace tutti::net {
namespace {

using Word = Mail::Word;

class SenderMeeting final : public Meeting {
 public:
  SenderMeeting(std::unique_ptr<Connection> control, Options options)
      : Meeting(std::move(control), std::move(options)) {}
  ~SenderMeeting() override { leave(); }
  SenderMeeting(const SenderMeeting&) = delete;
  SenderMeeting& operator=(const SenderMeeting&) = delete;

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
    MeetingOffer offer;
    if (letter->word != Word::kOffer || !readLetter(*letter, offer) ||
        offer.version != kMeetingVersion)
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
  Result<bool> startDialing(const MeetingOffer& offer) {
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
    MeetingAnswer answer{.maxMessageBytes = lanes_.maxMessageBytes};
    for (size_t i = 0; i < side_->dialers.size(); ++i)
      answer.answers[i] = side_->dialers[i]->answer();
    lanes_.lanes = std::move(side_->lanes);
    mail_.send(Word::kYes, letterOf(answer));
    stage_ = Stage::kAnswer;
    return false;
  }

  Result<bool> answerNo(std::string why) {
    leave();
    refuse(std::move(why));
    mail_.send(Word::kNo, std::as_bytes(std::span(obstacle())));
    stage_ = Stage::kAnswer;
    return false;
  }

  void leave() {
    call_.drop();
    drop(std::move(side_));
  }

  Result<bool> awaitVerdict() {
    TUTTI_TRY_ASSIGN(const std::optional<Mail::Letter> letter, mail_.receive());
    if (!letter) return false;
    if (letter->word == Word::kYes) return true;
    dropLanes();
    refuse(fmt::format("{}: {}", options_.peer, letter->text()));
    return true;
  }

  Stage stage_ = Stage::kAwaitOffer;
  std::shared_ptr<Side> side_;  // shared with the call
  Awaited<bool> call_;
};

}  // namespace

std::unique_ptr<Meeting> meetAsSender(std::unique_ptr<Connection> control,
                                      Meeting::Options options) {
  return std::make_unique<SenderMeeting>(std::move(control), std::move(options));
}

}  // namespace tutti::net
