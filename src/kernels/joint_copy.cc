#include "kernels/joint_copy.h"

#include <cstring>

#include "base/copy_memory.h"
#include "kernels/kernels.h"
#include "kernels/remote_memory.h"

namespace tutti::kernels {
namespace {

// More than any message has blocks.
constexpr uint64_t kNoneLeft = uint64_t{1} << 32;

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

uint64_t countOf(uint64_t answered) { return answered & 0xffffffff; }

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
  const wire::JointBlocks blocks(bytes);
  if (joint.taken.load(std::memory_order_relaxed) >= blocks.count()) return false;
  std::byte* mapped = findMapped(port, joint, target, bytes);
  if (mapped == nullptr && message.kind == wire::MessageKind::kShared) return false;
  uint64_t answered = joint.answered.load(std::memory_order_relaxed);
  const uint64_t block = countOf(answered);
  if (block >= blocks.count()) return false;  // the memory was overwritten
  if (joint.taken.fetch_add(1, std::memory_order_relaxed) >= blocks.count()) return false;
  const std::byte* from = sentFrom(message) + blocks.offset(block);
  std::byte* to = (mapped != nullptr ? mapped : target) + blocks.offset(block);
  ++answered;
  const Status written =
      copyWith(crew, blocks.length(block), [&](size_t first, size_t length) -> Status {
        if (mapped == nullptr)
          return writeProcess(port.receiverProcess, from + first, to + first, length);
        copyMapped(to + first, from + first, length, streams);
        return {};
      });
  if (!written.ok()) {
    answered |= (block + 1) << 32;
    port.mayWrite = false;
  }
  joint.answered.store(answered, std::memory_order_release);
  wakeIfAnnounced(joint.answered, port.view.control->receiverSleeps);
  return true;
}

}  // namespace

void JointReceive::open(const wire::LinkPort& port, const std::byte* from, std::byte* to,
                        const wire::SharedSegment& segment, bool streams) {
  port_ = &port;
  joint_ = &wire::jointOf(port.view, port.next);
  const wire::MessageHead& message = port.view.message(port.next);
  blocks_ = wire::JointBlocks(message.bytes);
  isMapped_ = port.isSenderHere || message.kind == wire::MessageKind::kShared;
  from_ = from;
  to_ = to;
  streams_ = streams;
  own_ = 0;
  if (ahead_ > 0) {
    --ahead_;  // this one
  } else {
    offer(*joint_, to, segment);
  }
}

void JointReceive::openAhead(std::byte* to, const wire::SharedSegment& segment) {
  ++ahead_;
  offer(wire::jointOf(port_->view, port_->next + ahead_), to, segment);
}

void JointReceive::offer(wire::JointCopy& joint, std::byte* to,
                         const wire::SharedSegment& segment) {
  joint.segment = {.serial = segment.serial, .bytes = segment.bytes, .token = segment.token};
  joint.offset = segment.serial == 0 ? 0 : static_cast<uint64_t>(to - segment.start);
  joint.target.store(reinterpret_cast<uint64_t>(to), std::memory_order_release);
}

Status JointReceive::read(uint64_t block, Crew* crew) {
  const size_t offset = blocks_.offset(block);
  return copyWith(crew, blocks_.length(block), [&](size_t first, size_t bytes) -> Status {
    const std::byte* from = from_ + offset + first;
    std::byte* to = to_ + offset + first;
    if (!isMapped_) return readProcess(port_->senderProcess, from, to, bytes);
    copyMapped(to, from, bytes, streams_);
    return {};
  });
}

Result<Progress> JointReceive::poll(Crew* crew) {
  while (joint_->taken.load(std::memory_order_relaxed) < blocks_.count()) {
    if (joint_->taken.fetch_add(1, std::memory_order_relaxed) >= blocks_.count()) break;
    ++own_;  // also where it cannot be read: the sender is not to answer for it
    TUTTI_TRY(read(blocks_.count() - own_, crew));
  }
  if (!isAnswered()) return Progress::kIdle;
  const uint64_t failed = joint_->answered.load(std::memory_order_acquire) >> 32;
  if (failed != 0) TUTTI_TRY(read(failed - 1, crew));
  joint_ = nullptr;
  return Progress::kDone;
}

bool JointReceive::isAnswered() const {
  return own_ + countOf(joint_->answered.load(std::memory_order_acquire)) >= blocks_.count();
}

FutexPoint JointReceive::wait() const {
  const uint64_t answered = joint_->answered.load(std::memory_order_acquire);
  // Answered since the poll: any other value than the present one keeps the waiter from sleeping.
  const bool isMissing = own_ + countOf(answered) < blocks_.count();
  return {.word = &joint_->answered, .seen = isMissing ? answered : answered - 1};
}

void JointReceive::withdraw(const std::function<bool()>& mayWait) {
  if (joint_ != nullptr) {
    withdraw(*joint_, blocks_.count(), own_, mayWait);
    joint_ = nullptr;
  }
  for (; ahead_ > 0; --ahead_) {
    const uint64_t number = port_->next + ahead_;
    const wire::JointBlocks blocks(port_->view.message(number).bytes);
    withdraw(wire::jointOf(port_->view, number), blocks.count(), 0, mayWait);
  }
}

void JointReceive::withdraw(wire::JointCopy& joint, uint64_t count, uint64_t own,
                            const std::function<bool()>& mayWait) {
  const uint64_t taken = joint.taken.exchange(kNoneLeft, std::memory_order_relaxed);
  const uint64_t theirs = std::min(taken, count) - own;
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
