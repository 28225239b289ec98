// Meeting at several roots: see rank_groups.h.
#include <algorithm>
#include <array>
#include <bit>
#include <new>
#include <optional>

#include "base/service_thread.h"
#include "bootstrap/bytes.h"
#include "bootstrap/impl.h"
#include "bootstrap/rank_groups.h"
#include "bootstrap/root_client.h"

namespace tutti::bootstrap {
namespace {

// Other tags than those of all-gathers, which are counted.
constexpr uint64_t kRingTag = uint64_t{1} << 62;
constexpr uint64_t kTreeTag = uint64_t{1} << 63;

// Others may still be meeting, and learn who is missing when their time is over: leave them a
// moment to say so.
constexpr std::chrono::milliseconds kRelay{1'000};

constexpr std::string_view kWhat = "the exchange of addresses";

RankGroups groupsOf(const Bootstrap::Options& options) {
  return {.rankCount = options.rankCount,
          .groupCount = static_cast<int32_t>(options.places.size())};
}

// Of the jobs' names, which are random.
uint64_t hashOf(const std::vector<UniqueId>& places, std::string_view purpose) {
  std::array<std::byte, 16> hash{};
  for (const UniqueId& place : places) {
    const std::array<std::byte, 16> before = hash;
    keyedHash(Key(), purpose, {std::as_bytes(std::span(place.job)), before}, hash);
  }
  return loadLittle<uint64_t>(hash.data());
}

}  // namespace

// One root, and what this rank is there.
struct Bootstrap::Impl::Place {
  int32_t group = 0;
  Rank rank{0};  // its number at that root
  const Key& key;
};

Result<Answer> Bootstrap::Impl::askAt(const Place& place,
                                      std::atomic<const Status*>& firstFailure) {
  const RankGroups groups = groupsOf(options);
  const UniqueId& id = options.places[static_cast<size_t>(place.group)];
  Report report{
      .rank = place.rank,
      .rankCount = groups.sizeOf(place.group) + 1,
      .timeout = options.network.gathering(),
      .contact = {.address = {}, .processHash = directory.processHash(), .who = directory.who()},
      .circle = {.first = groups.firstOf(place.group),
                 .of = options.rankCount,
                 .guests = 1,
                 .listHash = hashOf(options.places, "tutti list of ids")}};
  TUTTI_TRY_ASSIGN(report.contact.address, endpoint->listen());
  if (std::shared_ptr<Root> here = directory.findRoot(id.job)) {
    {
      std::lock_guard lock(placesMutex);
      places.emplace_back(id.job, here);
    }
    return here->meet(report, {.abort = options.abort,
                               .failure = &firstFailure,
                               .listen = [shared = endpoint] { return shared->listen(); }});
  }
  TUTTI_TRY_ASSIGN(const SocketAddress address, decodeAddress(id.address));
  TUTTI_TRY(checkElsewhere(id, address));
  return askRoot({.address = address,
                  .key = &place.key,
                  .job = jobName(id.job),
                  .report = report,
                  .timeout = options.network.timeout,
                  .createdSeconds = id.createdSeconds,
                  .maker = id.maker,
                  .abort = options.abort,
                  .failure = &firstFailure,
                  .clock = options.clock,
                  .rng = options.rng});
}

Status Bootstrap::Impl::meetInGroups(const std::vector<Key>& keys) {
  Status status = meetAtRoots(keys);
  if (status.ok()) status = learnInGroups();
  hasMet = status.ok();
  // Not before all are known. When one root has answered, ranks of this process that meet at others
  // may be yet to come; with another endpoint than ours they would tell the wrong address of us.
  for (const UniqueId& place : options.places) directory.closeEndpoint(place.job, *endpoint, true);
  return status;
}

// The first rank of a group meets at two roots, at the same time: each waits for guests of others.
Status Bootstrap::Impl::meetAtRoots(const std::vector<Key>& keys) {
  const RankGroups groups = groupsOf(options);
  const int32_t group = groups.groupOf(options.rank);
  const int32_t before = groups.before(group);
  const bool isFirst = index(options.rank) == groups.firstOf(group);
  // A process that leaves tells others why only where they know its session; ids are used once.
  endpoint->setEpoch(hashOf(options.places, "tutti session") | 1u);
  std::atomic<const Status*> firstFailure{nullptr};  // the first; the other visit gives up then
  const auto note = [&firstFailure](const Result<Answer>& answer) {
    const Status* none = nullptr;
    if (!answer.ok()) firstFailure.compare_exchange_strong(none, &answer.status());
  };
  // The other visit has to hear of any end.
  const auto ask = [&](int32_t at, int32_t rank) noexcept -> Result<Answer> {
    try {
      return askAt({.group = at, .rank = Rank{rank}, .key = keys[static_cast<size_t>(at)]},
                   firstFailure);
    } catch (const std::bad_alloc&) {
      return Status::outOfMemory();
    }
  };
  std::optional<Result<Answer>> asGuest;
  std::thread visit;
  if (isFirst) {
    TUTTI_TRY_ASSIGN(visit, startThread("tutti-guest", [&] {
                       asGuest.emplace(ask(before, groups.sizeOf(before)));
                       note(*asGuest);
                     }));
  }
  Result<Answer> asMember = ask(group, index(options.rank) - groups.firstOf(group));
  note(asMember);
  if (visit.joinable()) visit.join();
  const auto learnFrom = [&](Result<Answer>& answer, int32_t at) {
    if (!answer.ok()) return;
    const Circle circle{.first = groups.firstOf(at), .of = options.rankCount};
    for (const Answer::Peer& peer : answer->peers) {
      const Rank rank{circle.numberOf(peer.rank)};
      endpoint->learn(rank, peer.contact);
      if (rank != options.rank) acquaintances.push_back(rank);
    }
  };
  learnFrom(asMember, group);
  if (asGuest) learnFrom(*asGuest, before);
  if (const Status* why = firstFailure.load()) return why->clone();
  if (isAttached) return {};
  return internalError("rank {} is in this process twice, and the roots did not notice",
                       index(options.rank));
}

// Within the group, around the ring of first ranks, and down in the group again.
Status Bootstrap::Impl::learnInGroups() {
  const RankGroups groups = groupsOf(options);
  const int32_t group = groups.groupOf(options.rank);
  const int32_t first = groups.firstOf(group);
  const int32_t size = groups.sizeOf(group);
  const Contact mine{.address = endpoint->address(),
                     .processHash = directory.processHash(),
                     .who = directory.who()};
  std::vector<std::byte> contacts(static_cast<size_t>(options.rankCount) * kContactBytes);
  const std::vector<std::byte> own = encode(mine);
  std::ranges::copy(own, contacts.begin() + index(options.rank) * ptrdiff_t{kContactBytes});
  const auto members = std::span(contacts).subspan(static_cast<size_t>(first) * kContactBytes,
                                                   static_cast<size_t>(size) * kContactBytes);
  patience = options.network.timeout + kRelay;
  doubt = doubtOf(options.places[static_cast<size_t>(group)]);
  TUTTI_TRY(allGatherAmong({.first = first, .count = size}, members, kContactBytes, kWhat));
  TUTTI_TRY(learn(members, first));
  if (index(options.rank) == first) TUTTI_TRY(passAround(contacts));
  TUTTI_TRY(passDown(contacts));
  TUTTI_TRY(learn(contacts, 0));
  acquaintances.clear();
  doubt.clear();
  patience = options.network.timeout;
  return {};
}

Status Bootstrap::Impl::passAround(std::span<std::byte> contacts) {
  const RankGroups groups = groupsOf(options);
  const int32_t group = groups.groupOf(options.rank);
  const Rank to{groups.firstOf(groups.after(group))};
  const Rank from{groups.firstOf(groups.before(group))};
  const auto blocksOf = [&](int32_t of) {
    return contacts.subspan(static_cast<size_t>(groups.firstOf(of)) * kContactBytes,
                            static_cast<size_t>(groups.sizeOf(of)) * kContactBytes);
  };
  int32_t held = group;
  for (int32_t step = 1; step < groups.groupCount; ++step) {
    const uint64_t tag = kRingTag | static_cast<uint64_t>(step);
    TUTTI_TRY(sendBlocks(to, tag, blocksOf(held), kWhat));
    held = groups.before(held);
    TUTTI_TRY(receiveBlocks(from, tag, blocksOf(held), kWhat));
  }
  return {};
}

// A binomial tree: each hears from the rank that lacks the lowest bit of its place in the group.
Status Bootstrap::Impl::passDown(std::span<std::byte> contacts) {
  const RankGroups groups = groupsOf(options);
  const int32_t group = groups.groupOf(options.rank);
  const int32_t first = groups.firstOf(group);
  const auto size = static_cast<uint32_t>(groups.sizeOf(group));
  const auto place = static_cast<uint32_t>(index(options.rank) - first);
  const auto rankAt = [first](uint32_t at) { return Rank{first + static_cast<int32_t>(at)}; };
  if (place != 0) TUTTI_TRY(receiveBlocks(rankAt(place & (place - 1)), kTreeTag, contacts, kWhat));
  const uint32_t lowest = place == 0 ? std::bit_ceil(size) : place & (~place + 1);
  for (uint32_t bit = lowest / 2; bit > 0; bit /= 2) {
    if (place + bit < size) TUTTI_TRY(sendBlocks(rankAt(place + bit), kTreeTag, contacts, kWhat));
  }
  return {};
}

}  // namespace tutti::bootstrap
