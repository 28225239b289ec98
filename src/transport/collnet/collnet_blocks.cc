#include "transport/collnet/collnet_blocks.h"

#include <algorithm>
#include <cstring>

namespace tutti::transport::collnet {

bool hasMessage(const wire::LinkPort& in, uint64_t number) {
  return in.view.message(number).mark.load(std::memory_order_acquire) == number + 1;
}

bool hasRoom(wire::LinkPort& out, uint64_t number) {
  if (number - out.known <= out.view.mask) return true;
  out.known = out.view.control->head.load(std::memory_order_acquire);
  return number - out.known <= out.view.mask;
}

void CollnetBlocks::begin(Collective collective, DataType type, ReduceOp op) {
  collective_ = collective;
  type_ = type;
  op_ = op;
}

std::byte* CollnetBlocks::memoryOf(uint64_t number) const {
  return parts_.memory.data() + number % kSets * (parts_.memory.size() / kSets);
}

// A set's messages lie in its memory cut by cut, and in each cut member by member: what one request
// takes is one range.
size_t CollnetBlocks::cutBytes() const {
  const size_t elementBytes = sizeOf(type_);
  return std::max<size_t>(parts_.maxBytes / parts_.memberCount / elementBytes, 1) * elementBytes;
}

void CollnetBlocks::copyCuts(uint64_t number, size_t member, std::byte* message, bool isInto) {
  const size_t bytes = at(number).bytes;
  const size_t most = cutBytes();
  for (size_t begin = 0; begin < bytes; begin += most) {
    const size_t length = std::min(most, bytes - begin);
    std::byte* place = memoryOf(number) + begin * parts_.memberCount + member * length;
    std::memcpy(isInto ? place : message + begin, isInto ? message + begin : place, length);
  }
}

// In an all-gather a message stays in its slot while the network reads it.
bool CollnetBlocks::isBusy(uint64_t seen) const {
  if (requestCount_ > 0) return true;
  if (posted_ != begun_ && isComplete(at(posted_))) return true;
  const uint64_t next = parts_.in.next + (isGather() ? begun_ - tested_ : 0);
  return begun_ - first_ < kSets && next < seen;
}

Result<bool> CollnetBlocks::run(uint64_t seen) {
  bool hasMoved = false;
  for (bool moves = true; moves; hasMoved |= moves) {
    TUTTI_TRY_ASSIGN(moves, test());
    if (deliver()) moves = true;
    TUTTI_TRY_ASSIGN(const bool collects, collect(seen));
    TUTTI_TRY_ASSIGN(const bool posts, post());
    moves = moves || collects || posts;
  }
  return hasMoved;
}

// In the order in which they were posted.
Result<bool> CollnetBlocks::test() {
  bool hasMoved = false;
  while (requestCount_ > 0) {
    const Request& oldest = requests_[firstRequest_];
    TUTTI_TRY_ASSIGN(const bool isDone, parts_.group.test(oldest.request));
    if (!isDone) break;
    if (oldest.isLast) {
      ++tested_;
      if (isGather()) wire::release(parts_.in);
    }
    firstRequest_ = (firstRequest_ + 1) % requests_.size();
    --requestCount_;
    hasMoved = true;
  }
  return hasMoved;
}

// What a scatter brought lies in its slot already.
bool CollnetBlocks::deliver() {
  bool hasMoved = false;
  while (first_ != tested_) {
    Set& set = at(first_);
    wire::LinkPort& out = parts_.out;
    if (!isGather()) wire::publish(out, set.bytes, set.signature);
    for (; isGather() && set.delivered < parts_.memberCount; ++set.delivered) {
      if (set.delivered == parts_.self) continue;
      if (!hasRoom(out, out.next)) return hasMoved;
      copyCuts(first_, set.delivered, out.view.payload(out.next, set.bytes), false);
      wire::publish(out, set.bytes, set.signature);
      hasMoved = true;
    }
    ++first_;
    hasMoved = true;
  }
  return hasMoved;
}

Status CollnetBlocks::check(const wire::MessageHead& message) const {
  const bool isFirst = isGather() || posted_ == begun_ || isComplete(at(begun_ - 1));
  const bool isFit = message.bytes % sizeOf(type_) == 0 && message.bytes > 0 &&
                     message.bytes * parts_.memberCount <= parts_.memory.size() / kSets &&
                     (isFirst || message.bytes == at(begun_ - 1).bytes);
  if (message.kind == wire::MessageKind::kPayload && isFit) return {};
  return Status(Code::kInternalError,
                fmt::format("a message of {} bytes and kind {} for a collective network of {} "
                            "members, of elements of {} bytes",
                            message.bytes, static_cast<int>(message.kind), parts_.memberCount,
                            sizeOf(type_)));
}

// The rank's messages, as far as there are sets for them.
Result<bool> CollnetBlocks::collect(uint64_t seen) {
  wire::LinkPort& in = parts_.in;
  bool hasMoved = false;
  for (;;) {
    const bool isOpen = !isGather() && posted_ != begun_ && !isComplete(at(begun_ - 1));
    if (!isOpen && begun_ - first_ == kSets) break;
    const uint64_t number = in.next + (isGather() ? begun_ - tested_ : 0);
    if (number >= seen) break;
    const wire::MessageHead& message = in.view.message(number);
    TUTTI_TRY(check(message));
    carriedBytes_ += message.bytes;
    if (!isOpen) at(begun_++) = {.bytes = message.bytes, .signature = message.signature};
    if (!isGather()) {
      Set& set = at(begun_ - 1);
      copyCuts(begun_ - 1, set.collected++, in.view.payload(number, message.bytes), true);
      wire::release(in);
    }
    hasMoved = true;
  }
  return hasMoved;
}

Result<bool> CollnetBlocks::post() {
  bool hasMoved = false;
  while (posted_ != begun_ && isComplete(at(posted_))) {
    TUTTI_TRY_ASSIGN(const bool isPosted, postSet(posted_));
    if (!isPosted) break;
    ++posted_;
    hasMoved = true;
  }
  return hasMoved;
}

// True once all of it is with the network.
Result<bool> CollnetBlocks::postSet(uint64_t number) {
  Set& set = at(number);
  if (!isGather() && !hasRoom(parts_.out, parts_.out.next + (number - first_))) return false;
  const auto& in = parts_.in.view;
  const auto& out = parts_.out.view;
  while (set.postedBytes < set.bytes) {
    if (requestCount_ == requests_.size()) return false;
    const size_t bytes = std::min(cutBytes(), set.bytes - set.postedBytes);
    std::byte* all = memoryOf(number) + set.postedBytes * parts_.memberCount;
    Group::Reduction reduction{.collective = collective_,
                               .input = all,
                               .output = all,
                               .elementCount = bytes / sizeOf(type_),
                               .type = type_,
                               .op = op_,
                               .inputMemory = parts_.enrolled,
                               .outputMemory = parts_.enrolled};
    if (isGather()) {
      const uint64_t message = parts_.in.next + (number - tested_);
      reduction.input = in.payload(message, set.bytes) + set.postedBytes;
    } else {
      const uint64_t message = parts_.out.next + (number - first_);
      reduction.output = out.payload(message, set.bytes) + set.postedBytes;
    }
    TUTTI_TRY_ASSIGN(const Group::Request request, parts_.group.post(reduction));
    if (!request) return false;
    set.postedBytes += bytes;
    requests_[(firstRequest_ + requestCount_++) % requests_.size()] = {
        .request = request, .isLast = set.postedBytes == set.bytes};
  }
  return true;
}

}  // namespace tutti::transport::collnet
