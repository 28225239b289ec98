#include "bootstrap/bootstrap.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "base/log.h"
#include "bootstrap/directory.h"
#include "bootstrap/impl.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/key.h"
#include "bootstrap/root_client.h"
#include "bootstrap/socket.h"

namespace tutti::bootstrap {
namespace {

// With NCCL_COMM_ID all that the ranks share is this text (and the secret file): job and secret are
// made of it.
Result<UniqueId> makeFixedId(const NetworkOptions& network) {
  TUTTI_TRY_ASSIGN(const SocketAddress address,
                   SocketAddress::resolve(network.commId, network.family));
  if (address.port() == 0) {
    return invalidArgument("NCCL_COMM_ID={} has port 0, wanted a fixed one", network.commId);
  }
  UniqueId id;
  id.address = encodeAddress(address);
  const auto text = std::as_bytes(std::span(network.commId));
  keyedHash(Key(), "tutti fixed job", {text}, std::as_writable_bytes(std::span(id.job)));
  keyedHash(Key(), "tutti fixed secret", {text}, std::as_writable_bytes(std::span(id.secret)));
  return id;
}

UniqueId makeRandomId(Rng& rng) {
  UniqueId id;
  rng.fill(std::as_writable_bytes(std::span(id.job)));
  rng.fill(std::as_writable_bytes(std::span(id.secret)));
  id.createdSeconds = static_cast<uint64_t>(wallClockSeconds());
  return id;
}

Root::Options rootOptions(const UniqueId& id, const NetworkOptions& network) {
  return {.key = {},
          .job = jobName(id.job),
          .timeout = network.timeout,
          .helloTimeout = network.helloTimeout};
}

// Listens at the fixed address. The previous job's root may hold it a moment longer, in this or
// another process.
Result<UniqueFd> listenAtFixed(const SocketAddress& address, const Bootstrap::Options& options) {
  const Instant deadline = options.clock->now() + options.network.timeout;
  for (int attempts = 1;; ++attempts) {
    Listening listening = tryListen(address);
    if (listening.fd) return std::move(listening.fd);
    const bool isAborted = options.abort != nullptr && options.abort->load();
    if (listening.errnoValue != EADDRINUSE || isAborted || options.clock->now() >= deadline) {
      return listenError(address, listening.errnoValue);
    }
    pauseFor(backoff(attempts));
  }
}

Status checkOptions(const Bootstrap::Options& options) {
  const int rank = index(options.rank);
  if (options.rankCount < 1 || options.rankCount > kMaxRankCount) {
    return invalidArgument("a communicator of {} ranks: wanted 1 to {}", options.rankCount,
                           kMaxRankCount);
  }
  if (rank < 0 || rank >= options.rankCount) {
    return invalidArgument("rank {} of {}: wanted 0 to {}", rank, options.rankCount,
                           options.rankCount - 1);
  }
  return {};
}

}  // namespace

Result<UniqueId> makeUniqueId(Directory& directory, const NetworkOptions& network, Rng& rng) {
  if (!network.commId.empty()) return makeFixedId(network);
  UniqueId id = makeRandomId(rng);
  TUTTI_TRY(openRoot(directory, network, Reach::kNetwork, id));
  return id;
}

UniqueId deriveUniqueId(const UniqueId& from, const Salt& salt) {
  Key secret;
  std::copy(from.secret.begin(), from.secret.end(), secret.bytes().begin());
  const auto job = std::as_bytes(std::span(from.job));
  UniqueId id;
  keyedHash(secret, "tutti derived job", {job, salt}, std::as_writable_bytes(std::span(id.job)));
  keyedHash(secret, "tutti derived secret", {job, salt},
            std::as_writable_bytes(std::span(id.secret)));
  return id;
}

Status openRoot(Directory& directory, const NetworkOptions& network, Reach reach, UniqueId& id) {
  if (reach == Reach::kProcess) {
    directory.addRoot(id.job, Root::makeLocal(rootOptions(id, network)));
    return {};
  }
  TUTTI_TRY_ASSIGN(const std::string fileSecret, readSecretFile(network.secretFile));
  TUTTI_TRY_ASSIGN(const InterfaceChoice choice,
                   chooseInterfaces({.names = network.interfaces, .family = network.family}));
  TUTTI_TRY_ASSIGN(UniqueFd listener, listenOn(choice.interfaces.front().address));
  id.address = encodeAddress(localAddress(listener.get()));
  id.maker = directory.maker();
  Root::Options options = rootOptions(id, network);
  options.key = deriveJobKey(id, fileSecret);
  TUTTI_TRY_ASSIGN(std::shared_ptr<Root> root, Root::open(std::move(listener), std::move(options)));
  log::info(log::Subsystem::kBootstrap, "root of job {} listens at {}", jobName(id.job),
            root->address().text());
  directory.addRoot(id.job, std::move(root));
  return {};
}

void closeRoot(Directory& directory, const UniqueId& id) { directory.removeRoot(id.job); }

void giveUp(Directory& directory, const UniqueId& id, Rank rank, std::string_view why) {
  const std::shared_ptr<Root> root = directory.findRoot(id.job);
  if (root) root->giveUp(rank, directory.who(), why);
}

UniqueId makeLocalUniqueId(Directory& directory, Rng& rng) {
  const UniqueId id = makeRandomId(rng);
  directory.addRoot(id.job, Root::makeLocal(rootOptions(id, {})));
  return id;
}

Bootstrap::Impl::~Impl() {
  if (isAttached) leave();
  endpoint.reset();
  if (isUserOfRoot) directory.leaveRoot(options.id.job, std::move(root));
  if (options.places.size() > 1) closeOthersRoots();
  for (auto& [job, met] : places) directory.leaveRoot(job, std::move(met));
  sodium_memzero(options.id.secret.data(), options.id.secret.size());
  for (UniqueId& place : options.places) sodium_memzero(place.secret.data(), place.secret.size());
}

// Those of this process that serve groups of other processes. Whoever waits there, or comes later,
// hears why this rank failed.
void Bootstrap::Impl::closeOthersRoots() {
  for (const UniqueId& id : options.places) {
    const bool hasMetHere =
        std::ranges::any_of(places, [&id](const auto& place) { return place.first == id.job; });
    if (hasMetHere) continue;
    if (hasMet) {
      directory.removeRoot(id.job);
    } else {
      giveUp(directory, id, options.rank, failure);
    }
  }
}

Status Bootstrap::Impl::prepare() {
  isFixed = !options.network.commId.empty();
  if (isFixed) {
    TUTTI_TRY_ASSIGN(options.id, makeFixedId(options.network));
  }
  TUTTI_TRY_ASSIGN(const SocketAddress address, decodeAddress(options.id.address));
  TUTTI_TRY_ASSIGN(std::string fileSecret, readSecretFile(options.network.secretFile));
  const Key key = deriveJobKey(options.id, fileSecret);
  const bool isSplit = !isFixed && options.places.size() > 1;
  std::vector<Key> placeKeys;
  for (const UniqueId& place : options.places) {
    if (isSplit) placeKeys.push_back(deriveJobKey(place, fileSecret));
  }
  sodium_memzero(fileSecret.data(), fileSecret.size());
  if (!isSplit) TUTTI_TRY(findRoot(address, key));
  endpoint = directory.joinEndpoint(options.id.job, {.key = key,
                                                     .job = jobName(options.id.job),
                                                     .processHash = directory.processHash(),
                                                     .rootAddress = address,
                                                     .interfaces = options.network.interfaces,
                                                     .family = options.network.family,
                                                     .timeout = options.network.timeout,
                                                     .patience = options.network.gathering(),
                                                     .helloTimeout = options.network.helloTimeout,
                                                     .clock = options.clock,
                                                     .rng = options.rng});
  // A second thread of this process with our number: the root tells both of us.
  isAttached = endpoint->attach(options.rank);
  return isSplit ? meetInGroups(placeKeys) : meet(address, key);
}

// The root of this process, if the job meets here; it is then met by a call instead of a
// connection.
Status Bootstrap::Impl::findRoot(const SocketAddress& address, const Key& key) {
  root = directory.findRoot(options.id.job);
  if (isFixed) {
    // A root that has finished belongs to an earlier job at the same address.
    if (root && !root->isGathering()) root.reset();
    return root || index(options.rank) != 0 ? Status() : openFixedRoot(address, key);
  }
  return root ? Status() : checkElsewhere(options.id, address);
}

// Whether a root that this process does not have may be somewhere else.
Status Bootstrap::Impl::checkElsewhere(const UniqueId& id, const SocketAddress& address) const {
  if (directory.wasUsed(id.job)) {
    return invalidUsage(
        "id already used: job {} met, or failed to meet, in this process before; every "
        "communicator needs a new id from ncclGetUniqueId",
        jobName(id.job));
  }
  if (address.isEmpty()) {
    return invalidUsage("job {} belongs to another process: its id is valid only there",
                        jobName(id.job));
  }
  return {};
}

Status Bootstrap::Impl::openFixedRoot(const SocketAddress& address, const Key& key) {
  if (options.network.secretFile.empty()) {
    log::warn(
        "NCCL_COMM_ID={} without TUTTI_SECRET_FILE: whoever can reach this address can join the "
        "job; a file with a secret, the same on all ranks, keeps strangers out",
        options.network.commId);
  }
  TUTTI_TRY_ASSIGN(UniqueFd listener, listenAtFixed(address, options));
  Root::Options wanted = rootOptions(options.id, options.network);
  wanted.key = key;
  wanted.isReusable = true;
  wanted.clock = options.clock;
  wanted.rng = options.rng;
  TUTTI_TRY_ASSIGN(root, Root::open(std::move(listener), std::move(wanted)));
  directory.addRoot(options.id.job, root);
  return {};
}

Result<Answer> Bootstrap::Impl::askForPeers(const SocketAddress& address, const Key& key) {
  Report report{
      .rank = options.rank,
      .rankCount = options.rankCount,
      .timeout = options.network.gathering(),
      .contact = {.address = {}, .processHash = directory.processHash(), .who = directory.who()}};
  if (root) {
    isUserOfRoot = true;
    return root->meet(report, {.abort = options.abort,
                               .listen = [shared = endpoint] { return shared->listen(); }});
  }
  TUTTI_TRY_ASSIGN(report.contact.address, endpoint->listen());
  return askRoot({.address = address,
                  .key = &key,
                  .job = jobName(options.id.job),
                  .report = report,
                  .timeout = options.network.timeout,
                  .createdSeconds = options.id.createdSeconds,
                  .maker = options.id.maker,
                  .isReusable = isFixed,
                  .abort = options.abort,
                  .clock = options.clock,
                  .rng = options.rng});
}

Status Bootstrap::Impl::meet(const SocketAddress& address, const Key& key) {
  Result<Answer> answer = askForPeers(address, key);
  directory.closeEndpoint(options.id.job, *endpoint, !isFixed);
  if (!answer.ok()) return answer.takeStatus();
  if (!isAttached) {
    return internalError("rank {} is in this process twice, and the root did not notice",
                         index(options.rank));
  }
  for (const Answer::Peer& peer : answer->peers) endpoint->learn(peer.rank, peer.contact);
  endpoint->setEpoch(answer->epoch);
  return learnAll();
}

// The root told only our neighbours; they tell the rest.
Status Bootstrap::Impl::learnAll() {
  const Contact mine{.address = endpoint->address(),
                     .processHash = directory.processHash(),
                     .who = directory.who()};
  const auto count = static_cast<size_t>(options.rankCount);
  std::vector<std::byte> all(count * kContactBytes);
  const std::vector<std::byte> own = encode(mine);
  std::copy(own.begin(), own.end(), all.begin() + index(options.rank) * ptrdiff_t{kContactBytes});
  if (!root) doubt = doubtOf(options.id);
  TUTTI_TRY(allGather(all, kContactBytes, "the exchange of addresses"));
  doubt.clear();
  return learn(all, 0);
}

// One that ends amid its answers leaves some ranks waiting for others that never heard of them.
std::string Bootstrap::Impl::doubtOf(const UniqueId& id) const {
  const std::string maker = isFixed ? "the process of rank 0" : describe(id.maker);
  if (maker.empty()) return "";
  return fmt::format("; {}, where the ranks met, may have ended before it had answered all", maker);
}

Status Bootstrap::Impl::learn(std::span<const std::byte> contacts, int32_t first) {
  for (size_t i = 0; i * kContactBytes < contacts.size(); ++i) {
    const Rank rank{first + static_cast<int32_t>(i)};
    const auto contact = decodeContact(contacts.subspan(i * kContactBytes, kContactBytes));
    if (!contact)
      return remoteError("{} sent an address that cannot be read", endpoint->describe(rank));
    endpoint->learn(rank, *contact);
  }
  return {};
}

Status Bootstrap::Impl::allGather(std::span<std::byte> all, size_t blockBytes,
                                  std::string_view what) {
  return allGatherAmong({.first = 0, .count = options.rankCount}, all, blockBytes, what);
}

// Bruck's algorithm (Bruck et al. 1997): after round k everybody has the blocks of the 2^(k+1)
// ranks from its own on.
Status Bootstrap::Impl::allGatherAmong(const Members& members, std::span<std::byte> all,
                                       size_t blockBytes, std::string_view what) {
  const auto count = static_cast<size_t>(members.count);
  const auto self = static_cast<size_t>(index(options.rank) - members.first);
  const auto rankAt = [&](size_t place) {
    return Rank{members.first + static_cast<int32_t>(place % count)};
  };
  const uint64_t sequence = collectives++;
  std::vector<std::byte> rotated(count * blockBytes);
  const auto blockOf = [&](size_t rank) { return all.subspan(rank * blockBytes, blockBytes); };
  std::copy_n(blockOf(self).begin(), blockBytes, rotated.begin());
  uint64_t round = 0;
  for (size_t distance = 1; distance < count; distance *= 2, ++round) {
    const size_t blocks = std::min(distance, count - distance);
    const Rank to = rankAt(self + count - distance);
    const Rank from = rankAt(self + distance);
    const uint64_t tag = sequence << 8 | round;
    TUTTI_TRY(sendBlocks(to, tag, std::span(rotated).first(blocks * blockBytes), what));
    TUTTI_TRY(receiveBlocks(
        from, tag, std::span(rotated).subspan(distance * blockBytes, blocks * blockBytes), what));
  }
  for (size_t i = 0; i < count; ++i) {
    std::copy_n(rotated.begin() + static_cast<ptrdiff_t>(i * blockBytes), blockBytes,
                blockOf((self + i) % count).begin());
  }
  return {};
}

// In pieces of kMaxMessageBytes; an empty one when there is nothing to say but "I am here".
Status Bootstrap::Impl::sendBlocks(Rank to, uint64_t tag, std::span<const std::byte> blocks,
                                   std::string_view what) {
  do {
    const size_t bytes = std::min(blocks.size(), kMaxMessageBytes);
    const Status sent =
        endpoint->send({options.rank, to, FrameType::kCollective, tag}, blocks.first(bytes));
    if (!sent.ok()) return Status(sent.code(), fmt::format("{} in {}", sent.message(), what));
    blocks = blocks.subspan(bytes);
  } while (!blocks.empty());
  return {};
}

Status Bootstrap::Impl::receiveBlocks(Rank from, uint64_t tag, std::span<std::byte> blocks,
                                      std::string_view what) {
  std::vector<std::byte> message;
  do {
    const size_t bytes = std::min(blocks.size(), kMaxMessageBytes);
    TUTTI_TRY(endpoint->receive({options.rank, from, FrameType::kCollective, tag},
                                {patience, options.abort, what, doubt}, message));
    if (message.size() != bytes) {
      return invalidUsage(
          "{} sent {} bytes in {}, rank {} wanted {}: the ranks disagree about the "
          "block size or the order of calls",
          endpoint->describe(from), message.size(), what, index(options.rank), bytes);
    }
    std::copy(message.begin(), message.end(), blocks.begin());
    blocks = blocks.subspan(bytes);
  } while (!blocks.empty());
  return {};
}

Status Bootstrap::Impl::checkPeer(Rank peer) const {
  if (index(peer) >= 0 && index(peer) < options.rankCount) return {};
  return invalidArgument("peer {} of rank {}: wanted 0 to {}", index(peer), index(options.rank),
                         options.rankCount - 1);
}

Status Bootstrap::Impl::note(Status status) {
  std::lock_guard lock(failureMutex);
  if (!status.ok() && failure.empty()) failure = status.message();
  return status;
}

void Bootstrap::Impl::leave() noexcept {
  try {
    bidFarewell();
  } catch (const std::bad_alloc&) {
    log::write(log::Level::kWarn, log::Subsystem::kBootstrap,
               "no memory to tell the other ranks why this one leaves");
  }
  endpoint->detach(options.rank, !failure.empty());
}

// Those who wait for us in an all-gather, or will, are the ranks a power of two before us; and
// before we know all, those we have heard of.
void Bootstrap::Impl::bidFarewell() {
  std::lock_guard lock(failureMutex);
  if (isAborted()) failure = fmt::format("rank {} was aborted", index(options.rank));
  if (!failure.empty()) {
    std::vector<Rank> waiting = acquaintances;
    for (int32_t distance = 1; distance < options.rankCount; distance *= 2) {
      waiting.push_back(
          Rank{(index(options.rank) + options.rankCount - distance) % options.rankCount});
    }
    endpoint->bidFarewell(options.rank, waiting, failure);
  }
}

Bootstrap::Bootstrap(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Bootstrap::~Bootstrap() = default;

Result<std::unique_ptr<Bootstrap>> Bootstrap::connect(Directory& directory,
                                                      const Options& options) {
  TUTTI_TRY(checkOptions(options));
  auto impl = std::make_unique<Impl>(directory, options);
  TUTTI_TRY(impl->note(impl->prepare()));
  return std::unique_ptr<Bootstrap>(new Bootstrap(std::move(impl)));
}

Status Bootstrap::allGather(std::span<std::byte> all, size_t blockBytes, std::string_view what) {
  const size_t wanted = static_cast<size_t>(rankCount()) * blockBytes;
  if (all.size() != wanted) {
    return invalidArgument("an all-gather of {} bytes, wanted {} ({} ranks of {} bytes)",
                           all.size(), wanted, rankCount(), blockBytes);
  }
  const std::string number = fmt::format("all-gather {}", impl_->collectives);
  return impl_->note(impl_->allGather(all, blockBytes, what.empty() ? number : what));
}

Status Bootstrap::barrier(std::string_view what) {
  const std::string number = fmt::format("barrier {}", impl_->collectives);
  return impl_->note(impl_->allGather({}, 0, what.empty() ? number : what));
}

Status Bootstrap::send(Rank to, Tag tag, std::span<const std::byte> message) {
  TUTTI_TRY(impl_->checkPeer(to));
  if (message.size() > kMaxMessageBytes) {
    return invalidArgument("a bootstrap message of {} bytes, wanted at most {}", message.size(),
                           kMaxMessageBytes);
  }
  const Endpoint::Slot slot{rank(), to, FrameType::kMessage, static_cast<uint64_t>(tag)};
  return impl_->note(impl_->endpoint->send(slot, message));
}

Result<Progress> Bootstrap::tryReceive(Rank from, Tag tag, std::vector<std::byte>& message) {
  TUTTI_TRY(impl_->checkPeer(from));
  return impl_->endpoint->tryReceive(
      {rank(), from, FrameType::kMessage, static_cast<uint64_t>(tag)}, message);
}

SocketAddress Bootstrap::address() const {
  return impl_->endpoint == nullptr ? SocketAddress{} : impl_->endpoint->address();
}

Result<std::optional<Sign>> Bootstrap::probe(Rank peer) {
  TUTTI_TRY(impl_->checkPeer(peer));
  return impl_->endpoint->probe(rank(), peer);
}

std::optional<Sign> Bootstrap::lastSign(Rank peer) {
  if (!impl_->checkPeer(peer).ok()) return std::nullopt;
  return impl_->endpoint->lastSign(rank(), peer);
}

void Bootstrap::tellAll() {
  if (impl_->endpoint != nullptr) impl_->endpoint->tellAll(rank());
}

void Bootstrap::say(std::function<std::vector<std::byte>()> words) {
  if (impl_->endpoint != nullptr) impl_->endpoint->say(rank(), std::move(words));
}

Status Bootstrap::receive(Rank from, Tag tag, std::vector<std::byte>& message) {
  TUTTI_TRY(impl_->checkPeer(from));
  const std::string what = fmt::format("receive with tag {}", static_cast<uint64_t>(tag));
  return impl_->note(impl_->endpoint->receive(
      {rank(), from, FrameType::kMessage, static_cast<uint64_t>(tag)},
      {impl_->options.network.timeout, impl_->options.abort, what}, message));
}

Status Bootstrap::receive(Rank from, Tag tag, const Wait& wait, std::vector<std::byte>& message) {
  TUTTI_TRY(impl_->checkPeer(from));
  return impl_->endpoint->receive({rank(), from, FrameType::kMessage, static_cast<uint64_t>(tag)},
                                  {wait.timeout, wait.abort, wait.what}, message);
}

void Bootstrap::noteFailure(std::string_view why) {
  std::lock_guard lock(impl_->failureMutex);
  if (impl_->failure.empty()) {
    impl_->failure =
        fmt::format("{} failed: {}", impl_->endpoint->describe(impl_->options.rank), why);
  }
}

Rank Bootstrap::rank() const { return impl_->options.rank; }
int32_t Bootstrap::rankCount() const { return impl_->options.rankCount; }

}  // namespace tutti::bootstrap
