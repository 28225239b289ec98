#include "kernels/joint_copy.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/copy_memory.h"
#include "kernels/kernels.h"
#include "kernels/remote_memory.h"

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
std::byte* findMapped(wire::LinkPort& port, const wire::JointCopy& joint, std::byte* target,
                      size_t bytes) {
  if (port.isReceiverHere) return target;
  if (port.mapper == nullptr || port.targets == nullptr) return nullptr;
  const wire::Announcement segment = joint.segment;
  if (segment.serial == 0) return nullptr;
  const wire::SharedReference place{.serial = segment.serial, .offset = joint.offset};
  if (std::byte* found = port.mapper->find(place, bytes)) return found;
  if (!port.targets->isWorthAsking(segment.serial, bytes)) return nullptr;
  port.targets->ask(segment.serial);
  return port.mapper->map(segment) ? port.mapper->find(place, bytes) : nullptr;
}

// Writes a block of the message of that number, which goes there.
bool helpWith(wire::LinkPort& port, uint64_t number, std::byte* target, bool streams, Crew* crew) {
  const wire::MessageHead& message = port.view.message(number);
  wire::JointCopy& joint = wire::jointOf(port.view, number);
  const size_t bytes = message.bytes;
  if (wire::leftOf(joint.taken.load(std::memory_order_relaxed), bytes).bytes == 0) return false;
  std::byte* mapped = findMapped(port, joint, target, bytes);
  if (mapped == nullptr && message.kind == wire::MessageKind::kShared) return false;
  const wire::JointBlock block =
      wire::takeBlock(joint, wire::JointEnd::kSender, bytes, wantedOf(joint));
  if (block.bytes == 0) return false;
  const std::byte* from = sentFrom(message) + block.offset;
  std::byte* to = (mapped != nullptr ? mapped : target) + block.offset;
  const auto write = [&](size_t first, size_t length) -> Status {
    if (mapped == nullptr)
      return writeProcess(port.receiverProcess, from + first, to + first, length);
    copyMapped(to + first, from + first, length, streams);
    return {};
  };
  Status written;
  {
    const Stopwatch watch(wire::JointPace::isTimed(number) ? &joint.senderNanoseconds : nullptr);
    written = copyWith(crew, block.bytes, write);
  }
  uint64_t answered = block.offset + block.bytes;
  if (!written.ok()) {
    answered |= (block.offset + 1) << 32;
    port.mayWrite = false;
  }
  joint.answered.store(answered, std::memory_order_release);
  wakeIfAnnounced(joint.answered, port.view.control->receiverSleeps);
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
  if (ahead_ > 0) {
    --ahead_;  // this one
  } else {
    offer(port.next, to, segment);
  }
}

void JointReceive::openAhead(std::byte* to, const wire::SharedSegment& segment) {
  ++ahead_;
  offer(port_->next + ahead_, to, segment);
}

void JointReceive::offer(uint64_t number, std::byte* to, const wire::SharedSegment& segment) {
  wire::JointCopy& joint = wire::jointOf(port_->view, number);
  joint.segment = {.serial = segment.serial, .bytes = segment.bytes, .token = segment.token};
  joint.offset = segment.serial == 0 ? 0 : static_cast<uint64_t>(to - segment.start);
  const size_t bytes = port_->view.message(number).bytes;
  joint.senderBytes = static_cast<uint32_t>(port_->jointPace.senderBytes(bytes));
  joint.target.store(reinterpret_cast<uint64_t>(to), std::memory_order_release);
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

Result<Progress> JointReceive::poll(Crew* crew) {
  const size_t wanted = port_->jointPace.receiverBytes(bytes_);
  const bool isTimed = wire::JointPace::isTimed(port_->next);
  for (;;) {
    const wire::JointBlock block =
        wire::takeBlock(*joint_, wire::JointEnd::kReceiver, bytes_, wanted);
    if (block.bytes == 0) break;
    own_.bytes += block.bytes;  // also where it cannot be read: the sender is not to answer for it
    const Stopwatch watch(isTimed ? &own_.nanoseconds : nullptr);
    TUTTI_TRY(read(block, crew));
  }
  if (!isAnswered()) return Progress::kIdle;
  const uint64_t answered = joint_->answered.load(std::memory_order_acquire);
  const size_t end = std::min<size_t>(countOf(answered), bytes_);
  if (const uint64_t failed = answered >> 32; failed != 0) {
    const size_t begin = std::min<size_t>(failed - 1, end);
    TUTTI_TRY(read({.offset = begin, .bytes = end - begin}, crew));
  } else if (isTimed) {
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
    withdraw(*joint_, mayWait);
    joint_ = nullptr;
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

bool helpReceiver(wire::LinkPort& port, bool streams, Crew* crew) {
  if (!port.mayWrite || wire::isDrained(port)) return false;
  for (uint64_t number = port.known; number < port.drainTo; ++number) {
    if (!wire::isJoint(port.view, port.view.message(number))) return false;
    const wire::JointCopy& joint = wire::jointOf(port.view, number);
    auto* target = reinterpret_cast<std::byte*>(joint.target.load(std::memory_order_acquire));
    if (target == nullptr) return false;  // they are opened in turn
    if (helpWith(port, number, target, streams, crew)) return true;
  }
  return false;
}

}  // namespace tutti::kernels
