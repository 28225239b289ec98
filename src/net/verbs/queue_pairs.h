// The queue pairs of a lane, and what its two ends must know of each other to connect them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "net/fabric.h"
#include "net/verbs/adapter.h"
#include "net/verbs/events.h"
#include "net/verbs/library.h"
#include "net/verbs_options.h"

namespace tutti::net::verbs {

inline constexpr size_t kMaxPorts = 4;  // of one lane
inline constexpr size_t kMaxPairs = 32;

// What a lane's end tells the other: it travels in a LaneHandle, between processes of equal
// byte order.
struct LaneTerms {
  struct PortTerms {
    std::array<uint8_t, 16> gid{};
    uint16_t lid = 0;
    uint8_t isEthernet = 0;
    uint8_t zero = 0;
  };
  uint32_t version = 1;
  uint8_t portCount = 0;
  uint8_t pairCount = 0;
  uint8_t stripe = 0;  // pairs that share a message; the receiving end's word counts
  uint8_t mtu = 0;
  uint32_t packetNumber = 0;   // the first that this end sends
  uint32_t creditKey = 0;      // the sending end's table of credits, as the first pair's port
  uint64_t creditAddress = 0;  // knows it
  std::array<PortTerms, kMaxPorts> ports{};
  std::array<uint32_t, kMaxPairs> pairs{};  // their numbers; pair i is at port i % portCount

  LaneHandle pack() const;
  // kRemoteError, not logged: no terms of ours.
  static Result<LaneTerms> unpack(const LaneHandle& handle);
};
static_assert(sizeof(LaneTerms) <= sizeof(LaneHandle));

// One end's queue pairs with their completion queues, one a port.
class QueuePairs {
 public:
  struct Needs {
    size_t count = 1;
    uint32_t sends = 0;     // under way on each
    uint32_t receives = 0;  // likewise
    uint32_t inlineBytes = 0;
  };
  // `alarm` outlives this; so do the roads.
  static Result<QueuePairs> open(const Library& library, std::vector<Road> roads,
                                 const Needs& needs, Alarm& alarm);

  size_t count() const { return pairs_.size(); }
  ::ibv_qp* operator[](size_t i) const { return pairs_[i].get(); }
  const std::vector<Road>& roads() const { return roads_; }
  const Road& roadOf(size_t pair) const { return roads_[pair % roads_.size()]; }
  const std::vector<Owned<::ibv_cq>>& queues() const { return queues_; }
  uint32_t inlineBytes() const { return inlineBytes_; }

  // Fills in the ports' and pairs' part.
  void describe(LaneTerms& terms) const;
  struct Route {
    LaneTerms own;
    LaneTerms peer;
    uint8_t serviceLevel = 0;
    uint8_t trafficClass = 0;
    bool isRead = false;  // the other end reads memory here instead of writing
  };
  // From "just made" to "ready to send".
  Status connect(const Library& library, const VerbsOptions& options, const Route& route);

 private:
  Status add(const Library& library, const Needs& needs, Alarm& alarm);

  std::vector<Road> roads_;
  uint32_t inlineBytes_ = 0;
  // In this order: pairs use the queues.
  std::vector<Owned<::ibv_cq>> queues_;
  std::vector<Owned<::ibv_qp>> pairs_;
};

}  // namespace tutti::net::verbs
