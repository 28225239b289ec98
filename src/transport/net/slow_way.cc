#include "transport/net/slow_way.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"

namespace tutti::transport::net {
namespace {

using tutti::net::Way;

constexpr Nanoseconds kBetweenLooks = std::chrono::milliseconds(250);
// Over fewer bytes a look is worth it once the wire has taken longer: one of 1 Mbit/s would carry
// nothing else for 20 s before it was named.
constexpr size_t kManyBytes = 512_KiB;
constexpr Nanoseconds kBetweenLooksAtFew = std::chrono::seconds(1);
constexpr int kLooks = 4;
// What shorter messages reach is the round trip's doing, not the wire's; and so is what any reach
// on a way that is longer than this.
constexpr uint64_t kLongBytes = 64_KiB;
constexpr Nanoseconds kLongestWay = std::chrono::milliseconds(2);
// Less than this part of what the interface has is no sharing: so many senders may share a
// receiver's wire, or a switch's.
constexpr double kPart = 1.0 / 16;
// Of so few hosts all others together leave each sender a quarter of a receiver's wire, and twice
// less than that is no sharing, however uneven. What is only supposed may itself be much too much:
// of such an interface it is this part of what it has carried.
constexpr double kPartOfFew = 1.0 / 8;
// Over a shorter time a buffer on the way takes more than any wire.
constexpr Nanoseconds kLeastSeen = std::chrono::seconds(1);
// How long it holds that a receiver is quiet, who says so once a second.
constexpr Nanoseconds kQuietFor = std::chrono::milliseconds(2500);
// An interface that receives more of its speed than this may be what several senders share.
constexpr double kQuietPart = 1.0 / 4;
// How long what was measured of another link counts: links that are used in turns, or once a step,
// have their figures of the same wires.
constexpr Nanoseconds kMeasuredFor = std::chrono::seconds(60);
constexpr double kBytesPerMbit = 1e6 / 8;

// What both sides' interfaces could, in bytes a second.
struct Speeds {
  double most = 0;    // at most, as far as is known
  double proven = 0;  // at least
};

Speeds speedsOf(const Way& way, const SlowWay::Sent& sent) {
  const auto own = static_cast<double>(way.bytesPerSecond);
  const double told = sent.quiet.mbit * kBytesPerMbit;
  Speeds speeds{.most = own, .proven = way.isSupposed ? std::min(own, sent.carried) : own};
  if (told > 0) speeds.proven = std::min(speeds.proven, told);
  if (told > 0 && !sent.quiet.isLeast) speeds.most = std::min(own, told);
  return speeds;
}

bool isOfFew(const SlowWay::Sent& sent) {
  return sent.hostCount > 0 && sent.hostCount <= kFewHosts;
}

// Below which the way is slow.
double leastOf(const Speeds& speeds, const SlowWay::Sent& sent) {
  const bool isShared = !isOfFew(sent) && sent.quiet.mbit == 0;
  return std::max(speeds.most * kPart, isShared ? 0 : speeds.proven * kPartOfFew);
}

// Below which it is slow beside others, however much these send meanwhile: TCP shares an interface
// among them, and no receiver of so few hosts has so little left. More than the interface is
// supposed to have counts no more.
double leastBesideOthers(const Way& way, const SlowWay::Sent& sent) {
  if (!way.isSupposed || !isOfFew(sent)) return 0;
  return std::min(sent.others, static_cast<double>(way.bytesPerSecond)) * kPartOfFew;
}

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

std::string describeSpeed(const Way& way, const Speeds& speeds, double least, double others) {
  if (others > 0) {
    return fmt::format(
        "tells no speed and over which the other links of this process have {:.0f} Mbit/s (their "
        "median)",
        others / kBytesPerMbit);
  }
  if (!way.isSupposed) return fmt::format("has {:.0f} Mbit/s", speeds.most / kBytesPerMbit);
  if (least > speeds.most * kPart)
    return fmt::format("tells no speed and has carried {:.0f} Mbit/s",
                       speeds.proven / kBytesPerMbit);
  return fmt::format("tells no speed and is supposed to have {:.0f} Mbit/s",
                     speeds.most / kBytesPerMbit);
}

}  // namespace

void SeenRate::note(uint64_t bytes, Instant now) {
  if (since_ && now - *since_ < kLeastSeen) return;
  if (since_ && bytes_ > 0 && bytes > bytes_)
    most_ = std::max(most_, static_cast<double>(bytes - bytes_) / seconds(now - *since_));
  since_ = now;
  bytes_ = bytes;
}

std::string SlowWay::judge(const Way& before, const Way& after, const Sent& sent) {
  const Speeds speeds = speedsOf(after, sent);
  const auto rate = static_cast<double>(after.measuredPerSecond);
  const double all =
      static_cast<double>(after.interfaceBytes - before.interfaceBytes) / seconds(sent.time);
  const bool isReceivers = after.receiverLimited - before.receiverLimited > sent.time / 4;
  const double least = leastOf(speeds, sent);
  const bool isBehind = rate < leastBesideOthers(after, sent);
  const bool isUsed = rate >= least || all >= least;
  if (rate == 0 || (isUsed && !isBehind) || isReceivers || after.roundTrip > kLongestWay) return {};
  constexpr double kMegabyte = 1e6;
  // TCP's figure is that of its best moments, bursts of a queue among them.
  const double carried = std::min(rate, static_cast<double>(sent.bytes) / seconds(sent.time));
  return fmt::format(
      "a slow link: {} carries {:.2f} MB/s ({:.1f} Mbit/s; TCP measures {:.1f} at best), of an "
      "interface that {}; the cable, a switch or the route is slower than that, loses packets, or "
      "is full of others'",
      after.text, carried / kMegabyte, carried / kBytesPerMbit, rate / kBytesPerMbit,
      describeSpeed(after, speeds, least, isBehind ? sent.others : 0));
}

void MeasuredLinks::note(const void* link, double perSecond, Instant now) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(measured_, link, &Measured::link);
  const Measured measured{.link = link, .perSecond = perSecond, .at = now};
  if (found == measured_.end()) {
    measured_.push_back(measured);
  } else {
    *found = measured;
  }
}

void MeasuredLinks::forget(const void* link) {
  const std::lock_guard lock(mutex_);
  std::erase_if(measured_, [link](const Measured& each) { return each.link == link; });
}

double MeasuredLinks::medianOfOthers(const void* link, Instant now) const {
  std::vector<double> others;
  {
    const std::lock_guard lock(mutex_);
    for (const Measured& each : measured_) {
      if (each.link != link && now - each.at <= kMeasuredFor) others.push_back(each.perSecond);
    }
  }
  if (others.empty()) return 0;
  // Of two the smaller: one that is fast for a reason of its own makes no other slow.
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>((others.size() - 1) / 2);
  std::ranges::nth_element(others, middle);
  return *middle;
}

double SlowWay::compare(const std::optional<Way>& way, Instant now) const {
  if (others_ == nullptr || !way || !way->isSupposed) return 0;
  others_->note(this, static_cast<double>(way->measuredPerSecond), now);
  return others_->medianOfOthers(this, now);
}

void SlowWay::look(const Motor::Carried& carried, Instant now,
                   const tutti::net::Connection& connection) {
  const Nanoseconds passed = now - lookedAt_;
  const uint64_t bytes = carried.bytes - seen_.bytes;
  if (passed < (bytes < kManyBytes ? kBetweenLooksAtFew : kBetweenLooks)) return;
  const uint64_t messages = carried.messages - seen_.messages;
  seen_ = carried;
  lookedAt_ = now;
  std::optional<Way> way;
  if (bytes >= messages * kLongBytes) {
    way = connection.way();
    isOver_ = !way;
    if (way) seenRate_.note(way->interfaceBytes, now);
  }
  const Sent sent{.bytes = bytes,
                  .time = passed,
                  .hostCount = hostCount_,
                  .quiet = now - quietAt_ <= kQuietFor ? quiet_ : QuietSpeed{},
                  .carried = seenRate_.most(),
                  .others = compare(way, now)};
  const std::string found = way && before_ ? judge(*before_, *way, sent) : "";
  slowLooks_ = found.empty() ? 0 : slowLooks_ + 1;
  before_ = std::move(way);
  if (slowLooks_ < kLooks) return;
  log::warn("{}", found);
  isOver_ = true;
}

uint32_t QuietReceiver::look(const Motor::Carried& carried, Instant now,
                             const tutti::net::Connection& connection) {
  const Nanoseconds passed = now - lookedAt_;
  if (passed < kBetweenLooksAtFew) return 0;
  const auto rate = static_cast<double>(carried.bytes - seen_.bytes) / seconds(passed);
  const bool isLong =
      carried.bytes - seen_.bytes >= (carried.messages - seen_.messages) * kLongBytes;
  seen_ = carried;
  lookedAt_ = now;
  std::optional<Way> way = isLong ? connection.way() : std::nullopt;
  if (isLong) isOver_ = !way;
  if (way) seenRate_.note(way->interfaceArrived, now);
  const std::optional<Way> before = std::exchange(before_, way);
  if (isOver_ || !way || !before) return 0;
  const auto own = static_cast<double>(way->bytesPerSecond);
  const double speed = way->isSupposed ? std::min(own, seenRate_.most()) : own;
  const double all =
      static_cast<double>(way->interfaceArrived - before->interfaceArrived) / seconds(passed);
  const bool isQuiet = rate < speed * kPartOfFew && all < speed * kQuietPart;
  if (!isQuiet) return 0;
  return QuietSpeed{.mbit = static_cast<uint32_t>(speed / kBytesPerMbit),
                    .isLeast = way->isSupposed}
      .encode();
}

}  // namespace tutti::transport::net
