#include "kernels/execution.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/units.h"
#include "kernels/remote_read.h"

namespace tutti::kernels {
namespace {

using schedule::Operand;
using schedule::Place;
using schedule::Step;

// After this many steps poll() returns, so that other executions of the same thread get their turn.
constexpr int kStepsAPoll = 32;

// Long enough that the system call's 0.7 us do not show, short enough that a few of them stay in an
// L2 cache.
constexpr size_t kScratchBytes = 64_KiB;

// A step's operands rarely exceed this; wider ones (one-shot over many ranks) take their pointers
// from the heap-backed scratch of the thread that drives them.
constexpr size_t kInlineOperands = 32;

// Pointers of one step: inline when they fit.
template <typename Pointer>
class PointerList {
 public:
  explicit PointerList(size_t count) : count_(count) {
    if (count > kInlineOperands) more_.resize(count);
  }
  Pointer& operator[](size_t at) { return count_ > kInlineOperands ? more_[at] : inline_[at]; }
  std::span<const Pointer> span() const {
    return {count_ > kInlineOperands ? more_.data() : inline_.data(), count_};
  }

 private:
  size_t count_;
  std::array<Pointer, kInlineOperands> inline_;
  std::vector<Pointer> more_;
};

std::span<const Operand> sourcesOf(const schedule::Program& program, const Step& step) {
  return {program.operands.data() + step.firstOperand, step.sourceCount};
}
std::span<const Operand> destinationsOf(const schedule::Program& program, const Step& step) {
  return {program.operands.data() + step.firstOperand + step.sourceCount, step.destinationCount};
}

}  // namespace

void Execution::start(const Binding& binding) {
  binding_ = binding;
  piece_ = 0;
  step_ = 0;
  blockage_ = {};
}

Result<Progress> Execution::poll() {
  const auto& steps = binding_.program->steps;
  blockage_ = {};
  int done = 0;
  for (; piece_ < binding_.layout.pieceCount && !steps.empty() && done < kStepsAPoll; ++done) {
    const Step& step = steps[step_];
    const size_t elements = pieceOf(step.chunk).elements;
    if (elements > 0) {
      if (!isReady(step)) return done > 0 ? Progress::kAdvanced : Progress::kIdle;
      TUTTI_TRY(runStep(step, elements));
    }
    advance();
  }
  if (done == kStepsAPoll) return Progress::kAdvanced;
  if (binding_.isDirect && !isDrained()) return done > 0 ? Progress::kAdvanced : Progress::kIdle;
  return Progress::kDone;
}

void Execution::advance() {
  if (++step_ < binding_.program->steps.size()) return;
  step_ = 0;
  ++piece_;
}

Execution::Extent Execution::pieceOf(int32_t chunk) const {
  const schedule::Layout& layout = binding_.layout;
  const auto within = static_cast<size_t>(chunk % layout.chunksPerBlock);
  const size_t start = within * layout.chunkElements + piece_ * layout.pieceElements;
  const size_t chunkEnd = std::min((within + 1) * layout.chunkElements, layout.blockElements);
  if (start >= chunkEnd) return {};
  return {.offset = start, .elements = std::min(layout.pieceElements, chunkEnd - start)};
}

const std::byte* Execution::inputAt(int32_t chunk) const {
  const schedule::Layout& layout = binding_.layout;
  const auto block = static_cast<size_t>(chunk / layout.chunksPerBlock - layout.firstInputBlock);
  return binding_.input +
         (block * layout.blockElements + pieceOf(chunk).offset) * sizeOf(binding_.fold.type);
}

std::byte* Execution::outputAt(int32_t chunk) const {
  const schedule::Layout& layout = binding_.layout;
  const auto block = static_cast<size_t>(chunk / layout.chunksPerBlock - layout.firstOutputBlock);
  return binding_.output +
         (block * layout.blockElements + pieceOf(chunk).offset) * sizeOf(binding_.fold.type);
}

bool Execution::hasMessage(int32_t link) {
  wire::LinkPort& port = *binding_.incoming[static_cast<size_t>(link)];
  if (wire::hasMessage(port)) return true;
  blockage_ = {.port = &port,
               .peer = index(binding_.program->receivesFrom[static_cast<size_t>(link)])};
  return false;
}

bool Execution::hasFreeSlot(int32_t link) {
  wire::LinkPort& port = *binding_.outgoing[static_cast<size_t>(link)];
  if (wire::hasFreeSlot(port)) return true;
  blockage_ = {.port = &port,
               .peer = index(binding_.program->sendsTo[static_cast<size_t>(link)]),
               .isSender = true};
  return false;
}

bool Execution::isReady(const Step& step) {
  for (const Operand& source : sourcesOf(*binding_.program, step)) {
    if (source.place == Place::kLink && !hasMessage(source.index)) return false;
  }
  for (const Operand& destination : destinationsOf(*binding_.program, step)) {
    if (destination.place == Place::kLink && !hasFreeSlot(destination.index)) return false;
  }
  return true;
}

// What one step works on. A source that lies in another process has no pointer here but an address
// there.
struct Execution::StepData {
  StepData(size_t sourceCount, size_t destinationCount)
      : from(sourceCount), to(destinationCount), remote(sourceCount) {}

  PointerList<const void*> from;
  PointerList<void*> to;                 // local destinations only: the first localCount
  PointerList<const std::byte*> remote;  // null, or what to read from the source's process
  size_t elements = 0;
  size_t bytes = 0;
  size_t localCount = 0;
  size_t remoteCount = 0;
  int32_t scaledSource = -1;
  const std::byte* reference = nullptr;  // what outgoing links get instead of a payload
};

Status Execution::runStep(const Step& step, size_t elements) {
  StepData data(step.sourceCount, step.destinationCount);
  data.elements = elements;
  data.bytes = elements * sizeOf(binding_.fold.type);
  TUTTI_TRY(takeSources(step, data));
  const bool canRefer = binding_.isDirect && data.bytes > wire::kInlineBytes;
  const auto destinations = destinationsOf(*binding_.program, step);
  for (const Operand& destination : destinations) {
    if (destination.place == Place::kLink) continue;
    data.to[data.localCount++] = outputAt(destination.index);
    if (canRefer) data.reference = outputAt(destination.index);
  }
  if (canRefer && data.localCount == 0) {
    data.reference = static_cast<const std::byte*>(data.from[0]);
  }
  for (const Operand& destination : destinations) {
    if (destination.place != Place::kLink || canRefer) continue;
    const wire::LinkPort& port = *binding_.outgoing[static_cast<size_t>(destination.index)];
    data.to[data.localCount++] = port.view.payload(port.next, data.bytes);
  }
  if (data.localCount > 0) {
    TUTTI_TRY(data.remoteCount == 0 ? foldAll(step, data) : foldInBlocks(step, data));
  }
  publish(step, data);
  return {};
}

Status Execution::takeSources(const Step& step, StepData& data) {
  const auto sources = sourcesOf(*binding_.program, step);
  for (size_t i = 0; i < sources.size(); ++i) {
    data.remote[i] = nullptr;
    if (sources[i].place == Place::kInput) {
      data.from[i] = inputAt(sources[i].index);
      if (binding_.fold.op == ReduceOp::kPreMulSum) data.scaledSource = static_cast<int32_t>(i);
      continue;
    }
    if (sources[i].place == Place::kOutput) {
      data.from[i] = outputAt(sources[i].index);
      continue;
    }
    TUTTI_TRY(checkMessage(step, sources[i].index, data.bytes));
    const wire::LinkPort& port = *binding_.incoming[static_cast<size_t>(sources[i].index)];
    data.from[i] = port.view.payload(port.next, data.bytes);
    if (port.view.message(port.next).kind == wire::MessageKind::kPayload) continue;
    wire::Reference reference;
    std::memcpy(&reference, port.view.message(port.next).inlinePayload, sizeof reference);
    const auto* memory = reinterpret_cast<const std::byte*>(reference.address);
    if (port.isSenderHere) {
      data.from[i] = memory;
    } else {
      data.remote[i] = memory;
      ++data.remoteCount;
    }
  }
  return {};
}

Status Execution::checkMessage(const Step& step, int32_t link, size_t bytes) const {
  const wire::LinkPort& port = *binding_.incoming[static_cast<size_t>(link)];
  const wire::MessageHead& header = port.view.message(port.next);
  const auto wantedKind = binding_.isDirect && bytes > wire::kInlineBytes
                              ? wire::MessageKind::kReference
                              : wire::MessageKind::kPayload;
  if (header.bytes == bytes && header.signature == binding_.signature &&
      header.kind == wantedKind) {
    return {};
  }
  // Logged by the caller, who may know what the other rank called.
  return Status(
      Code::kInvalidUsage,
      fmt::format(
          "the message from rank {} belongs to another call: it carries {} bytes with signature "
          "{:08x}, this rank's call wants {} bytes with {:08x} (step {}); all ranks must make the "
          "same "
          "calls in the same order with the same count, type, operation and root",
          index(binding_.program->receivesFrom[static_cast<size_t>(link)]), header.bytes,
          header.signature, bytes, binding_.signature, &step - binding_.program->steps.data()));
}

Status Execution::foldAll(const Step& step, StepData& data) {
  fold(binding_.fold, {.sources = data.from.span(),
                       .destinations = data.to.span().first(data.localCount),
                       .elementCount = data.elements,
                       .scaledSource = data.scaledSource,
                       .post = step.post});
  return {};
}

// Sources of other processes pass through scratch memory that stays in the cache; a plain copy goes
// straight to its place.
Status Execution::foldInBlocks(const Step& step, StepData& data) {
  const size_t elementBytes = sizeOf(binding_.fold.type);
  const auto sources = sourcesOf(*binding_.program, step);
  const auto processOf = [&](size_t source) {
    return binding_.incoming[static_cast<size_t>(sources[source].index)]->senderProcess;
  };
  if (sources.size() == 1 && data.localCount == 1 && !step.post) {
    return readProcess(processOf(0), data.remote[0], data.to[0], data.bytes);
  }
  const size_t blockElements = std::min(data.elements, kScratchBytes / elementBytes);
  const size_t blockBytes = blockElements * elementBytes;
  if (binding_.scratch->size() < data.remoteCount * blockBytes) {
    binding_.scratch->resize(data.remoteCount * blockBytes);
  }
  PointerList<const void*> from(sources.size());
  PointerList<void*> to(data.localCount);
  for (size_t done = 0; done < data.elements; done += blockElements) {
    const size_t elements = std::min(blockElements, data.elements - done);
    std::byte* next = binding_.scratch->data();
    for (size_t i = 0; i < sources.size(); ++i) {
      if (data.remote[i] == nullptr) {
        from[i] = static_cast<const std::byte*>(data.from[i]) + done * elementBytes;
        continue;
      }
      TUTTI_TRY(readProcess(processOf(i), data.remote[i] + done * elementBytes, next,
                            elements * elementBytes));
      from[i] = next;
      next += blockBytes;
    }
    for (size_t i = 0; i < data.localCount; ++i) {
      to[i] = static_cast<std::byte*>(data.to[i]) + done * elementBytes;
    }
    fold(binding_.fold, {.sources = from.span(),
                         .destinations = to.span(),
                         .elementCount = elements,
                         .scaledSource = data.scaledSource,
                         .post = step.post});
  }
  return {};
}

// Hands filled slots to their receivers and drained ones back to their senders.
void Execution::publish(const Step& step, const StepData& data) {
  const auto bytes = static_cast<uint32_t>(data.bytes);
  for (const Operand& source : sourcesOf(*binding_.program, step)) {
    if (source.place != Place::kLink) continue;
    wire::release(*binding_.incoming[static_cast<size_t>(source.index)]);
  }
  for (const Operand& destination : destinationsOf(*binding_.program, step)) {
    if (destination.place != Place::kLink) continue;
    wire::LinkPort& port = *binding_.outgoing[static_cast<size_t>(destination.index)];
    if (data.reference != nullptr) {
      wire::publishReference(port, data.reference, bytes, binding_.signature);
    } else {
      wire::publish(port, bytes, binding_.signature);
    }
  }
}

// References are read from the user's buffers, which are the caller's again when the run is done.
bool Execution::isDrained() {
  for (size_t link = 0; link < binding_.outgoing.size(); ++link) {
    if (wire::isDrained(*binding_.outgoing[link])) continue;
    blockage_ = {.port = binding_.outgoing[link],
                 .peer = index(binding_.program->sendsTo[link]),
                 .isSender = true};
    return false;
  }
  return true;
}

void Execution::addWaits(device::WaitSet& waits) const {
  if (blockage_.port == nullptr) return;
  const wire::LinkPort& port = *blockage_.port;
  wire::LinkControl& control = *port.view.control;
  if (blockage_.isSender) {
    waits.add({.word = &control.head, .seen = port.known, .sleeper = &control.senderSleeps});
    return;
  }
  std::atomic<uint64_t>& mark = port.view.message(port.next).mark;
  const uint64_t seen = mark.load(std::memory_order_acquire);
  // Arrived since the poll: any other value than the present one keeps the driver from sleeping.
  const uint64_t waited = seen == port.next + 1 ? seen - 1 : seen;
  waits.add({.word = &mark, .seen = waited, .sleeper = &control.receiverSleeps});
}

Execution::Awaited Execution::awaited() const {
  return {.peer = blockage_.peer, .isSender = blockage_.isSender, .step = step_, .piece = piece_};
}

wire::LinkFault Execution::awaitedFault() const {
  if (blockage_.port == nullptr) return wire::LinkFault::kNone;
  const wire::LinkPort& port = *blockage_.port;
  const wire::LinkControl& control = *port.view.control;
  const auto& word = blockage_.isSender ? control.receiverFault : control.senderFault;
  const auto fault = static_cast<wire::LinkFault>(word.load(std::memory_order_acquire));
  if (fault == wire::LinkFault::kNone) return fault;
  // The peer may have moved the link after our last poll, and then left. What it did before it
  // left is visible now.
  const bool hasMoved = blockage_.isSender
                            ? control.head.load(std::memory_order_acquire) != port.known
                            : wire::hasMessage(port);
  return hasMoved ? wire::LinkFault::kNone : fault;
}

}  // namespace tutti::kernels
