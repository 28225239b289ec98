#include "kernels/joint_copy.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/copy_memory.h"
#include "kernels/kernels.h"
#include "kernels/remote_memory.h"
#include "wire/placed_result.h"

namespace tutti::kernels {
namespace {

// Where the sender has what its message names.
const std::byte* sentFrom(const wire::MessageHead& message) {
  uint64_t address = 0;
  if (message.kind == wire::MessageKind::kShared) {
    wire::SharedReference shared;
    std::memcpy(&shared, message.inlinePayload, sizeof shared);
    address = shared.address;
  } else {
    wire::Reference reference;
    std::memcpy(&reference, message.inlinePayload, sizeof reference);
    address = reference.address;
  }
  return reinterpret_cast<const std::byte*>(address);
}

void copyMapped(std::byte* to, const std::byte* from, size_t bytes, bool streams) {
  if (!streams) return copyMemory(to, from, bytes);
  const void* const sources[] = {from};
  void* const destinations[] = {to};
  fold({.type = DataType::kUint8}, {.sources = sources,
                                    .destinations = destinations,
                                    .elementCount = bytes,
                                    .streamedCount = 1});
}

// part(offset, bytes) for all of so many bytes.
template <typename Part>
Status copyWith(Crew* crew, size_t bytes, const Part& part) {
  if (crew == nullptr) return part(size_t{0}, bytes);
  return crew->share(bytes, 1,
                     [&](int32_t, size_t first, size_t count) { return part(first, count); });
}

// The sender's: of what is taken, or answered.
uint64_t countOf(uint64_t word) { return word & 0xffffffff; }

// Shared memory may say anything.
size_t wantedOf(const wire::JointCopy& joint) {
  return roundUp(std::max<size_t>(joint.senderBytes, wire::kJointBlockMinBytes),
                 wire::kJointBlockUnit);
}

// What short ones take says little: they are halved.
bool isTimed(uint64_t number, size_t bytes) {
  return bytes >= wire::kJointMinBytes && wire::JointPace::isTimed(number);
}
size_t senderBytesOf(const wire::LinkPort& port, size_t bytes) {
  return (bytes >= wire::kJointMinBytes ? port.jointPace : wire::JointPace()).senderBytes(bytes);
}

wire::JointTarget targetOf(const wire::LinkPort& port, size_t bytes, std::byte* to,
                           const wire::SharedSegment& segment) {
  return {.address = reinterpret_cast<uint64_t>(to),
          .segment = {.serial = segment.serial, .bytes = segment.bytes, .token = segment.token},
          .offset = segment.serial == 0 ? 0 : static_cast<uint64_t>(to - segment.start),
          .senderBytes = static_cast<uint32_t>(senderBytesOf(port, bytes))};
}

// Adds its life to a count, if that is there.
class Stopwatch {
 public:
  explicit Stopwatch(uint64_t* nanoseconds) : nanoseconds_(nanoseconds) {
    if (nanoseconds != nullptr) start_ = steadyClock().now();
  }
  ~Stopwatch() {
    if (nanoseconds_ == nullptr) return;
    *nanoseconds_ += static_cast<uint64_t>((steadyClock().now() - start_).count());
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  uint64_t* nanoseconds_;
  Instant start_{};
};

// The message's target as plain memory of this process, the sender's; null: it is none. Its segment
// is mapped once that pays, while the receiver goes on by itself.
std::byte* findMapped(wire::LinkPort& port, const wire::JointTarget& target, size_t bytes) {
  if (port.isReceiverHere) return reinterpret_cast<std::byte*>(target.address);
  if (port.mapper == nullptr || port.targets == nullptr) return nullptr;
  const wire::Announcement& segment = target.segment;
  if (segment.serial == 0) return nullptr;
  const wire::SharedReference place{.serial = segment.serial, .offset = target.offset};
  if (std::byte* found = port.mapper->find(place, bytes)) return found;
  if (!port.targets->isWorthAsking(segment.serial, bytes)) return nullptr;
  port.targets->ask(segment.serial);
  return port.mapper->map(segment) ? port.mapper->find(place, bytes) : nullptr;
}

// Bytes of a message that its sender writes.
struct JointWrite {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  bool isMapped = false;  // `to` is, here; else it is an address of the receiver's process
  bool streams = false;
};

Status write(const wire::LinkPort& port, const JointWrite& what, size_t bytes, Crew* crew) {
  return copyWith(crew, bytes, [&](size_t first, size_t length) -> Status {
    if (!what.isMapped)
      return writeProcess(port.receiverProcess, what.from + first, what.to + first, length);
    copyMapped(what.to + first, what.from + first, length, what.streams);
    return {};
  });
}

// The same of the message of that number, with what its receiver hears of it.
void writeBlock(wire::LinkPort& port, uint64_t number, const wire::JointBlock& block,
                const JointWrite& what, Crew* crew) {
  wire::JointCopy& joint = wire::jointOf(port.view, number);
  Status written;
  {
    const bool timed = isTimed(number, port.view.message(number).bytes);
    const Stopwatch watch(timed ? &joint.senderNanoseconds : nullptr);
    written = write(port, what, block.bytes, crew);
  }
  uint64_t answered = block.offset + block.bytes;
  if (!written.ok()) {
    answered |= (block.offset + 1) << 32;
    port.mayWrite = false;
  }
  joint.answered.store(answered, std::memory_order_release);
  wakeIfAnnounced(joint.answered, port.view.control->receiverSleeps);
}

// Writes a block of the message of that number, which goes there.
bool helpWith(wire::LinkPort& port, uint64_t number, std::byte* target, bool streams, Crew* crew) {
  const wire::MessageHead& message = port.view.message(number);
  wire::JointCopy& joint = wire::jointOf(port.view, number);
  const size_t bytes = message.bytes;
  if (wire::leftOf(joint.taken.load(std::memory_order_relaxed), bytes).bytes == 0) return false;
  std::byte* mapped = findMapped(port,
                                 {.address = reinterpret_cast<uint64_t>(target),
                                  .segment = joint.segment,
                                  .offset = joint.offset},
                                 bytes);
  if (mapped == nullptr && message.kind == wire::MessageKind::kShared) return false;
  const wire::JointBlock block =
      wire::takeBlock(joint, wire::JointEnd::kSender, bytes, wantedOf(joint));
  if (block.bytes == 0) return false;
  writeBlock(port, number, block,
             {.from = sentFrom(message) + block.offset,
              .to = (mapped != nullptr ? mapped : target) + block.offset,
              .isMapped = mapped != nullptr,
              .streams = streams},
             crew);
  return true;
}

}  // namespace

void JointReceive::open(wire::LinkPort& port, const std::byte* from, std::byte* to,
                        const wire::SharedSegment& segment, bool streams) {
  port_ = &port;
  joint_ = &wire::jointOf(port.view, port.next);
  const wire::MessageHead& message = port.view.message(port.next);
  bytes_ = message.bytes;
  isMapped_ = port.isSenderHere || message.kind == wire::MessageKind::kShared;
  from_ = from;
  to_ = to;
  streams_ = streams;
  own_ = {};
  isDivided_ = (message.flags & wire::kIsDivided) != 0;
  // None where it was not offered: the link's memory was overwritten.
  divided_ = isDivided_ && port.offered == port.next + 1 ? port.offeredBytes : 0;
  if (isDivided_) return;
  if (ahead_ > 0) {
    --ahead_;  // this one
  } else {
    tell(port.next, to, segment);
  }
}

void JointReceive::openAhead(std::byte* to, const wire::SharedSegment& segment) {
  ++ahead_;
  tell(port_->next + ahead_, to, segment);
}

void JointReceive::tell(uint64_t number, std::byte* to, const wire::SharedSegment& segment) {
  wire::JointCopy& joint = wire::jointOf(port_->view, number);
  const wire::JointTarget target = targetOf(*port_, port_->view.message(number).bytes, to, segment);
  joint.segment = target.segment;
  joint.offset = target.offset;
  joint.senderBytes = target.senderBytes;
  joint.target.store(target.address, std::memory_order_release);
}

void JointReceive::offer(wire::LinkPort& port, uint32_t bytes, uint32_t signature, std::byte* to,
                         const wire::SharedSegment& segment) {
  const wire::JointTarget target = targetOf(port, bytes, to, segment);
  port.offered = port.next + 1;
  port.offeredBytes = target.senderBytes;
  port.view.control->jointOffer.write(port.next, wire::JointOffer::describe(bytes, signature),
                                      target);
}

Status JointReceive::read(const wire::JointBlock& block, Crew* crew) {
  return copyWith(crew, block.bytes, [&](size_t first, size_t bytes) -> Status {
    const std::byte* from = from_ + block.offset + first;
    std::byte* to = to_ + block.offset + first;
    if (!isMapped_) return readProcess(port_->senderProcess, from, to, bytes);
    copyMapped(to, from, bytes, streams_);
    return {};
  });
}

// Of a divided one all that the sender has not: once. Of others blocks, while some are left.
Status JointReceive::readBlocks(Crew* crew, uint64_t* nanoseconds) {
  const size_t wanted = port_->jointPace.receiverBytes(bytes_);
  for (;;) {
    const wire::JointBlock block =
        isDivided_ ? wire::JointBlock{.offset = divided_, .bytes = bytes_ - divided_ - own_.bytes}
                   : wire::takeBlock(*joint_, wire::JointEnd::kReceiver, bytes_, wanted);
    if (block.bytes == 0) return {};
    own_.bytes += block.bytes;  // also where it cannot be read: the sender is not to answer for it
    const Stopwatch watch(nanoseconds);
    TUTTI_TRY(read(block, crew));
  }
}

Result<Progress> JointReceive::poll(Crew* crew) {
  const bool timed = isTimed(port_->next, bytes_);
  TUTTI_TRY(readBlocks(crew, timed ? &own_.nanoseconds : nullptr));
  if (!isAnswered()) return Progress::kIdle;
  const uint64_t answered = joint_->answered.load(std::memory_order_acquire);
  const size_t end = std::min<size_t>(countOf(answered), bytes_);
  if (const uint64_t failed = answered >> 32; failed != 0) {
    const size_t begin = std::min<size_t>(failed - 1, end);
    TUTTI_TRY(read({.offset = begin, .bytes = end - begin}, crew));
  } else if (timed) {
    port_->jointPace.learn(own_, {.bytes = end, .nanoseconds = joint_->senderNanoseconds});
  }
  joint_ = nullptr;
  return Progress::kDone;
}

bool JointReceive::isAnswered() const {
  return own_.bytes + countOf(joint_->answered.load(std::memory_order_acquire)) >= bytes_;
}

FutexPoint JointReceive::wait() const {
  const uint64_t answered = joint_->answered.load(std::memory_order_acquire);
  // Answered since the poll: any other value than the present one keeps the waiter from sleeping.
  const bool isMissing = own_.bytes + countOf(answered) < bytes_;
  return {.word = &joint_->answered, .seen = isMissing ? answered : answered - 1};
}

void JointReceive::withdraw(const std::function<bool()>& mayWait) {
  if (joint_ != nullptr) {
    if (!isDivided_) withdraw(*joint_, mayWait);
    joint_ = nullptr;  // who writes its part of a divided one says so (LinkControl::isWriting)
  }
  for (; ahead_ > 0; --ahead_) withdraw(wire::jointOf(port_->view, port_->next + ahead_), mayWait);
}

void JointReceive::withdraw(wire::JointCopy& joint, const std::function<bool()>& mayWait) {
  const uint64_t taken =
      joint.taken.exchange(wire::JointCopy::kNoneLeft, std::memory_order_relaxed);
  const uint64_t theirs = countOf(taken);
  while (countOf(joint.answered.load(std::memory_order_acquire)) < theirs && mayWait()) {
  }
}

JointSend::JointSend(wire::LinkPort& port, const std::byte* from, uint32_t bytes,
                     uint32_t signature, wire::MessageKind kind)
    : from_(from) {
  wire::JointTarget target;
  const wire::JointOffer& offer = port.view.control->jointOffer;
  if (!port.mayWrite ||
      !offer.read(port.next, wire::JointOffer::describe(bytes, signature), target))
    return;
  // Shared memory may say anything.
  if (target.senderBytes == 0 || target.senderBytes > bytes) return;
  to_ = findMapped(port, target, bytes);
  isMapped_ = to_ != nullptr;
  if (!isMapped_ && kind == wire::MessageKind::kShared) return;
  if (!isMapped_) to_ = reinterpret_cast<std::byte*>(target.address);
  if (wire::beginWriting(port)) bytes_ = target.senderBytes;
}

void JointSend::write(wire::LinkPort& port, bool streams, Crew* crew) {
  if (bytes_ == 0) return;
  writeBlock(port, port.next - 1, {.offset = 0, .bytes = bytes_},
             {.from = from_, .to = to_, .isMapped = isMapped_, .streams = streams}, crew);
  wire::endWriting(port);
}

bool helpReceiver(wire::LinkPort& port, bool streams, Crew* crew) {
  if (!port.mayWrite || wire::isDrained(port)) return false;
  for (uint64_t number = port.known; number < port.drainTo; ++number) {
    const wire::MessageHead& message = port.view.message(number);
    if (!wire::isJoint(port.view, message)) return false;
    if ((message.flags & wire::kIsDivided) != 0) continue;
    const wire::JointCopy& joint = wire::jointOf(port.view, number);
    auto* target = reinterpret_cast<std::byte*>(joint.target.load(std::memory_order_acquire));
    if (target == nullptr) return false;  // they are opened in turn
    if (helpWith(port, number, target, streams, crew)) return true;
  }
  return false;
}

}  // namespace tutti::kernels
