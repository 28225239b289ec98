// The rules by which the ranks of a job meet: who has come, who is missing, what cannot be. Pure:
// no sockets, no threads; the root drives it and guards it with its mutex.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "bootstrap/messages.h"

namespace tutti::bootstrap {

class Meeting {
 public:
  enum class State : uint8_t { kGathering, kMet, kFailed };

  // epoch: random, so that a later meeting under the same id differs. Must not be 0. noticeAfter:
  // how long ranks wait before the user hears who is missing.
  Meeting(std::string jobText, uint64_t epoch, Nanoseconds noticeAfter = Nanoseconds::max())
      : job_(std::move(jobText)), epoch_(epoch), noticeAfter_(noticeAfter) {}

  State state() const { return state_; }
  bool isOver() const { return state_ != State::kGathering; }

  // A rank has come. It may end the meeting: kMet with the last one; kFailed when its number is
  // taken, or its rank count or circle differs. REQUIRES: the report is in range; state() is
  // kGathering.
  void arrive(const Report& report, Instant now);

  // A rank that had come is gone again; the job cannot start any more. No effect once the meeting
  // is over.
  void leave(Rank rank, std::string_view why);

  // Ends the meeting when the first rank's patience has run out. `obstacle`, where there is one, is
  // why the root could let nobody in.
  void expire(Instant now, std::string_view obstacle = {});
  std::optional<Instant> deadline() const;

  // For the user who wonders: who is missing, each time the wait has grown twice as long; empty:
  // nothing new.
  std::string notice(Instant now);
  std::optional<Instant> noticeTime() const;

  // Ends the meeting with this error, also after kMet: then nobody may have been answered yet. The
  // first error stays.
  void fail(Status why);

  // How many have come.
  size_t presentCount() const { return present_.size(); }
  bool isOneProcess() const;
  // Gives all ranks of one process the address where it listens. REQUIRES: kMet.
  void setAddress(uint64_t processHash, const SocketAddress& address);

  // REQUIRES: kMet.
  Answer answerFor(Rank rank) const;
  // What to tell those who came before the failure. REQUIRES: state() is kFailed.
  Status failure() const;
  // What to tell a rank that comes after the end. REQUIRES: isOver().
  Status failureFor(const Report& late) const;

 private:
  std::string describe(Rank rank, const Contact& contact) const;
  int32_t total() const { return circle_.of == 0 ? rankCount_ : circle_.of; }
  Status differs(const Report& report) const;
  std::string describeMissing() const;
  std::string describePresent() const;

  std::string job_;
  uint64_t epoch_;
  Nanoseconds noticeAfter_;
  Instant began_{};  // the first one came
  State state_ = State::kGathering;
  int32_t rankCount_ = 0;  // these two: the first one's
  Circle circle_;
  Rank first_{0};
  std::map<Rank, Contact> present_;  // grows with those who came, never with a number they claim
  std::optional<Instant> deadline_;
  std::chrono::milliseconds patience_{0};  // the one that deadline_ was made from
  Status failure_;
};

}  // namespace tutti::bootstrap
