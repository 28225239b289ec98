#include "channel/link_set.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/log.h"
#include "transport/parting.h"

namespace tutti::channel {
namespace {

// What the receiver sends the sender. Checked field by field on arrival.
struct OfferMessage {
  uint32_t version = 1;
  uint32_t transportIndex = 0;
  uint32_t slotCount = 0;
  uint32_t slotBytes = 0;
  transport::Offer offer{};
};
static_assert(sizeof(OfferMessage) == 16 + sizeof(transport::Offer));

// Bootstrap tags with this prefix carry offers.
bootstrap::Tag offerTag(Lane lane) {
  return bootstrap::Tag{(uint64_t{0x4c4e4b} << 32) | static_cast<uint64_t>(lane)};
}

// With this one, why a member of a network's group has failed: a parting.
constexpr bootstrap::Tag kMemberTag{uint64_t{0x4e4554} << 32};
constexpr size_t kMaxPartingBytes = 2048;
// With this one, how much a member that waits for long has handed in.
constexpr bootstrap::Tag kPostedTag{(uint64_t{0x4e4554} << 32) | 1};
// With this one, whose process carries a link: a rank's number, from the sender.
bootstrap::Tag carrierTag(Lane lane) {
  return bootstrap::Tag{(uint64_t{0x4c4e43} << 32) | static_cast<uint64_t>(lane)};
}
// More links at once would flood a listener that many ranks connect to.
constexpr size_t kMostConnecting = 16;
// Who never waits for long hears them at times, so that they do not pile up.
constexpr uint32_t kReductionsBetweenDrains = 1024;

uint64_t linkKey(Rank peer, Lane lane, bool isOutgoing) {
  return (uint64_t{isOutgoing} << 40) | (uint64_t{static_cast<uint8_t>(lane)} << 32) |
         static_cast<uint32_t>(index(peer));
}

}  // namespace

LinkSet::LinkSet(const Parts& parts) : parts_(parts) {
  std::unordered_map<uint64_t, uint32_t> hosts, processRanks;
  std::vector<uint32_t> ranksOn;
  places_.reserve(parts_.peers.size());
  for (const bootstrap::PeerInfo& peer : parts_.peers) {
    const auto [host, isNew] =
        hosts.try_emplace(peer.hostHash, static_cast<uint32_t>(hosts.size()));
    if (isNew) ranksOn.push_back(0);
    places_.push_back({.host = host->second,
                       .onHost = ranksOn[host->second]++,
                       .inProcess = processRanks[peer.processHash]++});
  }
  hostCount_ = static_cast<int32_t>(hosts.size());
  const size_t self = static_cast<size_t>(index(parts_.bootstrap.rank()));
  if (self < places_.size()) ranksOnHost_ = ranksOn[places_[self].host];
}

// Counts the ranks here first, then the hosts and seats that they hear of: whether each hears of
// its own seat on other hosts or of all, adapters have as many links each.
uint32_t LinkSet::turnOf(Rank from) const {
  const Place& own = places_[static_cast<size_t>(index(parts_.bootstrap.rank()))];
  const Place& other = places_[static_cast<size_t>(index(from))];
  const auto hosts = static_cast<uint32_t>(hostCount_);
  const uint32_t hostsBetween = (other.host + hosts - own.host - 1) % hosts;
  const uint32_t seatsAway =
      (other.onHost % ranksOnHost_ + ranksOnHost_ - own.onHost) % ranksOnHost_;
  return own.inProcess + ranksOnHost_ * (hostsBetween + seatsAway);
}

LinkSet::~LinkSet() { markFault(wire::LinkFault::kDestroyed); }

Link& LinkSet::find(Rank peer, Lane lane, bool isOutgoing) {
  auto [at, isNew] = links_.try_emplace(linkKey(peer, lane, isOutgoing));
  Link& link = at->second;
  if (isNew) {
    link.peer_ = peer;
    link.lane_ = lane;
    link.isOutgoing_ = isOutgoing;
    const std::lock_guard lock(shownMutex_);
    shown_.push_back({.use = {.peer = peer, .lane = lane, .isOutgoing = isOutgoing}});
  }
  return link;
}

void LinkSet::profile(transport::LinkEnd& end) const {
  if (parts_.profiler != nullptr && end.motor() != nullptr) end.motor()->profile(*parts_.profiler);
}

void LinkSet::keep(Link& link, std::unique_ptr<transport::LinkEnd> end) {
  link.end_ = std::move(end);
  link.port_.view = link.end_->view();
  transport::Motor* motor = link.end_->motor();
  if (motor != nullptr) motors_.add(motor);
  const std::lock_guard lock(shownMutex_);
  const auto shown = std::ranges::find_if(shown_, [&link](const Shown& each) {
    return each.use.peer == link.peer_ && each.use.lane == link.lane_ &&
           each.use.isOutgoing == link.isOutgoing_;
  });
  shown->use.transportName = link.transportName_;
  shown->use.isCarried = motor != nullptr;
  shown->motor = motor;
  shown->view = link.port_.view;
}

std::vector<LinkSet::Use> LinkSet::uses() const {
  const std::lock_guard lock(shownMutex_);
  std::vector<Use> uses;
  for (const Shown& each : shown_) {
    if (each.motor == nullptr) continue;
    uses.push_back(each.use);
    uses.back().carried = each.motor->carried();
  }
  return uses;
}

uint64_t LinkSet::arrivedBytes(Rank peer) const {
  uint64_t bytes = 0;
  for (const auto& [key, link] : links_) {
    if (link.peer() == peer && link.motor() != nullptr) bytes += link.motor()->arrivedBytes();
  }
  return bytes;
}

std::vector<LinkSet::State> LinkSet::states() const {
  const std::lock_guard lock(shownMutex_);
  std::vector<State> states;
  for (const Shown& each : shown_) {
    State state{.use = each.use, .isConnected = each.view.control != nullptr, .look = {}};
    if (each.motor != nullptr) state.use.carried = each.motor->carried();
    if (state.isConnected) state.look = wire::lookAt(each.view);
    states.push_back(std::move(state));
  }
  return states;
}

// Both links at once.
Status LinkSet::openNetwork(Lane lane) {
  if (seat_.group == nullptr)
    return internalError("rank {} is no member of the network {}", index(parts_.bootstrap.rank()),
                         index(seat_.network));
  const auto self = static_cast<size_t>(std::ranges::find(seat_.members, parts_.bootstrap.rank()) -
                                        seat_.members.begin());
  TUTTI_TRY_ASSIGN(transport::ReducerLinks links,
                   transport::openReducer({.group = std::move(seat_.group),
                                           .patience = seat_.patience,
                                           .maxBytes = seat_.maxBytes,
                                           .setBytes = seat_.setBytes,
                                           .memberCount = seat_.members.size(),
                                           .self = self,
                                           .geometry = parts_.geometry}));
  reducer_ = links.reducer;
  for (const bool isOutgoing : {true, false}) {
    Link& link = find(seat_.network, lane, isOutgoing);
    link.transportName_ = "collnet";
    keep(link, std::move(isOutgoing ? links.outgoing : links.incoming));
  }
  log::info(log::Subsystem::kP2p, "links of rank {} with the collective network, {} members",
            index(parts_.bootstrap.rank()), seat_.members.size());
  return {};
}

void LinkSet::beginReduction(Collective collective, DataType type, ReduceOp op) {
  if (reducer_ == nullptr) return;
  reducer_->begin(collective, type, op);
  if (++reductionsSinceDrain_ % kReductionsBetweenDrains == 0) hearPosted();
}

void LinkSet::hearPosted() {
  posted_.resize(seat_.members.size());
  std::vector<std::byte> message;
  for (size_t i = 0; i < posted_.size(); ++i) {
    if (seat_.members[i] == parts_.bootstrap.rank()) continue;
    for (;;) {
      Result<Progress> heard = parts_.bootstrap.tryReceive(seat_.members[i], kPostedTag, message);
      if (!heard.ok() || *heard == Progress::kIdle) break;
      if (message.size() == sizeof posted_[i])
        std::memcpy(&posted_[i], message.data(), sizeof posted_[i]);
    }
  }
}

bool LinkSet::isNetworkOwing() {
  if (!isReducing()) return false;
  hearPosted();
  const uint64_t own = reducer_->postedCount();
  bool areThere = true;
  for (size_t i = 0; i < posted_.size(); ++i) {
    if (seat_.members[i] == parts_.bootstrap.rank()) continue;
    areThere = areThere && posted_[i] >= own;
    // Who cannot be told has other troubles.
    if (own != toldPosted_) [[maybe_unused]]
      const Status told =
          parts_.bootstrap.send(seat_.members[i], kPostedTag, std::as_bytes(std::span(&own, 1)));
  }
  toldPosted_ = own;
  return areThere;
}

void LinkSet::tellMembers(const transport::Parting& why) {
  if (std::exchange(hasToldMembers_, true)) return;
  const std::string words = transport::encodeParting(why, kMaxPartingBytes);
  for (const Rank member : seat_.members) {
    // Who cannot be told finds out by our silence.
    if (member != parts_.bootstrap.rank()) [[maybe_unused]]
      const Status told =
          parts_.bootstrap.send(member, kMemberTag, std::as_bytes(std::span(words)));
  }
}

std::optional<transport::Parting> LinkSet::networkParting() {
  std::vector<std::byte> words;
  for (const Rank member : seat_.members) {
    if (member == parts_.bootstrap.rank()) continue;
    Result<Progress> heard = parts_.bootstrap.tryReceive(member, kMemberTag, words);
    if (!heard.ok() || *heard == Progress::kIdle) continue;
    transport::Parting why = transport::decodeParting(words);
    if (why.guilty < 0 || isNetwork(Rank{why.guilty})) why.guilty = index(member);
    if (why.text.empty()) why.text = fmt::format("rank {} aborted its communicator", index(member));
    return why;
  }
  return std::nullopt;
}

// A network's bound is the connection, not the slots. What a GPU's memory is to hold are long slots
// alone.
transport::LinkOptions LinkSet::optionsFor(const transport::Transport& transport, Lane lane) const {
  const bool isOnGpu = isOfGpus(lane) && parts_.gpu != nullptr;
  if (transport.caps().mapped && !isOnGpu) return parts_.geometry;
  wire::LinkGeometry geometry = parts_.geometry;
  geometry.shortCount = isOnGpu ? geometry.slotCount : 0;
  transport::LinkOptions options(geometry, isOnGpu ? parts_.gpu : nullptr);
  options.hostCount = hostCount_;
  return options;
}

Result<transport::Transport*> LinkSet::pick(Rank sender, Rank receiver) {
  const auto& from = parts_.peers[static_cast<size_t>(index(sender))];
  const auto& to = parts_.peers[static_cast<size_t>(index(receiver))];
  return transport::pick(parts_.transports, from, to);
}

Result<Progress> LinkSet::prepare(Rank peer) {
  if (isNetwork(peer)) return Progress::kDone;
  TUTTI_TRY_ASSIGN(transport::Transport * transport, pick(peer, parts_.bootstrap.rank()));
  return transport->prepare();
}

Result<Link*> LinkSet::incoming(Rank from, Lane lane) {
  Link& link = find(from, lane, false);
  if (link.isConnected()) return &link;
  if (isNetwork(from)) {
    TUTTI_TRY(openNetwork(lane));
    return &link;
  }
  const Rank self = parts_.bootstrap.rank();
  TUTTI_TRY_ASSIGN(transport::Transport * transport, pick(from, self));
  transport::LinkOptions options = optionsFor(*transport, lane);
  options.turn = turnOf(from);
  TUTTI_TRY_ASSIGN(auto listening,
                   transport->listen(parts_.peers[static_cast<size_t>(index(from))],
                                     parts_.peers[static_cast<size_t>(index(self))], options));
  OfferMessage message;
  for (size_t i = 0; i < parts_.transports.size(); ++i) {
    if (parts_.transports[i].get() == transport) message.transportIndex = static_cast<uint32_t>(i);
  }
  message.slotCount = parts_.geometry.slotCount;
  message.slotBytes = parts_.geometry.slotBytes;
  message.offer = listening.offer;
  profile(*listening.end);  // from the offer on messages may come
  TUTTI_TRY(parts_.bootstrap.send(from, offerTag(lane), std::as_bytes(std::span(&message, 1))));
  link.transportName_ = transport->caps().name;
  keep(link, std::move(listening.end));
  const auto& sender = parts_.peers[static_cast<size_t>(index(from))];
  link.port_.isSenderHere =
      sender.processHash == parts_.peers[static_cast<size_t>(index(self))].processHash;
  link.port_.senderProcess = sender.processId;
  link.port_.mapper = link.end_->mapper();
  link.port_.landing = link.end_->landing();
  link.port_.carrierReach = link.end_->carrierReach();
  log::info(log::Subsystem::kP2p, "link {} <- {} lane {} via {}: {} slots of {} bytes", index(self),
            index(from), static_cast<int>(lane), link.transportName_, parts_.geometry.slotCount,
            parts_.geometry.slotBytes);
  return &link;
}

// Who may carry a link: another process of this user, which hands memory over.
const bootstrap::PeerInfo* LinkSet::findCarrier(const Link& link) const {
  if (parts_.carriers.empty() || link.lane_ != Lane::kPointToPoint) return nullptr;
  const Rank carrier = parts_.carriers[static_cast<size_t>(index(link.peer_))];
  const auto& own = parts_.peers[static_cast<size_t>(index(parts_.bootstrap.rank()))];
  const auto& other = parts_.peers[static_cast<size_t>(index(carrier))];
  const bool isFit = other.processHash != own.processHash && other.userId == own.userId &&
                     other.handoffName.front() != 0 && own.handoffName.front() != 0;
  return isFit ? &other : nullptr;
}

Result<std::unique_ptr<transport::PendingEnd>> LinkSet::connect(const Link& link) {
  transport::Transport& transport = *link.transport_;
  const auto& self = parts_.peers[static_cast<size_t>(index(parts_.bootstrap.rank()))];
  const auto& peer = parts_.peers[static_cast<size_t>(index(link.peer_))];
  const transport::LinkOptions options = optionsFor(transport, link.lane_);
  const bootstrap::PeerInfo* carrier = findCarrier(link);
  if (carrier == nullptr) return transport.connect(self, peer, options, link.offer_);
  return transport.connectOver({.carrier = *carrier, .isForced = parts_.isDetourForced}, self, peer,
                               options, link.offer_);
}

std::optional<Rank> LinkSet::carrier(Rank peer, Lane lane, bool isOutgoing) {
  const auto found = links_.find(linkKey(peer, lane, isOutgoing));
  if (found == links_.end()) return std::nullopt;
  Link& link = found->second;
  if (link.carrier_ || isOutgoing || link.motor() == nullptr) return link.carrier_;
  std::vector<std::byte> bytes;
  Result<Progress> heard = parts_.bootstrap.tryReceive(peer, carrierTag(lane), bytes);
  int32_t carrier = -1;
  if (!heard.ok() || *heard == Progress::kIdle || bytes.size() != sizeof carrier) return {};
  std::memcpy(&carrier, bytes.data(), sizeof carrier);
  if (carrier >= 0 && static_cast<size_t>(carrier) < parts_.peers.size())
    link.carrier_ = Rank{carrier};
  return link.carrier_;
}

Link* LinkSet::findIncoming(Rank from, Lane lane) {
  const auto found = links_.find(linkKey(from, lane, false));
  return found == links_.end() ? nullptr : &found->second;
}

Link& LinkSet::outgoing(Rank to, Lane lane) { return find(to, lane, true); }

Result<Progress> LinkSet::pollConnect(Link& link) {
  if (link.isConnected()) return Progress::kDone;
  if (isNetwork(link.peer_)) {
    TUTTI_TRY(openNetwork(link.lane_));
    return Progress::kDone;
  }
  if (!link.isConnecting()) {
    TUTTI_TRY_ASSIGN(const Progress heard, hearOffer(link));
    if (heard == Progress::kIdle) return Progress::kIdle;
  }
  if (link.pending_ == nullptr) {
    if (connectingCount_ == kMostConnecting) return Progress::kIdle;
    TUTTI_TRY_ASSIGN(const Progress isPrepared, link.transport_->prepare());
    if (isPrepared == Progress::kIdle) return Progress::kIdle;
    TUTTI_TRY_ASSIGN(link.pending_, connect(link));
    link.offer_ = {};  // a secret
    ++connectingCount_;
  }
  Result<std::unique_ptr<transport::LinkEnd>> end = link.pending_->poll();
  if (end.ok() && *end == nullptr) return Progress::kIdle;
  link.pending_.reset();
  --connectingCount_;
  if (!end.ok()) return end.takeStatus();
  TUTTI_TRY(finish(link, std::move(end).value()));
  return Progress::kDone;
}

Result<Progress> LinkSet::hearOffer(Link& link) {
  std::vector<std::byte> bytes;
  Result<Progress> heard = parts_.bootstrap.tryReceive(link.peer_, offerTag(link.lane_), bytes);
  if (!heard.ok()) return makeError(Code::kRemoteError, std::string(heard.status().message()));
  if (*heard == Progress::kIdle) return Progress::kIdle;
  OfferMessage message;
  if (bytes.size() != sizeof message) {
    return remoteError("rank {} sent a link offer of {} bytes instead of {}", index(link.peer_),
                       bytes.size(), sizeof message);
  }
  std::memcpy(&message, bytes.data(), sizeof message);
  if (message.version != 1 || message.transportIndex >= parts_.transports.size() ||
      message.slotCount != parts_.geometry.slotCount ||
      message.slotBytes != parts_.geometry.slotBytes) {
    return remoteError(
        "rank {} offers a link this rank cannot use: version {}, transport {}, {} slots of {} "
        "bytes; wanted {} of {}",
        index(link.peer_), message.version, message.transportIndex, message.slotCount,
        message.slotBytes, parts_.geometry.slotCount, parts_.geometry.slotBytes);
  }
  link.transport_ = parts_.transports[message.transportIndex].get();
  link.offer_ = message.offer;
  return Progress::kDone;
}

Status LinkSet::finish(Link& link, std::unique_ptr<transport::LinkEnd> end) {
  const transport::Transport::Caps& caps = link.transport_->caps();
  if (const int32_t carrier = end->carrier(); carrier >= 0) {
    link.carrier_ = Rank{carrier};
    TUTTI_TRY(parts_.bootstrap.send(link.peer_, carrierTag(link.lane_),
                                    std::as_bytes(std::span(&carrier, 1))));
  }
  link.transportName_ = caps.name;
  profile(*end);
  keep(link, std::move(end));
  const auto self = static_cast<size_t>(index(parts_.bootstrap.rank()));
  const auto& receiver = parts_.peers[static_cast<size_t>(index(link.peer_))];
  link.port_.isReceiverHere = caps.mapped && receiver.processHash == parts_.peers[self].processHash;
  link.port_.receiverProcess = receiver.processId;
  link.port_.mayWrite = caps.mapped;
  link.port_.carrierReach = link.end_->carrierReach();
  if (caps.mapsSegments) {
    link.ledger_ = std::make_unique<wire::SegmentLedger>(parts_.mapAfterBytes);
    link.port_.ledger = link.ledger_.get();
    link.targets_ = std::make_unique<wire::SegmentLedger>(parts_.mapAfterBytes);
    link.port_.targets = link.targets_.get();
    link.port_.mapper = link.end_->mapper();
  }
  return {};
}

void LinkSet::markFault(wire::LinkFault fault, const transport::Parting& why) {
  for (auto& [key, link] : links_) {
    if (!link.isConnected()) continue;
    wire::LinkControl& control = *link.port_.view.control;
    auto& word = link.isOutgoing_ ? control.senderFault : control.receiverFault;
    uint32_t none = 0;
    word.compare_exchange_strong(none, static_cast<uint32_t>(fault), std::memory_order_release);
    if (transport::Motor* motor = link.end_->motor(); motor != nullptr) motor->leave(why);
  }
  if (fault == wire::LinkFault::kAborted) tellMembers(why);
}

transport::Parting LinkSet::parting(Rank peer, Lane lane, bool isOutgoing) {
  if (isNetwork(peer)) return reducer_ != nullptr ? reducer_->parting() : transport::Parting{};
  const auto found = links_.find(linkKey(peer, lane, isOutgoing));
  if (found == links_.end() || !found->second.isConnected()) return {};
  transport::Motor* motor = found->second.end_->motor();
  return motor == nullptr ? transport::Parting{} : motor->parting();
}

}  // namespace tutti::channel
