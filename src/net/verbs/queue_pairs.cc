#include "net/verbs/queue_pairs.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::net::verbs {
namespace {

constexpr uint32_t kVersion = 1;
constexpr uint32_t kPacketNumbers = 1 << 24;
constexpr uint8_t kForever = 7;        // retries, when the other side has posted no receive yet
constexpr uint8_t kReceiverWait = 12;  // 0.64 ms between those
constexpr uint8_t kHops = 255;

std::string hexGid(const std::array<uint8_t, 16>& bytes) { return Gid{.bytes = bytes}.text(); }

struct Ends {
  const Port& port;
  const LaneTerms::PortTerms& peer;
};

// By the address that routers know where the fabric has no other, or the two are of two subnets.
bool goesByGid(const Ends& ends) {
  if (ends.port.isEthernet || ends.port.needsGlobalRoute || ends.peer.lid == 0) return true;
  return !std::equal(ends.peer.gid.begin(), ends.peer.gid.begin() + 8, ends.port.gid.bytes.begin());
}

::ibv_ah_attr addressOf(const VerbsOptions& options, const Ends& ends,
                        const QueuePairs::Route& route) {
  ::ibv_ah_attr address{};
  address.port_num = ends.port.number;
  address.sl = ends.port.isEthernet ? options.serviceLevel.value_or(0) : route.serviceLevel;
  address.dlid = ends.peer.lid;
  if (!goesByGid(ends)) return address;
  address.is_global = 1;
  std::memcpy(address.grh.dgid.raw, ends.peer.gid.data(), ends.peer.gid.size());
  address.grh.sgid_index = static_cast<uint8_t>(ends.port.gid.index);
  address.grh.hop_limit = kHops;
  address.grh.traffic_class = route.trafficClass;
  return address;
}

struct First {
  uint16_t keyIndex = 0;
  bool isRead = false;
};

Status toInit(const Library& library, ::ibv_qp* pair, const Port& port, const First& first) {
  ::ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = first.keyIndex;
  attributes.port_num = port.number;
  attributes.qp_access_flags = first.isRead ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  return check(
      library.modifyPair(pair, &attributes,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
      "ibv_modify_qp to INIT", fmt::format("{} (NCCL_IB_PKEY={})", port.name, first.keyIndex));
}

// Both give ibv_modify_qp's answer.
int toReceive(const Library& library, ::ibv_qp* pair, const QueuePairs::Route& route, size_t which,
              const ::ibv_ah_attr& address) {
  ::ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<::ibv_mtu>(std::min(route.own.mtu, route.peer.mtu));
  attributes.dest_qp_num = route.peer.pairs[which];
  attributes.rq_psn = route.peer.packetNumber;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = kReceiverWait;
  attributes.ah_attr = address;
  return library.modifyPair(pair, &attributes,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int toSend(const Library& library, ::ibv_qp* pair, const QueuePairs::Route& route,
           const VerbsOptions& options) {
  ::ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = options.timeout;
  attributes.retry_cnt = options.retryCount;
  attributes.rnr_retry = kForever;
  attributes.sq_psn = route.own.packetNumber;
  attributes.max_rd_atomic = 1;
  return library.modifyPair(pair, &attributes,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

}  // namespace

// ---- terms --------------------------------------------------------------------------------------

LaneHandle LaneTerms::pack() const {
  LaneHandle handle{};
  std::memcpy(handle.data(), this, sizeof *this);
  return handle;
}

Result<LaneTerms> LaneTerms::unpack(const LaneHandle& handle) {
  LaneTerms terms;
  std::memcpy(&terms, handle.data(), sizeof terms);
  const bool isSound = terms.version == kVersion && terms.portCount >= 1 &&
                       terms.portCount <= kMaxPorts && terms.pairCount >= 1 &&
                       terms.pairCount <= kMaxPairs && terms.stripe >= 1 &&
                       terms.pairCount % terms.stripe == 0 && terms.mtu >= IBV_MTU_256 &&
                       terms.mtu <= IBV_MTU_4096 && terms.packetNumber < kPacketNumbers;
  if (isSound) return terms;
  return Status(Code::kRemoteError,
                fmt::format("a lane over InfiniBand begins with version {}, {} ports, {} queue "
                            "pairs in stripes of {}, MTU {}, packet {}, which no lane can have",
                            terms.version, terms.portCount, terms.pairCount, terms.stripe,
                            terms.mtu, terms.packetNumber));
}

// ---- queue pairs --------------------------------------------------------------------------------

Result<QueuePairs> QueuePairs::open(const Library& library, std::vector<Road> roads,
                                    const Needs& needs, Alarm& alarm) {
  QueuePairs all;
  all.roads_ = std::move(roads);
  all.inlineBytes_ = needs.inlineBytes;
  const size_t pairsEach = (needs.count + all.roads_.size() - 1) / all.roads_.size();
  const auto entries = static_cast<int>(pairsEach * (needs.sends + needs.receives));
  for (const Road& road : all.roads_) {
    ::ibv_cq* queue = library.createQueue(road.adapter->context(), entries, &alarm, nullptr, 0);
    if (queue == nullptr) return check(errno, "ibv_create_cq", road.port->name);
    all.queues_.push_back(Owned<::ibv_cq>(queue, {library.destroyQueue}));
  }
  while (all.pairs_.size() < needs.count) TUTTI_TRY(all.add(library, needs, alarm));
  return all;
}

Status QueuePairs::add(const Library& library, const Needs& needs, Alarm& alarm) {
  const size_t at = pairs_.size() % roads_.size();
  ::ibv_qp_init_attr attributes{};
  attributes.qp_context = &alarm;
  attributes.send_cq = attributes.recv_cq = queues_[at].get();
  attributes.cap = {.max_send_wr = needs.sends,
                    .max_recv_wr = needs.receives,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = inlineBytes_};
  attributes.qp_type = IBV_QPT_RC;
  ::ibv_pd* domain = roads_[at].adapter->domain();
  ::ibv_qp* pair = library.createPair(domain, &attributes);
  if (pair == nullptr && errno == EINVAL && inlineBytes_ != 0) {  // an adapter without inline data
    inlineBytes_ = attributes.cap.max_inline_data = 0;
    pair = library.createPair(domain, &attributes);
  }
  if (pair == nullptr) return check(errno, "ibv_create_qp", roads_[at].port->name);
  pairs_.push_back(Owned<::ibv_qp>(pair, {library.destroyPair}));
  return {};
}

void QueuePairs::describe(LaneTerms& terms) const {
  terms.portCount = static_cast<uint8_t>(roads_.size());
  terms.pairCount = static_cast<uint8_t>(pairs_.size());
  ::ibv_mtu mtu = IBV_MTU_4096;
  for (size_t i = 0; i < roads_.size(); ++i) {
    const Port& port = *roads_[i].port;
    terms.ports[i] = {.gid = port.gid.bytes,
                      .lid = port.lid,
                      .isEthernet = static_cast<uint8_t>(port.isEthernet)};
    mtu = std::min(mtu, port.mtu);
  }
  terms.mtu = static_cast<uint8_t>(mtu);
  for (size_t i = 0; i < pairs_.size(); ++i) terms.pairs[i] = pairs_[i]->qp_num;
}

Status QueuePairs::connect(const Library& library, const VerbsOptions& options,
                           const Route& route) {
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const Ends ends{.port = *roadOf(i).port, .peer = route.peer.ports[i % route.peer.portCount]};
    if (ends.port.isEthernet != (ends.peer.isEthernet != 0)) {
      return Status(Code::kSystemError,
                    fmt::format("{} is {}, the peer's port is not: let NCCL_IB_HCA name ports of "
                                "one network on all ranks",
                                ends.port.name, ends.port.isEthernet ? "Ethernet" : "InfiniBand"));
    }
    ::ibv_qp* pair = pairs_[i].get();
    TUTTI_TRY(toInit(library, pair, ends.port,
                     {.keyIndex = options.partitionKeyIndex, .isRead = route.isRead}));
    const std::string subject =
        fmt::format("{} (GID {}: {}) towards {} (LID {})", ends.port.name, ends.port.gid.index,
                    ends.port.gid.text(), hexGid(ends.peer.gid), ends.peer.lid);
    TUTTI_TRY(check(toReceive(library, pair, route, i, addressOf(options, ends, route)),
                    "ibv_modify_qp to RTR", subject));
    TUTTI_TRY(check(toSend(library, pair, route, options), "ibv_modify_qp to RTS", subject));
  }
  return {};
}

}  // namespace tutti::net::verbs
