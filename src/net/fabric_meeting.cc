// Meetings: the mail between the two sides, and what these have in common.
#include "net/fabric_meeting.h"

#include <algorithm>
#include <utility>

#include "base/char_field.h"
#include "net/fabric_letters.h"

namespace tutti::net {

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
  lanes_.thread = options_.lanes;
  if (options_.fabric != nullptr) options_.obstacle.clear();
}

Meeting::~Meeting() { dropLanes(); }

void Meeting::dropLanes() {
  if (lanes_.lanes.empty()) return;
  drop(std::make_shared<std::vector<std::unique_ptr<Lane>>>(std::exchange(lanes_.lanes, {})));
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

}  // namespace tutti::net
