#include "comm/reduction.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/char_field.h"
#include "base/futex.h"
#include "base/log.h"
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

ReductionOffer describeReduction(Result<net::ReductionNetwork*> network) {
  ReductionOffer offer{.isWanted = 1};
  if (!network.ok()) {
    setText(offer.obstacle, network.status().message());
    return offer;
  }
  const net::ReductionNetwork::Caps& caps = (*network)->caps();
  offer.deviceCount = static_cast<int32_t>(caps.deviceCount);
  offer.supported = supportedBy(**network);
  offer.maxBytes = caps.maxBytes;
  offer.gathers = caps.gathers ? 1 : 0;
  offer.scatters = caps.scatters ? 1 : 0;
  setText(offer.name, caps.name);
  return offer;
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

Result<std::unique_ptr<net::ReductionGroup>> connect(const ReductionParts& parts,
                                                     net::ReductionMember& member,
                                                     std::span<const net::MemberHandle> handles,
                                                     size_t number) {
  // The other ranks wait for the outcome, as long as the time-out.
  const Instant deadline = parts.clock.now() + parts.timeout / 2;
  std::atomic<uint64_t> never{0};
  for (;;) {
    TUTTI_TRY_ASSIGN(auto group, member.connect(handles, number));
    if (group != nullptr) return group;
    if (parts.abort != nullptr && parts.abort->load(std::memory_order_acquire))
      return Status(Code::kInternalError, "aborted during initialisation");
    if (parts.clock.now() > deadline) {
      return Status(Code::kSystemError,
                    fmt::format("its members did not connect within {} ms",
                                std::chrono::milliseconds(parts.timeout / 2).count()));
    }
    sleepOn({.word = &never, .seen = 0}, kAskAgain);
  }
}

// This rank's group, with the ranks in its seat on all hosts.
Result<std::unique_ptr<net::ReductionGroup>> joinGroup(const ReductionParts& parts,
                                                       std::span<const Rank> members,
                                                       int32_t seat) {
  const auto self =
      static_cast<size_t>(std::ranges::find(members, parts.bootstrap.rank()) - members.begin());
  Result<std::unique_ptr<net::ReductionMember>> member =
      parts.network->listen(static_cast<size_t>(seat));
  std::vector<net::MemberHandle> handles(members.size());
  Status own;
  if (member.ok()) {
    handles[self] = (*member)->handle();
  } else {
    own = member.takeStatus();
  }
  TUTTI_TRY(gather({.bootstrap = parts.bootstrap,
                    .members = members,
                    .tag = kMark | (static_cast<uint64_t>(seat) << 8),
                    .timeout = parts.timeout,
                    .abort = parts.abort,
                    .what = "the meeting of a collective network's members"},
                   std::move(own), std::as_writable_bytes(std::span(handles)),
                   sizeof(net::MemberHandle)));
  return connect(parts, **member, handles, self);
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
    seat.maxBytes = parts.network->caps().maxBytes;
    Result<std::unique_ptr<net::ReductionGroup>> group = joinGroup(parts, seat.members, number);
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
