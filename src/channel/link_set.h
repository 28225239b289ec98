// The links of one rank: made lazily, at the first operation that needs them, and kept until the
// communicator ends.
//
// The receiver makes the memory and tells the sender where it is (one bootstrap message a link);
// the sender connects when that message has come. Nobody blocks: an outgoing link is polled until
// it is there, while other links move data.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/peer_info.h"
#include "channel/motors.h"
#include "transport/registry.h"
#include "transport/transport.h"
#include "wire/link.h"
#include "wire/link_look.h"

namespace tutti::channel {

// Links between the same two ranks that must not share an order: collectives follow the
// communicator's order, point-to-point operations the order of each pair. Those of calls on GPUs'
// memory are others than those of calls on the host's.
enum class Lane : uint8_t {
  kCollective = 0,
  kPointToPoint = 1,
  kGpuCollective = 2,
  kGpuPointToPoint = 3
};
constexpr bool isCollective(Lane lane) {
  return lane == Lane::kCollective || lane == Lane::kGpuCollective;
}
constexpr bool isOfGpus(Lane lane) {
  return lane == Lane::kGpuCollective || lane == Lane::kGpuPointToPoint;
}

// One rank's end of one link. The port moves from thread to thread with the operation that uses it.
class Link {
 public:
  wire::LinkPort& port() { return port_; }
  bool isConnected() const { return port_.isConnected(); }
  // The peer's offer has come, and the link is on its way.
  bool isConnecting() const { return transport_ != nullptr && !isConnected(); }
  Rank peer() const { return peer_; }
  // Null where memory alone moves its messages.
  transport::Motor* motor() const { return end_ != nullptr ? end_->motor() : nullptr; }
  std::string_view transportName() const { return transportName_; }
  // The rank whose process moves its messages for the sender; none where the sender's does.
  std::optional<Rank> carrier() const { return carrier_; }

 private:
  friend class LinkSet;
  Rank peer_{0};
  Lane lane_ = Lane::kCollective;
  bool isOutgoing_ = false;
  std::optional<Rank> carrier_;
  std::string_view transportName_;
  // Of an outgoing link, once its offer has come.
  transport::Transport* transport_ = nullptr;
  transport::Offer offer_{};
  std::unique_ptr<transport::PendingEnd> pending_;
  std::unique_ptr<transport::LinkEnd> end_;
  // Of an outgoing link that shares memory: both ports' of the same names.
  std::unique_ptr<wire::SegmentLedger> ledger_;
  std::unique_ptr<wire::SegmentLedger> targets_;
  wire::LinkPort port_;
};

// Used by one thread at a time: the one that starts or drives this communicator's operations; the
// launcher sees to that.
class LinkSet {
 public:
  struct Parts {
    bootstrap::Bootstrap& bootstrap;
    const std::vector<bootstrap::PeerInfo>& peers;  // by rank
    const transport::Transports& transports;
    wire::LinkGeometry geometry;  // agreed by all ranks
    uint64_t mapAfterBytes = 0;   // TUTTI_MAP_AFTER_BYTES
    // Of point-to-point links, by receiver: over whose process they go, this rank for its own.
    // Empty: all over its own.
    std::vector<Rank> carriers{};
    bool isDetourForced = false;               // transport::Detour
    observe::Profiler* profiler = nullptr;     // outlives the links; null: nobody asked
    const transport::GpuSlots* gpu = nullptr;  // of lanes of GPUs; null: there are none
  };
  explicit LinkSet(const Parts& parts);
  ~LinkSet();

  // This rank's place in a network that reduces. Ranks above all others stand for networks
  // (schedule/algorithms.h); this one has links with its own alone.
  struct NetworkSeat {
    std::string name{};
    Rank network{-1};
    std::vector<Rank> members{};                     // of the group, this rank among them
    std::unique_ptr<tutti::net::HeldGroup> group{};  // null: it has none
    std::chrono::milliseconds patience{0};           // for making links with it
    size_t maxBytes = 0;                             // of a reduction
    size_t setBytes = 0;  // of what is gathered or scattered at a time, for all members together
  };
  // Before the first link.
  void join(NetworkSeat seat) { seat_ = std::move(seat); }
  bool isNetwork(Rank rank) const {
    return static_cast<size_t>(index(rank)) >= parts_.peers.size();
  }
  // The other members, for whom whoever waits for the network waits in truth.
  std::span<const Rank> networkMembers() const { return seat_.members; }
  // Before the messages of a call that reduces there.
  void beginReduction(Collective collective, DataType type, ReduceOp op);
  // Something is with the network.
  bool isReducing() const { return reducer_ != nullptr && reducer_->isBusy(); }
  // For whoever waits there for long: tells the other members what this one has handed in, and says
  // whether they have told of as much. Then the network owes all of them the result.
  bool isNetworkOwing();
  std::string_view networkName() const { return seat_.name; }
  transport::Reducer::Stand networkStand() const {
    return reducer_ == nullptr ? transport::Reducer::Stand{} : reducer_->stand();
  }
  // A member has failed: what it said. Its links are elsewhere, and the network may not tell.
  std::optional<transport::Parting> networkParting();

  // kDone: neither incoming() nor pollConnect() waits for it to be known over what a link with the
  // peer goes.
  Result<Progress> prepare(Rank peer);
  // The incoming link from a peer, with its memory made and the peer told, if it is new.
  Result<Link*> incoming(Rank from, Lane lane);
  // The same if it is there; null if not.
  Link* findIncoming(Rank from, Lane lane);
  // The outgoing link to a peer; perhaps not connected yet.
  Link& outgoing(Rank to, Lane lane);
  // kDone once the peer's offer has come and the link is connected. Several may be on their way.
  Result<Progress> pollConnect(Link& link);

  // Links that need this thread's help, those over a network: true where there are any.
  bool hasMotors() const { return !motors_.empty(); }
  // Moves what can be moved now; true when something was.
  bool runMotors() { return motors_.run(); }
  // Those that send: what was published goes out.
  void runSenders() { motors_.runSenders(); }
  // Before this thread sleeps until a link moves.
  void attendMotors() { motors_.attend(); }
  // After an operation: what it left to be sent goes out by itself.
  void settleMotors() { motors_.settle(); }

  // Bytes that have arrived so far over all links with the peer, both ways, as far as the network
  // tells. Some system calls.
  uint64_t arrivedBytes(Rank peer) const;

  // Tells every connected peer that this rank will not move its links again, and why.
  void markFault(wire::LinkFault fault, const transport::Parting& why = {});
  // Whose process carries the link, where that is neither end's; of an incoming one as far as the
  // sender has told.
  std::optional<Rank> carrier(Rank peer, Lane lane, bool isOutgoing);
  // What a peer that has left said, over a link where words can come.
  transport::Parting parting(Rank peer, Lane lane, bool isOutgoing);

  size_t linkCount() const { return links_.size(); }

  // What each link over a network has carried so far, in the order in which they were made. Any
  // thread.
  struct Use {
    Rank peer{0};
    Lane lane = Lane::kCollective;
    bool isOutgoing = false;
    std::string_view transportName{};  // empty: not connected yet
    bool isCarried = false;            // by a network
    transport::Motor::Carried carried{};
  };
  std::vector<Use> uses() const;
  // The same of all links, those that are not connected yet too, and how each stands now. Any
  // thread.
  struct State {
    Use use;
    bool isConnected = false;
    wire::LinkLook look;
  };
  std::vector<State> states() const;

 private:
  Status openNetwork(Lane lane);
  void tellMembers(const transport::Parting& why);
  void hearPosted();
  void profile(transport::LinkEnd& end) const;
  void keep(Link& link, std::unique_ptr<transport::LinkEnd> end);
  Link& find(Rank peer, Lane lane, bool isOutgoing);
  Result<Progress> hearOffer(Link& link);
  Result<std::unique_ptr<transport::PendingEnd>> connect(const Link& link);
  Status finish(Link& link, std::unique_ptr<transport::LinkEnd> end);
  const bootstrap::PeerInfo* findCarrier(const Link& link) const;
  transport::LinkOptions optionsFor(const transport::Transport& transport, Lane lane) const;
  uint32_t turnOf(Rank from) const;
  Result<transport::Transport*> pick(Rank sender, Rank receiver);

  Parts parts_;
  struct Place {
    uint32_t host = 0;
    uint32_t onHost = 0;
    uint32_t inProcess = 0;
  };
  std::vector<Place> places_;  // by rank
  int32_t hostCount_ = 0;
  uint32_t ranksOnHost_ = 1;  // this one's
  NetworkSeat seat_;
  transport::Reducer* reducer_ = nullptr;  // of a link of links_, once it is there
  bool hasToldMembers_ = false;
  uint64_t toldPosted_ = 0;       // what the others were told that we had handed in
  std::vector<uint64_t> posted_;  // what they said, by place among the members
  uint32_t reductionsSinceDrain_ = 0;
  // By direction, lane and peer. A map: a rank has few peers, and references stay valid while it
  // grows.
  std::map<uint64_t, Link> links_;
  size_t connectingCount_ = 0;  // of links_
  Motors motors_;               // of links_, where they have one
  struct Shown {
    Use use;
    const transport::Motor* motor = nullptr;  // null: none, or not connected yet
    wire::LinkView view{};
  };
  mutable std::mutex shownMutex_;  // guards the one below, which other threads read
  std::vector<Shown> shown_;       // of links_, which never lose one
};

}  // namespace tutti::channel
