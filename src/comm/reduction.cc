#include "comm/reduction.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/char_field.h"
#include "base/futex.h"
#include "base/log.h"
#include "comm/plugin_calls.h"
#include "comm/subgroup.h"

namespace tutti::comm {
namespace {

// Of bootstrap tags; links' have zeros there, and splits have marks of their own.
constexpr uint64_t kMark = uint64_t{0x434e} << 48;

constexpr std::chrono::milliseconds kAskAgain{1};

uint64_t supportedBy(const net::ReductionNetwork& network) {
  uint64_t supported = 0;
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin}) {
      const auto dataType = static_cast<DataType>(type);
      Result<bool> isSupported = network.supports(dataType, op);
      if (isSupported.ok() && *isSupported)
        supported |= plan::NetworkReduction::bitOf(dataType, op);
    }
  }
  return supported;
}

Rank rankAt(std::span<const Rank> order, int32_t place) {
  return order.empty() ? Rank{place} : order[static_cast<size_t>(place)];
}

// The first place of each host; empty where the ranks of one are not next to each other.
std::vector<int32_t> startsOf(std::span<const ReductionRank> ranks, std::span<const Rank> order) {
  std::vector<int32_t> starts;
  std::vector<int32_t> seen;
  for (int32_t place = 0; place < static_cast<int32_t>(ranks.size()); ++place) {
    const int32_t host = ranks[static_cast<size_t>(index(rankAt(order, place)))].host;
    if (!seen.empty() && seen.back() == host) continue;
    if (std::ranges::find(seen, host) != seen.end()) return {};
    seen.push_back(host);
    starts.push_back(place);
  }
  return starts;
}

// What is in the way on one of the ranks.
std::string obstacleOf(std::span<const ReductionRank> ranks) {
  const ReductionOffer& first = *ranks.front().offer;
  for (const ReductionRank& each : ranks) {
    if (each.offer->isWanted == 0)
      return fmt::format("NCCL_COLLNET_ENABLE is not set on rank {}", index(each.rank));
    if (each.offer->deviceCount <= 0)
      return fmt::format("rank {} has none: {}", index(each.rank), textOf(each.offer->obstacle));
    if (textOf(each.offer->name) != textOf(first.name)) {
      return fmt::format("rank {} has {}, rank {} has {}", index(ranks.front().rank),
                         textOf(first.name), index(each.rank), textOf(each.offer->name));
    }
  }
  return {};
}

}  // namespace

namespace {

Result<FoundReduction> openAndAsk(const net::NetworkOptions& options) {
  TUTTI_TRY_ASSIGN(std::shared_ptr<net::ReductionNetwork> network, net::openReduction(options));
  const net::ReductionNetwork::Caps& caps = network->caps();
  ReductionOffer offer{.isWanted = 1,
                       .deviceCount = static_cast<int32_t>(caps.deviceCount),
                       .supported = supportedBy(*network),
                       .maxBytes = caps.maxBytes,
                       .gathers = caps.gathers ? 1 : 0,
                       .scatters = caps.scatters ? 1 : 0};
  setText(offer.name, caps.name);
  return FoundReduction{.network = std::move(network), .offer = offer};
}

}  // namespace

Result<FoundReduction> findReduction(const net::NetworkOptions& options) {
  return callInTime<FoundReduction>(pluginPatience(options.timeout),
                                    [options] { return openAndAsk(options); });
}

Result<ReductionOffer> lookForReduction(const net::NetworkOptions& options) {
  return callInTime<ReductionOffer>(
      pluginPatience(options.timeout), [options]() -> Result<ReductionOffer> {
        TUTTI_TRY_ASSIGN(const FoundReduction found, openAndAsk(options));
        return found.offer;
      });
}

ReductionOffer offerOf(Result<const FoundReduction*> found) {
  if (found.ok()) return (*found)->offer;
  ReductionOffer none{.isWanted = 1};
  setText(none.obstacle, found.status().message());
  return none;
}

plan::NetworkReduction agreeOnReduction(std::span<const ReductionRank> ranks,
                                        std::span<const Rank> order) {
  plan::NetworkReduction network;
  const auto isWanted = [](const ReductionRank& each) { return each.offer->isWanted != 0; };
  if (std::ranges::none_of(ranks, isWanted)) return network;
  network.obstacle = obstacleOf(ranks);
  if (!network.obstacle.empty()) return network;
  network.name = textOf(ranks.front().offer->name);
  network.supported = ~uint64_t{0};
  network.gathers = network.scatters = true;
  const std::vector<int32_t> starts = startsOf(ranks, order);
  const auto hosts = static_cast<int32_t>(starts.size());
  int32_t threshold = 2, heads = static_cast<int32_t>(ranks.size());
  for (const ReductionRank& each : ranks) {
    threshold = std::max(threshold, each.offer->nodeThreshold);
    heads = std::min(heads, each.offer->deviceCount);
    network.supported &= each.offer->supported;
    network.gathers = network.gathers && each.offer->gathers != 0;
    network.scatters = network.scatters && each.offer->scatters != 0;
  }
  for (size_t host = 0; host < starts.size(); ++host) {
    const auto end =
        host + 1 < starts.size() ? starts[host + 1] : static_cast<int32_t>(ranks.size());
    heads = std::min(heads, end - starts[host]);
  }
  if (starts.empty()) {
    network.obstacle = "the ranks of a host are not next to each other in the order of ranks";
  } else if (hosts < threshold) {
    network.obstacle = fmt::format("{} host{}, and NCCL_COLLNET_NODE_THRESHOLD wants {}", hosts,
                                   hosts == 1 ? "" : "s", threshold);
  } else {
    network.headCount = heads;
    network.hostStarts = starts;
  }
  return network;
}

std::vector<Rank> membersOf(const plan::NetworkReduction& network, std::span<const Rank> order,
                            int32_t seat) {
  std::vector<Rank> members;
  for (const int32_t start : network.hostStarts) members.push_back(rankAt(order, start + seat));
  return members;
}

namespace {

// What a rank says of its part in making the groups.
struct Outcome {
  int32_t isGood = 1;
  std::array<char, 252> text{};
};

// The seat in which this rank is a head; -1: none.
int32_t seatOf(const ReductionParts& parts, const plan::NetworkReduction& network) {
  for (int32_t seat = 0; seat < network.headCount; ++seat) {
    const std::vector<Rank> members = membersOf(network, parts.order, seat);
    if (std::ranges::find(members, parts.bootstrap.rank()) != members.end()) return seat;
  }
  return -1;
}

using SharedMember = std::shared_ptr<net::ReductionMember>;
using SharedGroup = std::shared_ptr<net::ReductionGroup>;

// What a call on the network's thread brings. Calls that end by themselves, given up after that
// time, have a little more: what hangs is told as such.
template <typename T, typename Call>
Result<T> await(const ReductionParts& parts, net::CallThread& calls, Call call) {
  constexpr Nanoseconds kLook = std::chrono::milliseconds(5);
  const Nanoseconds patience = parts.timeout * 5 / 8;
  const Instant deadline = parts.clock.now() + patience;
  net::Awaited<T> awaited;
  awaited.start(&calls, std::move(call));
  for (;;) {
    calls.waitUntilIdle(kLook);
    if (auto result = awaited.take()) return std::move(*result);
    if (parts.abort != nullptr && parts.abort->load(std::memory_order_acquire))
      return Status(Code::kInternalError, "aborted during initialisation");
    if (parts.clock.now() > deadline) return Status(Code::kSystemError, calls.complaint(patience));
  }
}

Result<SharedMember> listen(const ReductionParts& parts, net::CallThread& calls, int32_t seat) {
  return await<SharedMember>(
      parts, calls, [network = parts.network, seat]() -> Result<SharedMember> {
        TUTTI_TRY_ASSIGN(SharedMember member, network->listen(static_cast<size_t>(seat)));
        return member;
      });
}

// Asks until all members have come, or nobody waits for them any more. `member` goes with it, on
// the network's thread.
struct Connecting {
  SharedMember member;
  std::vector<net::MemberHandle> handles;
  size_t number = 0;
  std::chrono::milliseconds patience{0};
  std::shared_ptr<std::atomic<bool>> isGivenUp;  // shared with whoever waits

  Result<SharedGroup> operator()() const {
    const Instant deadline = steadyClock().now() + patience;
    for (;;) {
      TUTTI_TRY_ASSIGN(SharedGroup group, member->connect(handles, number));
      if (group != nullptr) return group;
      if (isGivenUp->load(std::memory_order_relaxed) || steadyClock().now() > deadline) {
        return Status(Code::kSystemError,
                      fmt::format("its members did not connect within {} ms", patience.count()));
      }
      sleepFor(kAskAgain);
    }
  }
};

// This rank's group, with the ranks in its seat on all hosts.
Result<SharedGroup> meet(const ReductionParts& parts, net::CallThread& calls,
                         std::span<const Rank> members, int32_t seat) {
  const auto self =
      static_cast<size_t>(std::ranges::find(members, parts.bootstrap.rank()) - members.begin());
  Result<SharedMember> member = listen(parts, calls, seat);
  std::vector<net::MemberHandle> handles(members.size());
  Status own;
  if (member.ok()) {
    handles[self] = (*member)->handle();
  } else {
    own = member.takeStatus();
  }
  const Status gathered =
      gather({.bootstrap = parts.bootstrap,
              .members = members,
              .tag = kMark | (static_cast<uint64_t>(seat) << 8),
              .timeout = parts.timeout,
              .abort = parts.abort,
              .what = "the meeting of a collective network's members"},
             std::move(own), std::as_writable_bytes(std::span(handles)), sizeof(net::MemberHandle));
  if (!gathered.ok()) {
    if (member.ok()) calls.post([kept = std::move(member).value()] {});
    return gathered.clone();
  }
  // The other ranks wait for the outcome, as long as the time-out.
  const auto isGivenUp = std::make_shared<std::atomic<bool>>(false);
  Result<SharedGroup> group = await<SharedGroup>(parts, calls,
                                                 Connecting{.member = std::move(member).value(),
                                                            .handles = std::move(handles),
                                                            .number = self,
                                                            .patience = parts.timeout / 2,
                                                            .isGivenUp = isGivenUp});
  isGivenUp->store(true, std::memory_order_relaxed);
  return group;
}

Result<std::unique_ptr<net::HeldGroup>> joinGroup(const ReductionParts& parts,
                                                  std::span<const Rank> members, int32_t seat) {
  TUTTI_TRY_ASSIGN(std::unique_ptr<net::CallThread> meeting, net::CallThread::start());
  Result<SharedGroup> group = meet(parts, *meeting, members, seat);
  // A listener that does not close takes nothing but its own thread with it.
  net::endCalls(std::move(meeting));
  if (!group.ok()) return group.takeStatus();
  TUTTI_TRY_ASSIGN(std::unique_ptr<net::CallThread> calls, net::CallThread::start());
  return std::make_unique<net::HeldGroup>(
      fmt::format("collective network {}", parts.network->caps().name), std::move(calls),
      std::move(group).value());
}

}  // namespace

Result<channel::LinkSet::NetworkSeat> joinReduction(const ReductionParts& parts,
                                                    plan::NetworkReduction& network) {
  channel::LinkSet::NetworkSeat seat;
  const int32_t number = seatOf(parts, network);
  std::vector<Outcome> outcomes(static_cast<size_t>(parts.rankCount));
  if (number >= 0) {
    seat.name = network.name;
    seat.network = Rank{parts.rankCount + number};
    seat.members = membersOf(network, parts.order, number);
    seat.patience = parts.timeout / 2;
    seat.maxBytes = parts.network->caps().maxBytes;
    Result<std::unique_ptr<net::HeldGroup>> group = joinGroup(parts, seat.members, number);
    if (group.ok()) {
      seat.group = std::move(group).value();
    } else {
      Outcome& own = outcomes[static_cast<size_t>(index(parts.bootstrap.rank()))];
      own.isGood = 0;
      setText(own.text, group.status().message());
    }
  }
  TUTTI_TRY(parts.bootstrap.allGather(std::as_writable_bytes(std::span(outcomes)), sizeof(Outcome),
                                      "the agreement on the network that reduces"));
  const auto bad = std::ranges::find(outcomes, 0, &Outcome::isGood);
  if (bad == outcomes.end()) return seat;
  network.headCount = 0;
  network.hostStarts.clear();
  network.obstacle = fmt::format("rank {}: {}", bad - outcomes.begin(), textOf(bad->text));
  return channel::LinkSet::NetworkSeat{};
}

}  // namespace tutti::comm
