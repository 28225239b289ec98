#include "transport/collnet/collnet_reducer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/units.h"

namespace tutti::transport::collnet {
namespace {

// A rank's end of one of the two rings. Shared with the other end: the rings and what moves them
// are one.
class CollnetEnd final : public LinkEnd {
 public:
  CollnetEnd(std::shared_ptr<CollnetReducer> reducer, const wire::LinkView& view, Motor* motor)
      : reducer_(std::move(reducer)), view_(view), motor_(motor) {}
  const wire::LinkView& view() const override { return view_; }
  Motor* motor() override { return motor_; }

 private:
  const std::shared_ptr<CollnetReducer> reducer_;
  const wire::LinkView view_;
  Motor* const motor_;
};

}  // namespace

CollnetReducer::CollnetReducer(ReducerOptions options)
    : group_(std::move(options.group)),
      maxBytes_(options.maxBytes),
      setBytes_(roundUp(options.setBytes, kCacheLineBytes)),
      memberCount_(options.memberCount),
      self_(options.self) {}

Result<std::shared_ptr<CollnetReducer>> CollnetReducer::open(ReducerOptions options) {
  wire::LinkGeometry geometry = options.geometry;
  geometry.shortCount = 0;  // the network's bound is its requests, not the slots
  auto reducer = std::shared_ptr<CollnetReducer>(new CollnetReducer(std::move(options)));
  const size_t bytes = wire::linkBytes(geometry);
  const size_t setBytes = CollnetBlocks::kSets * reducer->setBytes_;
  TUTTI_TRY_ASSIGN(reducer->memory_,
                   mapPrivate(2 * bytes + setBytes, "of the links to a collective network"));
  auto* memory = static_cast<std::byte*>(reducer->memory_.get());
  reducer->in_.view = wire::viewLink(memory, geometry);
  reducer->out_.view = wire::viewLink(memory + bytes, geometry);
  TUTTI_TRY_ASSIGN(reducer->enrolled_, reducer->group_->enroll({memory, 2 * bytes + setBytes}));
  reducer->blocks_.emplace(CollnetBlocks::Parts{.group = *reducer->group_,
                                                .in = reducer->in_,
                                                .out = reducer->out_,
                                                .memberCount = reducer->memberCount_,
                                                .self = reducer->self_,
                                                .maxBytes = reducer->maxBytes_,
                                                .enrolled = reducer->enrolled_,
                                                .memory = {memory + 2 * bytes, setBytes}});
  return reducer;
}

// The group goes first: then nothing is under way in the memory.
CollnetReducer::~CollnetReducer() {
  if (enrolled_.name != nullptr) group_->release(enrolled_);
  group_.reset();
}

// REQUIRES: no message is under way. Its results come back to the rank that sent it, so an
// operation that is over has left none.
void CollnetReducer::begin(Collective collective, DataType type, ReduceOp op) {
  collective_ = collective;
  type_ = type;
  op_ = op;
  posted_ = in_.next;
  blocks_->begin(collective, type, op);
}

bool CollnetReducer::isBusy() const {
  if (hasEnded_) return false;
  if (!isAllReduce()) return blocks_->isBusy();
  if (posted_ != in_.next) return true;
  // Or it was not taken yet.
  return hasMessage(in_, posted_);
}

Motor::Carried CollnetReducer::carried() const {
  return {.messages = messages_.load(std::memory_order_relaxed),
          .bytes = bytes_.load(std::memory_order_relaxed)};
}

bool CollnetReducer::run() {
  if (hasEnded_) return false;
  Result<bool> moved = isAllReduce() ? runAllReduce() : runBlocks();
  if (moved.ok()) return *moved;
  end(moved.status());
  return true;
}

Result<bool> CollnetReducer::runAllReduce() {
  TUTTI_TRY_ASSIGN(const bool hasTaken, takeResults());
  TUTTI_TRY_ASSIGN(const bool hasPosted, postNext());
  return hasTaken || hasPosted;
}

Result<bool> CollnetReducer::runBlocks() {
  TUTTI_TRY_ASSIGN(const bool hasMoved, blocks_->run());
  if (hasMoved) count();
  return hasMoved;
}

// In the order in which they were posted.
Result<bool> CollnetReducer::takeResults() {
  bool hasMoved = false;
  while (partCount_ > 0) {
    const Part& part = parts_[firstPart_];
    TUTTI_TRY_ASSIGN(const bool isDone, group_->test(part.request));
    if (!isDone) break;
    if (part.isLast) finishMessage();
    firstPart_ = (firstPart_ + 1) % parts_.size();
    --partCount_;
    hasMoved = true;
  }
  return hasMoved;
}

void CollnetReducer::finishMessage() {
  const wire::MessageHead& message = in_.view.message(in_.next);
  reducedBytes_ += message.bytes;
  wire::publish(out_, message.bytes, message.signature);
  wire::release(in_);
  count();
}

void CollnetReducer::count() {
  messages_.store(in_.next, std::memory_order_relaxed);
  bytes_.store(reducedBytes_ + blocks_->carriedBytes(), std::memory_order_relaxed);
}

Result<bool> CollnetReducer::postNext() {
  const size_t elementBytes = sizeOf(type_);
  const size_t most = std::max<size_t>(maxBytes_ / elementBytes, 1) * elementBytes;
  bool hasMoved = false;
  while (partCount_ < parts_.size()) {
    if (!hasMessage(in_, posted_) || !hasRoom(out_, resultNumber())) break;
    const wire::MessageHead& message = in_.view.message(posted_);
    if (message.kind != wire::MessageKind::kPayload || message.bytes % elementBytes != 0) {
      return Status(Code::kInternalError,
                    fmt::format("a message of {} bytes and kind {} for a collective network, "
                                "of elements of {} bytes",
                                message.bytes, static_cast<int>(message.kind), elementBytes));
    }
    const size_t bytes = std::min<size_t>(message.bytes - postedBytes_, most);
    TUTTI_TRY_ASSIGN(
        const Group::Request request,
        group_->post({.input = in_.view.payload(posted_, message.bytes) + postedBytes_,
                      .output = out_.view.payload(resultNumber(), message.bytes) + postedBytes_,
                      .elementCount = bytes / elementBytes,
                      .type = type_,
                      .op = op_,
                      .inputMemory = enrolled_,
                      .outputMemory = enrolled_}));
    if (!request) break;
    postedBytes_ += bytes;
    const bool isLast = postedBytes_ == message.bytes;
    parts_[(firstPart_ + partCount_++) % parts_.size()] = {.request = request, .isLast = isLast};
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
void CollnetReducer::end(const Status& status) {
  hasEnded_ = true;
  parting_.text = std::string(status.message());
  const auto lost = static_cast<uint32_t>(wire::LinkFault::kLost);
  in_.view.control->receiverFault.store(lost, std::memory_order_release);
  out_.view.control->senderFault.store(lost, std::memory_order_release);
  log::info(log::Subsystem::kNet, "a link to a collective network ends: {}", parting_.text);
}

void CollnetReducer::leave(const Parting& /*parting*/) { hasEnded_ = true; }

Result<ReducerLinks> openLinks(ReducerOptions options) {
  TUTTI_TRY_ASSIGN(auto reducer, CollnetReducer::open(std::move(options)));
  ReducerLinks links;
  links.reducer = reducer.get();
  links.incoming = std::make_unique<CollnetEnd>(reducer, reducer->receiveRing(), nullptr);
  links.outgoing = std::make_unique<CollnetEnd>(reducer, reducer->sendRing(), reducer.get());
  return links;
}

}  // namespace tutti::transport::collnet
