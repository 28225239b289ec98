#include "transport/collnet/collnet_mover.h"

#include <algorithm>
#include <chrono>

#include "base/futex.h"
#include "base/log.h"
#include "base/units.h"
#include "net/pauses.h"

namespace tutti::transport::collnet {
namespace {

using std::chrono::microseconds;

// A wish is a call's number, its collective, type and operation.
constexpr unsigned kFieldBits = 8;

uint64_t packWish(uint64_t number, Collective collective, DataType type, ReduceOp op) {
  uint64_t wish = number;
  for (const int field :
       {static_cast<int>(collective), static_cast<int>(type), static_cast<int>(op)})
    wish = wish << kFieldBits | static_cast<uint8_t>(field);
  return wish;
}
uint64_t numberIn(uint64_t wish) { return wish >> 3 * kFieldBits; }

// After a call, in which the next one is likely.
constexpr microseconds kGrace{50};

}  // namespace

CollnetMover::CollnetMover(const Parts& parts) : parts_(parts) {}

Result<std::shared_ptr<CollnetMover>> CollnetMover::open(const Parts& parts) {
  wire::LinkGeometry geometry = parts.geometry;
  geometry.shortCount = 0;  // the network's bound is its requests, not the slots
  auto mover = std::shared_ptr<CollnetMover>(new CollnetMover(parts));
  const size_t bytes = wire::linkBytes(geometry);
  const size_t setBytes = CollnetBlocks::kSets * roundUp(parts.setBytes, kCacheLineBytes);
  TUTTI_TRY_ASSIGN(mover->memory_,
                   mapPrivate(2 * bytes + setBytes, "of the links to a collective network"));
  auto* memory = static_cast<std::byte*>(mover->memory_.get());
  mover->in_.view = wire::viewLink(memory, geometry);
  mover->out_.view = wire::viewLink(memory + bytes, geometry);
  TUTTI_TRY_ASSIGN(mover->enrolled_, parts.group->enroll({memory, 2 * bytes + setBytes}));
  mover->blocks_.emplace(CollnetBlocks::Parts{.group = *mover->parts_.group,
                                              .in = mover->in_,
                                              .out = mover->out_,
                                              .memberCount = parts.memberCount,
                                              .self = parts.self,
                                              .maxBytes = parts.maxBytes,
                                              .enrolled = mover->enrolled_,
                                              .memory = {memory + 2 * bytes, setBytes}});
  return mover;
}

CollnetMover::~CollnetMover() {
  if (enrolled_.name != nullptr) parts_.group->release(enrolled_);
}

// ---- the rank's side ----

bool CollnetMover::begin(Collective collective, DataType type, ReduceOp op) {
  const uint64_t number = numberIn(wish_.load(std::memory_order_relaxed)) + 1;
  isOver_.store(false, std::memory_order_relaxed);
  wish_.store(packWish(number, collective, type, op), std::memory_order_seq_cst);
  return !isServed_.exchange(true, std::memory_order_seq_cst);
}

Motor::Carried CollnetMover::carried() const {
  return {.messages = messages_.load(std::memory_order_relaxed),
          .bytes = bytes_.load(std::memory_order_relaxed)};
}

Reducer::Stand CollnetMover::stand() const {
  return {.rounds = rounds_.load(std::memory_order_relaxed), .call = parts_.group->callUnderWay()};
}

// ---- the network's thread ----

void CollnetMover::serve() {
  tutti::net::Pauses pauses;
  std::optional<Instant> overSince;
  for (;;) {
    const bool hasMoved = round();
    if (hasMoved) pauses.moved();
    if (!isOver()) {
      overSince.reset();
    } else if (!overSince) {
      overSince = steadyClock().now();
    } else if (hasEnded_ || hasLeft_.load(std::memory_order_relaxed) ||
               steadyClock().now() - *overSince > kGrace) {
      isServed_.store(false, std::memory_order_seq_cst);
      if (wish_.load(std::memory_order_seq_cst) == taken_ ||
          isServed_.exchange(true, std::memory_order_seq_cst))
        return;
      overSince.reset();
    }
    if (hasMoved) continue;
    if (const auto pause = pauses.next()) sleepFor(*pause);
  }
}

bool CollnetMover::isOver() const {
  if (hasEnded_ || hasLeft_.load(std::memory_order_relaxed)) return true;
  return isOver_.load(std::memory_order_relaxed) && !hasWork();
}

bool CollnetMover::round() {
  rounds_.fetch_add(1, std::memory_order_relaxed);
  lookForMessages();
  takeWish();
  bool hasMoved = false;
  if (!hasEnded_ && !hasLeft_.load(std::memory_order_relaxed)) {
    Result<bool> moved = isAllReduce() ? runAllReduce() : runBlocks();
    if (!moved.ok()) end(moved.status());
    hasMoved = !moved.ok() || *moved;
  }
  isBusy_.store(!hasEnded_ && hasWork(), std::memory_order_relaxed);
  postedCount_.store(reduced_ + blocks_->postedCount(), std::memory_order_relaxed);
  return hasMoved;
}

// Before takeWish(): a message that is seen here comes after the wish that it is for.
void CollnetMover::lookForMessages() {
  while (seen_ - in_.next <= in_.view.mask && hasMessage(in_, seen_)) ++seen_;
}

void CollnetMover::takeWish() {
  const uint64_t wish = wish_.load(std::memory_order_acquire);
  if (wish == taken_) return;
  taken_ = wish;
  const auto field = [wish](unsigned place) {
    return static_cast<uint8_t>(wish >> place * kFieldBits);
  };
  collective_ = static_cast<Collective>(field(2));
  type_ = static_cast<DataType>(field(1));
  op_ = static_cast<ReduceOp>(field(0));
  posted_ = in_.next;
  blocks_->begin(collective_, type_, op_);
}

// With the network, or not taken yet.
bool CollnetMover::hasWork() const {
  return isAllReduce() ? seen_ != in_.next : blocks_->isBusy(seen_);
}

Result<bool> CollnetMover::runAllReduce() {
  TUTTI_TRY_ASSIGN(const bool hasTaken, takeResults());
  TUTTI_TRY_ASSIGN(const bool hasPosted, postNext());
  return hasTaken || hasPosted;
}

Result<bool> CollnetMover::runBlocks() {
  TUTTI_TRY_ASSIGN(const bool hasMoved, blocks_->run(seen_));
  if (hasMoved) count();
  return hasMoved;
}

// In the order in which they were posted.
Result<bool> CollnetMover::takeResults() {
  bool hasMoved = false;
  while (requestCount_ > 0) {
    const Request& oldest = requests_[firstRequest_];
    TUTTI_TRY_ASSIGN(const bool isDone, parts_.group->test(oldest.request));
    if (!isDone) break;
    if (oldest.isLast) finishMessage();
    firstRequest_ = (firstRequest_ + 1) % requests_.size();
    --requestCount_;
    hasMoved = true;
  }
  return hasMoved;
}

void CollnetMover::finishMessage() {
  const wire::MessageHead& message = in_.view.message(in_.next);
  reducedBytes_ += message.bytes;
  wire::publish(out_, message.bytes, message.signature);
  wire::release(in_);
  count();
}

void CollnetMover::count() {
  messages_.store(in_.next, std::memory_order_relaxed);
  bytes_.store(reducedBytes_ + blocks_->carriedBytes(), std::memory_order_relaxed);
}

Result<bool> CollnetMover::postNext() {
  const size_t elementBytes = sizeOf(type_);
  const size_t most = std::max<size_t>(parts_.maxBytes / elementBytes, 1) * elementBytes;
  bool hasMoved = false;
  while (requestCount_ < requests_.size()) {
    if (posted_ == seen_ || !hasRoom(out_, resultNumber())) break;
    const wire::MessageHead& message = in_.view.message(posted_);
    if (message.kind != wire::MessageKind::kPayload || message.bytes % elementBytes != 0) {
      return Status(Code::kInternalError,
                    fmt::format("a message of {} bytes and kind {} for a collective network, "
                                "of elements of {} bytes",
                                message.bytes, static_cast<int>(message.kind), elementBytes));
    }
    const size_t bytes = std::min<size_t>(message.bytes - postedBytes_, most);
    TUTTI_TRY_ASSIGN(const Group::Request request,
                     parts_.group->post(
                         {.input = in_.view.payload(posted_, message.bytes) + postedBytes_,
                          .output = out_.view.payload(resultNumber(), message.bytes) + postedBytes_,
                          .elementCount = bytes / elementBytes,
                          .type = type_,
                          .op = op_,
                          .inputMemory = enrolled_,
                          .outputMemory = enrolled_}));
    if (!request) break;
    postedBytes_ += bytes;
    const bool isLast = postedBytes_ == message.bytes;
    requests_[(firstRequest_ + requestCount_++) % requests_.size()] = {.request = request,
                                                                       .isLast = isLast};
    if (isLast) {
      ++posted_;
      ++reduced_;
      postedBytes_ = 0;
    }
    hasMoved = true;
  }
  return hasMoved;
}

// The rank finds it on its slow path, and asks for the words.
void CollnetMover::end(const Status& status) {
  hasEnded_ = true;
  parting_.text = std::string(status.message());
  const auto lost = static_cast<uint32_t>(wire::LinkFault::kLost);
  in_.view.control->receiverFault.store(lost, std::memory_order_release);
  out_.view.control->senderFault.store(lost, std::memory_order_release);
  log::info(log::Subsystem::kNet, "a link to a collective network ends: {}", parting_.text);
}

}  // namespace tutti::transport::collnet
