#include "launch/staged_launcher.h"

#include <new>

#include "device/host_streams.h"
#include "launch/idle_poll.h"
#include "launch/stream_calls.h"

namespace tutti::launch {
// ---- the bridge

Result<std::unique_ptr<StagingBridge>> StagingBridge::open(Launcher& launcher, device::Device& host,
                                                           const Words& words) {
  std::unique_ptr<StagingBridge> bridge(new StagingBridge(launcher, host, words));
  TUTTI_TRY_ASSIGN(bridge->stream_, host.hostStreams()->createStream());
  return bridge;
}

StagingBridge::~StagingBridge() {
  if (stream_ == nullptr) return;
  // It has no work, so this waits for nothing.
  [[maybe_unused]] const Status ended = host_.hostStreams()->destroyStream(stream_);
}

StagingBridge::Ticket* StagingBridge::take(const StagingRound& round, bool isKept) {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    tickets_.push_back(std::make_unique<Ticket>());
    free_.reserve(tickets_.size());  // so that giving one back cannot fail
    free_.push_back(tickets_.back().get());
  }
  Ticket* ticket = free_.back();
  free_.pop_back();
  ticket->bridge = this;
  ticket->slot = round.slot;
  ticket->isKept = isKept;
  ticket->calls = round.calls;
  return ticket;
}

// Whatever happens, the word is raised: the stream waits for it.
void StagingBridge::begin(void* argument) {
  auto& ticket = *static_cast<Ticket*>(argument);
  StagingBridge& bridge = *ticket.bridge;
  std::lock_guard lock(bridge.mutex_);
  Status status;
  try {
    status = bridge.launcher_ != nullptr ? bridge.start(ticket) : Status::outOfMemory();
  } catch (const std::bad_alloc&) {
    status = Status::outOfMemory();
  }
  if (!status.ok()) {
    if (bridge.launcher_ != nullptr) {
      bridge.launcher_->fail(status);
      bridge.launcher_->retire(observe::Life::kAborted);
    }
    bridge.raise(ticket.slot);
  }
  if (!ticket.isKept) bridge.free_.push_back(&ticket);
}

// The host's stream runs the calls, and then raises the word, also when they failed.
Status StagingBridge::start(const Ticket& ticket) {
  TUTTI_TRY_ASSIGN(device::Stream * stream, host_.resolve(stream_));
  TUTTI_TRY_ASSIGN(device::Task * task, launcher_->prepare(ticket.calls));
  if (Status status = host_.enqueue(stream, {&task, 1}); !status.ok()) {
    launcher_->cancel(task);
    return status;
  }
  const auto raise = [](void* word) {
    static_cast<Word*>(word)->store(1, std::memory_order_release);
  };
  return host_.hostStreams()->launchHostFunction(stream_, raise, words_[ticket.slot]);
}

void StagingBridge::close() {
  std::lock_guard lock(mutex_);
  launcher_ = nullptr;
}

// ---- the launcher

Result<std::unique_ptr<StagedLauncher>> StagedLauncher::open(const Parts& parts) {
  std::unique_ptr<StagedLauncher> launcher(new StagedLauncher(parts));
  TUTTI_TRY(launcher->initialise());
  return launcher;
}

Status StagedLauncher::initialise() {
  TUTTI_TRY(order_.open());
  TUTTI_TRY_ASSIGN(lines_, parts_.accelerator.makeWords(2 * kStagingSlots * sizeof(Line)));
  TUTTI_TRY_ASSIGN(memory_, parts_.accelerator.makeWords(kStagingSlots * parts_.slotBytes));
  StagingBridge::Words words{};
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = &(new (static_cast<Line*>(lines_->hostAddress()) + i) Line{})->done;
  StagingCutter::Layout layout{
      .rank = parts_.rank, .rankCount = parts_.rankCount, .slotBytes = parts_.slotBytes};
  for (size_t slot = 0; slot < kStagingSlots; ++slot) {
    layout.slots[slot] = static_cast<std::byte*>(memory_->hostAddress()) + slot * parts_.slotBytes;
  }
  TUTTI_TRY_ASSIGN(bridge_, StagingBridge::open(parts_.launcher, parts_.host, words));
  cutter_ = std::make_unique<StagingCutter>(layout);
  return parts_.gpuFromBytes == kNever ? Status() : makeGpuSlots(layout);
}

Status StagedLauncher::makeGpuSlots(StagingCutter::Layout layout) {
  TUTTI_TRY_ASSIGN(gpuMemory_, parts_.accelerator.makeMemory(kStagingSlots * parts_.slotBytes));
  for (size_t slot = 0; slot < kStagingSlots; ++slot) {
    layout.slots[slot] = static_cast<std::byte*>(gpuMemory_->address()) + slot * parts_.slotBytes;
  }
  layout.isOnGpu = true;
  gpuCutter_ = std::make_unique<StagingCutter>(layout);
  return {};
}

// A graph may still hold our rounds: then what they touch stays, for good, since nobody tells when
// a graph is gone.
StagedLauncher::~StagedLauncher() {
  if (bridge_ == nullptr) return;
  bridge_->close();
  if (!order_.hasCaptured() && !hasStrays_) return;
  parts_.accelerator.keepForGood(std::move(bridge_));
  parts_.accelerator.keepForGood(std::move(lines_));
  parts_.accelerator.keepForGood(std::move(memory_));
  parts_.accelerator.keepForGood(std::move(gpuMemory_));
}

Status StagedLauncher::launch(std::span<const StreamCall> calls) {
  std::lock_guard lock(mutex_);
  if (hasFailed()) return failure();
  if (parts_.checksPointers) TUTTI_TRY(checkBuffers(calls, parts_.accelerator));
  TUTTI_TRY(checkSelfTransfers(calls, parts_.rank));
  void* stream = calls.front().stream;
  TUTTI_TRY_ASSIGN(const device::Capture capture,
                   captureOf(calls, parts_.accelerator, parts_.rank));
  TUTTI_TRY(order_.begin(calls, stream, capture, isBusy_));
  Status status = put(calls, stream, capture.isActive);
  if (status.ok()) status = order_.end(stream, capture);
  if (!status.ok()) {
    hasOpen_ = false;
    if (hasBroken(capture, stream, parts_.accelerator)) return status;
    // Some of the group may run, and the peers count on the rest.
    // What is on the stream uses our memory until it ends; where that cannot be told, for good.
    if (!order_.end(stream, capture).ok()) {
      hasStrays_ = true;
    } else if (!capture.isActive) {
      isBusy_ = true;
    }
    fail(status);
    return status;
  }
  if (!capture.isActive) isBusy_ = true;
  return order_.join(calls, stream, capture);
}

Status StagedLauncher::put(std::span<const StreamCall> calls, void* stream, bool isCaptured) {
  const auto begin = [&](const StagingRound& round) {
    return beginRound(round, stream, isCaptured);
  };
  if (gpuCutter_ == nullptr) {
    TUTTI_TRY(cutter_->cut(calls, begin));
    return endRound(stream);
  }
  pinnedCalls_.clear();
  gpuCalls_.clear();
  for (const StreamCall& each : calls)
    (goesThroughGpu(*each.call) ? gpuCalls_ : pinnedCalls_).push_back(each);
  TUTTI_TRY(cutter_->cut(pinnedCalls_, begin));
  TUTTI_TRY(gpuCutter_->cut(gpuCalls_, begin));
  return endRound(stream);
}

// All ranks find the same: their links are others. A scalar may lie in the GPU's memory, where the
// executor cannot read it.
bool StagedLauncher::goesThroughGpu(const Call& call) const {
  const plan::CallShape& shape = call.shape;
  if (bytesOf(call) < parts_.gpuFromBytes) return false;
  if (!isReduction(shape.collective)) return true;
  return parts_.foldsOnGpu && shape.op != ReduceOp::kPreMulSum;
}

// The one before ends after this one has begun: its slot is the other one.
Status StagedLauncher::beginRound(const StagingRound& round, void* stream, bool isCaptured) {
  TUTTI_TRY(copyAll(round.before, stream));
  if (round.calls.empty()) return {};
  TUTTI_TRY(
      parts_.accelerator.callHost(&StagingBridge::begin, bridge_->take(round, isCaptured), stream));
  TUTTI_TRY(endRound(stream));
  hasOpen_ = true;
  openSlot_ = round.slot;
  openCopies_ = round.after;
  return {};
}

Status StagedLauncher::endRound(void* stream) {
  if (!hasOpen_) return {};
  hasOpen_ = false;
  auto* word = static_cast<Line*>(lines_->deviceAddress()) + openSlot_;
  TUTTI_TRY(parts_.accelerator.awaitWord(word, 1, stream));
  TUTTI_TRY(parts_.accelerator.writeWord(word, 0, stream));
  return copyAll(openCopies_, stream);
}

Status StagedLauncher::copyAll(const std::vector<StagingCopy>& copies, void* stream) {
  for (const StagingCopy& copy : copies) {
    TUTTI_TRY(parts_.accelerator.copyOnStream(copy.to, copy.from, copy.bytes, stream));
  }
  return {};
}

bool StagedLauncher::isIdle() {
  std::lock_guard lock(mutex_);
  if (isBusy_ && order_.isTailReached()) isBusy_ = false;
  return !isBusy_ && parts_.launcher.isIdle();
}

bool StagedLauncher::waitIdle(Nanoseconds bound, Clock& clock) {
  return pollUntilIdle(*this, bound, clock);
}

}  // namespace tutti::launch
