#include "bootstrap/meeting.h"

#include <algorithm>
#include <set>

namespace tutti::bootstrap {
namespace {

constexpr size_t kMaxListed = 8;

// "3, 5-7" and, when there are many, "... and 400 more".
class RankList {
 public:
  void add(int32_t first, int32_t last) {
    if (++entries_ > kMaxListed) {
      unlisted_ += last - first + 1;
      return;
    }
    text_ += text_.empty() ? "" : ", ";
    text_ += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  std::string text() const {
    return unlisted_ == 0 ? text_ : fmt::format("{} and {} more", text_, unlisted_);
  }

 private:
  std::string text_;
  size_t entries_ = 0;
  int32_t unlisted_ = 0;
};

}  // namespace

std::string Meeting::describe(Rank rank, const Contact& contact) const {
  return fmt::format("rank {} ({})", circle_.numberOf(rank), contact.who);
}

// Ok: they are to meet here.
Status Meeting::differs(const Report& report) const {
  const Contact& first = present_.at(first_);
  const int32_t itsTotal = report.circle.of == 0 ? report.rankCount : report.circle.of;
  if (itsTotal != total()) {
    return invalidUsage("job {}: the ranks disagree about their number: {} says {}, {} says {}",
                        job_, describe(first_, first), total(),
                        describe(report.rank, report.contact), itsTotal);
  }
  if (report.rankCount == rankCount_ && report.circle == circle_) return {};
  return invalidUsage(
      "job {}: {} and a rank of {} met with different lists of ids: ncclCommInitRankScalable wants "
      "the same ids in the same order on all ranks",
      job_, describe(first_, first), report.contact.who);
}

void Meeting::arrive(const Report& report, Instant now) {
  if (present_.empty()) {
    rankCount_ = report.rankCount;
    circle_ = report.circle;
    first_ = report.rank;
    began_ = now;
  } else if (Status status = differs(report); !status.ok()) {
    fail(std::move(status));
    return;
  }
  const auto [place, isNew] = present_.emplace(report.rank, report.contact);
  if (!isNew) {
    fail(invalidUsage("job {}: two processes or threads are rank {} of {}: {} and {}", job_,
                      circle_.numberOf(report.rank), total(), place->second.who,
                      report.contact.who));
    return;
  }
  const Instant until = now + report.timeout;
  if (!deadline_ || until < *deadline_) {
    deadline_ = until;
    patience_ = report.timeout;
  }
  if (present_.size() == static_cast<size_t>(rankCount_)) state_ = State::kMet;
}

void Meeting::leave(Rank rank, std::string_view why) {
  if (isOver()) return;
  const auto found = present_.find(rank);
  if (found == present_.end()) return;
  fail(remoteError("job {}: {} {} before all {} ranks had come", job_,
                   describe(rank, found->second), why, total()));
}

void Meeting::expire(Instant now, std::string_view obstacle) {
  if (isOver() || !deadline_ || now < *deadline_) return;
  if (!obstacle.empty()) {
    fail(makeError(Code::kSystemError,
                   fmt::format("job {}: the root could not let in {} of {} within {} ms: it {}; "
                               "present: {}",
                               job_, describeMissing(), total(), patience_.count(), obstacle,
                               describePresent())));
    return;
  }
  fail(
      remoteError("job {}: {} of {} did not come within {} ms; present: {}; TUTTI_INIT_TIMEOUT_MS "
                  "changes this limit",
                  job_, describeMissing(), total(), patience_.count(), describePresent()));
}

std::optional<Instant> Meeting::deadline() const { return isOver() ? std::nullopt : deadline_; }

std::optional<Instant> Meeting::noticeTime() const {
  if (isOver() || present_.empty() || noticeAfter_ == Nanoseconds::max()) return std::nullopt;
  return began_ + noticeAfter_;
}

std::string Meeting::notice(Instant now) {
  const std::optional<Instant> due = noticeTime();
  if (!due || now < *due) return "";
  noticeAfter_ = 2 * (now - began_);
  return fmt::format(
      "job {}: {} of {} did not come for {:.1f} s; present: {}; they wait {:.0f} s more "
      "(TUTTI_INIT_TIMEOUT_MS)",
      job_, describeMissing(), total(), std::chrono::duration<double>(now - began_).count(),
      describePresent(), std::chrono::duration<double>(*deadline_ - now).count());
}

void Meeting::fail(Status why) {
  if (state_ == State::kFailed) return;
  failure_ = std::move(why);
  state_ = State::kFailed;
}

bool Meeting::isOneProcess() const {
  return std::all_of(present_.begin(), present_.end(), [&](const auto& entry) {
    return entry.second.processHash == present_.begin()->second.processHash;
  });
}

void Meeting::setAddress(uint64_t processHash, const SocketAddress& address) {
  for (auto& [rank, contact] : present_) {
    if (contact.processHash == processHash) contact.address = address;
  }
}

Answer Meeting::answerFor(Rank rank) const {
  const int32_t members = rankCount_ - circle_.guests;
  const bool isGuest = index(rank) >= members;
  std::set<int32_t> neighbours;
  for (int32_t distance = 1; distance < members && !isGuest; distance *= 2) {
    neighbours.insert((index(rank) + distance) % members);
    neighbours.insert((index(rank) - distance + members) % members);
  }
  if (isGuest) neighbours.insert(0);
  if (index(rank) == 0 && circle_.guests > 0) neighbours.insert(members);
  Answer answer;
  answer.epoch = epoch_;
  for (int32_t neighbour : neighbours) {
    answer.peers.push_back({Rank{neighbour}, present_.at(Rank{neighbour})});
  }
  return answer;
}

Status Meeting::failure() const { return failure_.clone(); }

Status Meeting::failureFor(const Report& late) const {
  if (state_ == State::kFailed) return failure_.clone();
  if (late.circle != circle_) TUTTI_TRY(differs(late));
  return invalidUsage(
      "id already used: the {} ranks of job {} have met before; every communicator needs a new id "
      "from ncclGetUniqueId",
      total(), job_);
}

std::string Meeting::describeMissing() const {
  RankList list;
  int32_t next = 0;
  int32_t count = 0;
  const auto addGap = [&](int32_t end) {
    // The guest's number may lie far from the members'.
    const int32_t members = std::min(end, rankCount_ - circle_.guests);
    const auto numberOf = [this](int32_t at) { return circle_.numberOf(Rank{at}); };
    if (next < members) list.add(numberOf(next), numberOf(members - 1));
    for (int32_t at = std::max(next, members); at < end; ++at) list.add(numberOf(at), numberOf(at));
    count += std::max(0, end - next);
    next = end + 1;
  };
  for (const auto& [rank, contact] : present_) addGap(index(rank));
  addGap(rankCount_);
  return fmt::format("{} {}", count == 1 ? "rank" : "ranks", list.text());
}

std::string Meeting::describePresent() const {
  std::string text;
  size_t listed = 0;
  for (const auto& [rank, contact] : present_) {
    if (listed == kMaxListed) break;
    text +=
        fmt::format("{}{} ({})", listed++ == 0 ? "" : ", ", circle_.numberOf(rank), contact.who);
  }
  if (present_.size() > listed) text += fmt::format(" and {} more", present_.size() - listed);
  return text;
}

}  // namespace tutti::bootstrap
