#include "net/verbs/verbs_lane.h"

#include <arpa/inet.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/log.h"

namespace tutti::net::verbs {
namespace {

constexpr size_t kAlign = 128;
// Credit writes under way, of which every so many asks for a completion.
constexpr uint32_t kCreditDepth = 2 * kMaxRequests;
constexpr uint64_t kCreditsPerCompletion = kMaxRequests / 2;
constexpr uint64_t kIsCredit = uint64_t{1} << 63;  // in what a completion says of its request
// A piece may take two requests: its bytes, and the number behind them.
constexpr uint32_t kSendDepth = 2 * kMaxRequests;

std::span<std::byte> pieceOf(std::span<std::byte> bytes, size_t piece, size_t count) {
  const size_t share = ((bytes.size() + count - 1) / count + kAlign - 1) / kAlign * kAlign;
  const size_t begin = std::min(piece * share, bytes.size());
  return bytes.subspan(begin, std::min(share, bytes.size() - begin));
}

}  // namespace

// ---- the lane's life ----------------------------------------------------------------------------

Result<std::unique_ptr<VerbsLane>> VerbsLane::open(Options options) {
  std::unique_ptr<VerbsLane> lane(new VerbsLane(std::move(options)));
  TUTTI_TRY(lane->prepare());
  return lane;
}

Status VerbsLane::prepare() {
  const QueuePairs::Needs needs{
      .count = options_.pairCount,
      .sends = isSender() ? kSendDepth : kCreditDepth,
      .receives = isSender() ? 1 : static_cast<uint32_t>(kMaxRequests),
      .inlineBytes = options_.settings.usesInline ? static_cast<uint32_t>(sizeof(Credit)) : 0};
  TUTTI_TRY_ASSIGN(pairs_, QueuePairs::open(options_.library, options_.roads, needs, alarm_));
  Registrations& registrations = pairs_.roads().front().adapter->registrations();
  TUTTI_TRY_ASSIGN(creditRegion_,
                   registrations.registerOrdered(std::as_writable_bytes(std::span(credits_))));
  terms_.stripe = static_cast<uint8_t>(options_.stripe);
  terms_.packetNumber = options_.packetNumber;
  terms_.creditKey = creditRegion_->rkey;
  terms_.creditAddress = reinterpret_cast<uintptr_t>(credits_.data());
  pairs_.describe(terms_);
  return {};
}

Status VerbsLane::meet(const LaneTerms& peer) {
  if (peer.pairCount != terms_.pairCount || peer.stripe != terms_.stripe) {
    return Status(Code::kRemoteError,
                  fmt::format("a lane has {} queue pairs in stripes of {} here and {} of {} there",
                              terms_.pairCount, terms_.stripe, peer.pairCount, peer.stripe));
  }
  peer_ = peer;
  const PacketMarks& marks = options_.marks;
  return pairs_.connect(
      options_.library, options_.settings,
      {.own = terms_,
       .peer = peer_,
       .serviceLevel = marks.serviceLevel,
       .trafficClass = isSender() ? marks.trafficClass : marks.controlTrafficClass});
}

VerbsLane::~VerbsLane() {
  if (!isSender() || posted_ == 0) return;
  std::string ports;
  for (const Road& road : pairs_.roads())
    ports += fmt::format("{}{}", ports.empty() ? "" : " + ", road.port->name);
  log::info(log::Subsystem::kNet, "a lane over {} sent {} messages, {} bytes", ports, posted_,
            bytesSent_);
}

Result<Lane::Memory> VerbsLane::enroll(std::span<std::byte> memory) {
  auto enrolled = std::make_unique<Enrolled>();
  for (const Road& road : pairs_.roads()) {
    Result<::ibv_mr*> region = road.adapter->registrations().acquire(memory);
    if (!region.ok()) {
      release({enrolled.release()});
      return region.takeStatus();
    }
    enrolled->regions.push_back(region.value());
  }
  return Memory{enrolled.release()};
}

Result<Lane::Memory> VerbsLane::enrollGpu(const GpuRegion& region) {
  auto enrolled = std::make_unique<Enrolled>();
  for (const Road& road : pairs_.roads()) {
    TUTTI_TRY_ASSIGN(auto own, road.adapter->registrations().registerGpu(region));
    enrolled->regions.push_back(own.get());
    enrolled->own.push_back(std::move(own));
  }
  if (!isSender() && flusher_ == nullptr) {
    TUTTI_TRY_ASSIGN(flusher_, Flusher::open({.library = options_.library,
                                              .settings = options_.settings,
                                              .roads = pairs_.roads(),
                                              .packetNumber = options_.packetNumber}));
  }
  return Memory{enrolled.release()};
}

Result<Lane::Request> VerbsLane::flush(std::span<std::byte> bytes, Memory memory) {
  if (flusher_ == nullptr || bytes.empty()) return Request{};
  TUTTI_TRY(flusher_->start(bytes.data(), static_cast<const Enrolled*>(memory.name)->regions));
  return Request{flusher_.get()};
}

void VerbsLane::release(Memory memory) {
  const std::unique_ptr<Enrolled> enrolled(static_cast<Enrolled*>(memory.name));
  if (!enrolled->own.empty()) return;
  for (size_t i = 0; i < enrolled->regions.size(); ++i)
    pairs_.roads()[i].adapter->registrations().release(enrolled->regions[i]);
}

// ---- posting ------------------------------------------------------------------------------------

Result<Lane::Request> VerbsLane::post(std::span<std::byte> bytes, Memory memory) {
  // A sender that has said all may leave while credits are on their way to it. That fails here, and
  // must not keep anyone from taking what it said: whoever tests the last of it is told.
  if (!trouble_.ok() && isUnderWay()) return Request{};
  if (!trouble_.ok()) return trouble_.clone();
  TUTTI_TRY(health());
  Operation& operation = operations_[posted_ % kMaxRequests];
  if (operation.isUsed) return Request{};
  const auto& enrolled = *static_cast<const Enrolled*>(memory.name);
  TUTTI_TRY_ASSIGN(const bool isPosted, isSender() ? postSend(operation, bytes, enrolled)
                                                   : postReceive(operation, bytes, enrolled));
  if (!isPosted) return Request{};
  ++posted_;
  return Request{&operation};
}

// The credit of the message that is sent next; null: the receiver has posted nothing yet.
Result<const Credit*> VerbsLane::nextCredit() {
  Credit& credit = credits_[posted_ % kMaxRequests];
  const uint64_t number = std::atomic_ref(credit.number).load(std::memory_order_acquire);
  const uint64_t wanted = posted_ + 1;
  if (number == wanted) return &credit;
  const bool isOld = number == 0 || number + kMaxRequests == wanted;
  if (isOld) return nullptr;
  return Status(
      Code::kRemoteError,
      fmt::format("a lane's receiver credits message {} where {} was to come", number, wanted));
}

Result<bool> VerbsLane::postSend(Operation& operation, std::span<std::byte> bytes,
                                 const Enrolled& memory) {
  TUTTI_TRY_ASSIGN(const Credit* credit, nextCredit());
  if (credit == nullptr) {
    poll();  // credits of adapters in software come so
    TUTTI_TRY_ASSIGN(credit, nextCredit());
  }
  if (credit == nullptr) return false;
  if (bytes.size() > credit->bytes) {
    return Status(Code::kRemoteError,
                  fmt::format("a lane's receiver has room for {} bytes of a message of {}",
                              credit->bytes, bytes.size()));
  }
  operation = {.isUsed = true,
               .number = posted_,
               .openCount = terms_.stripe,
               .room = bytes.size(),
               .moved = bytes.size()};
  for (size_t i = 0; i < terms_.stripe; ++i) {
    const size_t pair = pairOf(posted_, i);
    const std::span<std::byte> part = pieceOf(bytes, i, terms_.stripe);
    TUTTI_TRY(
        writePiece(pairs_[pair], posted_,
                   {.bytes = part,
                    .address = credit->address + static_cast<uint64_t>(part.data() - bytes.data()),
                    .localKey = memory.regions[pair % memory.regions.size()]->lkey,
                    .remoteKey = credit->keys[pair % peer_.portCount]}));
  }
  bytesSent_ += bytes.size();
  return true;
}

// With routes that adapt, packets of one write may overtake each other, so the number that
// completes the receive goes in a write of its own behind them.
Status VerbsLane::writePiece(::ibv_qp* pair, uint64_t number, const Piece& piece) {
  const Port& port = *pairs_.roads().front().port;
  const VerbsOptions& settings = options_.settings;
  const bool adapts =
      settings.adaptiveRouting < 0 ? !port.isEthernet : settings.adaptiveRouting != 0;
  const bool isSplit = adapts && piece.bytes.size() > settings.adaptiveRoutingBytes;
  ::ibv_sge place{.addr = reinterpret_cast<uintptr_t>(piece.bytes.data()),
                  .length = static_cast<uint32_t>(piece.bytes.size()),
                  .lkey = piece.localKey};
  ::ibv_send_wr last{};
  last.wr_id = number;
  last.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  last.send_flags = IBV_SEND_SIGNALED;
  last.imm_data = htonl(place.length);
  last.wr.rdma = {.remote_addr = piece.address, .rkey = piece.remoteKey};
  ::ibv_send_wr first = last;
  if (isSplit) {
    first.opcode = IBV_WR_RDMA_WRITE;
    first.send_flags = 0;
    first.next = &last;
  } else if (place.length <= pairs_.inlineBytes()) {
    first.send_flags |= IBV_SEND_INLINE;
  }
  first.sg_list = &place;
  first.num_sge = place.length == 0 ? 0 : 1;
  ::ibv_send_wr* refused = nullptr;
  return check(::ibv_post_send(pair, &first, &refused), "ibv_post_send", port.name);
}

Result<bool> VerbsLane::postReceive(Operation& operation, std::span<std::byte> bytes,
                                    const Enrolled& memory) {
  if (posted_ - creditsDone_ >= kCreditDepth) {
    poll();
    return false;
  }
  operation = {.isUsed = true,
               .number = posted_,
               .openCount = terms_.stripe,
               .room = bytes.size(),
               .moved = 0};
  for (size_t i = 0; i < terms_.stripe; ++i) {
    ::ibv_recv_wr request{};
    request.wr_id = posted_;
    ::ibv_recv_wr* refused = nullptr;
    TUTTI_TRY(check(::ibv_post_recv(pairs_[pairOf(posted_, i)], &request, &refused),
                    "ibv_post_recv", pairs_.roads().front().port->name));
  }
  Credit& credit = credits_[posted_ % kMaxRequests];
  credit.address = reinterpret_cast<uintptr_t>(bytes.data());
  for (size_t i = 0; i < memory.regions.size(); ++i) credit.keys[i] = memory.regions[i]->rkey;
  credit.bytes = static_cast<uint32_t>(bytes.size());
  credit.number = posted_ + 1;
  TUTTI_TRY(writeCredit(credit));
  return true;
}

Status VerbsLane::writeCredit(const Credit& credit) {
  const size_t slot = posted_ % kMaxRequests;
  ::ibv_sge place{.addr = reinterpret_cast<uintptr_t>(&credit),
                  .length = sizeof credit,
                  .lkey = creditRegion_->lkey};
  ::ibv_send_wr request{};
  request.wr_id = kIsCredit | posted_;
  request.sg_list = &place;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  if (posted_ % kCreditsPerCompletion == 0) request.send_flags |= IBV_SEND_SIGNALED;
  if (pairs_.inlineBytes() >= sizeof credit) request.send_flags |= IBV_SEND_INLINE;
  request.wr.rdma = {.remote_addr = peer_.creditAddress + slot * sizeof credit,
                     .rkey = peer_.creditKey};
  ::ibv_send_wr* refused = nullptr;
  return check(::ibv_post_send(pairs_[0], &request, &refused), "ibv_post_send",
               pairs_.roads().front().port->name);
}

// ---- completions --------------------------------------------------------------------------------

// What was through before something failed stays good, also where its completion is read later.
Result<std::optional<size_t>> VerbsLane::test(Request request) {
  if (request.name == flusher_.get()) {
    TUTTI_TRY_ASSIGN(const bool isThrough, flusher_->poll());
    return isThrough ? std::optional<size_t>(0) : std::nullopt;
  }
  auto& operation = *static_cast<Operation*>(request.name);
  if (operation.openCount != 0) poll();
  if (operation.openCount == 0) {
    operation.isUsed = false;
    return std::optional<size_t>(operation.moved);
  }
  if (trouble_.ok()) {
    TUTTI_TRY(health());
    return std::optional<size_t>();
  }
  operation.isUsed = false;
  return trouble_.clone();
}

void VerbsLane::poll() {
  std::array<::ibv_wc, 8> completions;
  for (size_t i = 0; i < pairs_.queues().size(); ++i) {
    const int count = ::ibv_poll_cq(pairs_.queues()[i].get(), static_cast<int>(completions.size()),
                                    completions.data());
    if (count < 0) return fail(check(EIO, "ibv_poll_cq", pairs_.roads()[i].port->name));
    for (const auto& each : std::span(completions).first(static_cast<size_t>(count))) take(each);
  }
}

void VerbsLane::take(const ::ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) return fail(explain(completion));
  const uint64_t number = completion.wr_id & ~kIsCredit;
  if ((completion.wr_id & kIsCredit) != 0) {
    creditsDone_ = number + 1;
    return;
  }
  Operation& operation = operations_[number % kMaxRequests];
  if (!operation.isUsed || operation.number != number || operation.openCount == 0) {
    return fail(Status(
        Code::kInternalError,
        fmt::format("a completion for message {} of a lane, which is not under way", number)));
  }
  if (!isSender()) operation.moved += ntohl(completion.imm_data);
  if (operation.moved > operation.room) {
    return fail(Status(Code::kRemoteError, fmt::format("a lane's sender says it wrote {} bytes, "
                                                       "into {}",
                                                       operation.moved, operation.room)));
  }
  --operation.openCount;
}

void VerbsLane::fail(Status why) {
  if (trouble_.ok()) trouble_ = std::move(why);
}

bool VerbsLane::isUnderWay() const {
  return std::ranges::any_of(operations_, [](const Operation& each) { return each.isUsed; });
}

// What the adapters have told by themselves.
Status VerbsLane::health() const {
  const int event = alarm_.event.load(std::memory_order_relaxed);
  if (event >= 0) {
    return Status(Code::kSystemError,
                  fmt::format("a queue pair of {} failed: {}", pairs_.roads().front().port->name,
                              options_.library.eventName(static_cast<::ibv_event_type>(event))));
  }
  for (const Road& road : pairs_.roads()) {
    TUTTI_TRY(road.adapter->trouble());
    const int64_t since = road.port->downSince.load(std::memory_order_relaxed);
    if (since == 0) continue;
    const Nanoseconds span = options_.settings.clock->now() - Instant{since};
    if (span <= options_.settings.patience) continue;
    return Status(Code::kSystemError,
                  fmt::format("port {} has been down for {} ms, longer than TUTTI_TIMEOUT_MS={}",
                              road.port->name,
                              std::chrono::duration_cast<std::chrono::milliseconds>(span).count(),
                              options_.settings.patience.count()));
  }
  return {};
}

namespace {

struct Hint {
  bool isPeers;  // what the other side, or the way to it, did
  const char* text;
};

Hint hintOf(::ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
      return {true,
              "the peer's adapter does not answer: is its port up, its process there, and does a "
              "packet of this address and traffic class reach it (NCCL_IB_GID_INDEX, NCCL_IB_TC, "
              "NCCL_IB_SL)? NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT say how long is tried"};
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return {true, "the peer has posted no receive: its side of the lane is out of step"};
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return {true, "the peer's adapter refuses the write: its memory is no longer registered"};
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_QP_OP_ERR: return {false, "this side's memory is no longer registered"};
    case IBV_WC_WR_FLUSH_ERR:
      return {false, "the queue pair had ended before, by an event or an earlier failure"};
    default: return {false, "the adapter's log (dmesg) may say more"};
  }
}

}  // namespace

Status VerbsLane::explain(const ::ibv_wc& completion) const {
  size_t pair = 0;
  while (pair + 1 < pairs_.count() && pairs_[pair]->qp_num != completion.qp_num) ++pair;
  const LaneTerms::PortTerms& there = peer_.ports[pair % peer_.portCount];
  const Hint hint = hintOf(completion.status);
  return Status(
      hint.isPeers ? Code::kRemoteError : Code::kSystemError,
      fmt::format("{}: {} (status {}, vendor's code {:#x}) on queue pair {} towards {} at "
                  "{} (LID {}): {}",
                  pairs_.roadOf(pair).port->name, options_.library.statusName(completion.status),
                  static_cast<int>(completion.status), completion.vendor_err, completion.qp_num,
                  peer_.pairs[pair], Gid{.bytes = there.gid}.text(), there.lid, hint.text));
}

}  // namespace tutti::net::verbs
