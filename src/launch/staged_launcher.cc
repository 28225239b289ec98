#include "launch/staged_launcher.h"

#include <algorithm>
#include <utility>

#include "kernels/gpu_catalog.h"
#include "launch/idle_poll.h"
#include "launch/stream_calls.h"
#include "wire/gpu_staging.h"

namespace tutti::launch {
namespace {

// Of a slot for rounds that one kernel does. Beyond, copy engines leave the multiprocessors to
// others.
constexpr size_t kShortSlotBytes = size_t{256} << 10;
constexpr size_t kBytesOfBlock = size_t{16} << 10;

size_t bytesOf(const std::vector<StagingCopy>& copies) {
  size_t sum = 0;
  for (const StagingCopy& copy : copies) sum += copy.bytes;
  return sum;
}

// Gives the layout `count` slots of its slotBytes each, from `memory` on.
void addSlots(StagingCutter::Layout& layout, void* memory, size_t count) {
  layout.slots.clear();
  for (size_t slot = 0; slot < count; ++slot)
    layout.slots.push_back(static_cast<std::byte*>(memory) + slot * layout.slotBytes);
}

}  // namespace

Result<std::unique_ptr<StagedLauncher>> StagedLauncher::open(const Parts& parts) {
  std::unique_ptr<StagedLauncher> launcher(new StagedLauncher(parts));
  TUTTI_TRY(launcher->initialise());
  return launcher;
}

Status StagedLauncher::initialise() {
  TUTTI_TRY(order_.open(nullptr));
  TUTTI_TRY_ASSIGN(bridge_, StagingBridge::open(parts_.launcher, parts_.host, parts_.accelerator));
  if (parts_.ownsGpu && !kernels::cuda::stepImage().empty()) {
    TUTTI_TRY_ASSIGN(kernel_, parts_.accelerator.findKernel(kernels::cuda::stepImage(),
                                                            kernels::cuda::kStageKernel, 0));
  }
  return makeSlots();
}

Status StagedLauncher::makeSlots() {
  StagingCutter::Layout layout{
      .rank = parts_.rank, .rankCount = parts_.rankCount, .slotBytes = parts_.slotBytes};
  TUTTI_TRY_ASSIGN(memory_, parts_.accelerator.makeWords(kStagingSlots * layout.slotBytes));
  addSlots(layout, memory_->hostAddress(), kStagingSlots);
  cutter_ = std::make_unique<StagingCutter>(layout);
  if (parts_.gpuFromBytes != kNever) TUTTI_TRY(makeGpuSlots(layout));
  layout.slotBytes = std::min(parts_.slotBytes, kShortSlotBytes);
  layout.firstSlot = kFirstShortSlot;
  TUTTI_TRY_ASSIGN(shortMemory_, parts_.accelerator.makeWords(kShortSlots * layout.slotBytes));
  addSlots(layout, shortMemory_->hostAddress(), kShortSlots);
  shortCutter_ = std::make_unique<StagingCutter>(layout);
  return {};
}

Status StagedLauncher::makeGpuSlots(StagingCutter::Layout layout) {
  TUTTI_TRY_ASSIGN(gpuMemory_, parts_.accelerator.makeMemory(kStagingSlots * parts_.slotBytes));
  addSlots(layout, gpuMemory_->address(), kStagingSlots);
  layout.firstSlot = kFirstGpuSlot;
  layout.isOnGpu = true;
  gpuCutter_ = std::make_unique<StagingCutter>(layout);
  return {};
}

// A graph may still hold our rounds: then what they touch stays.
StagedLauncher::~StagedLauncher() {
  if (bridge_ == nullptr) return;
  bridge_->close();
  if (!order_.isInGraphs() && !hasStrays_) return;
  device::Accelerator& accelerator = parts_.accelerator;
  const std::weak_ptr<const void> graphs = order_.graphs();
  if (hasStrays_) accelerator.keepForGood(order_.graphs());
  accelerator.keepFor(graphs, std::move(bridge_));
  accelerator.keepFor(graphs, order_.eventOfGraphs());
  accelerator.keepFor(graphs, std::move(memory_));
  accelerator.keepFor(graphs, std::move(shortMemory_));
  accelerator.keepFor(graphs, std::move(gpuMemory_));
}

Status StagedLauncher::launch(std::span<const StreamCall> calls, bool /*isUsersGroup*/) {
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
    open_.ended = nullptr;
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

// Ranks may differ in what is captured, so the calls of each kind are cut alike, and in one order,
// wherever they go.
Status StagedLauncher::put(std::span<const StreamCall> calls, void* stream, bool isCaptured) {
  const auto putEach = [&](const StagingRound& round) {
    return putRound(round, stream, isCaptured);
  };
  for (std::vector<StreamCall>& kind : kinds_) kind.clear();
  for (const StreamCall& each : calls)
    kinds_[static_cast<size_t>(kindOf(*each.call))].push_back(each);
  for (size_t kind = 0; kind < kKinds; ++kind) {
    if (kinds_[kind].empty()) continue;
    TUTTI_TRY(cutterOf(static_cast<Kind>(kind), isCaptured).cut(kinds_[kind], putEach));
  }
  return endRound(stream);
}

StagedLauncher::Kind StagedLauncher::kindOf(const Call& call) const {
  if (goesThroughGpu(call)) return Kind::kOnGpu;
  return shortCutter_->fits(call.shape) ? Kind::kShort : Kind::kLong;
}

// The host may be behind with what is in short slots, of which replays would not know.
StagingCutter& StagedLauncher::cutterOf(Kind kind, bool isCaptured) const {
  switch (kind) {
    case Kind::kShort: return isCaptured ? *cutter_ : *shortCutter_;
    case Kind::kLong: return *cutter_;
    case Kind::kOnGpu: return *gpuCutter_;
  }
  return *cutter_;
}

// All ranks find the same: their links are others. A scalar may lie in the GPU's memory, where the
// executor cannot read it.
bool StagedLauncher::goesThroughGpu(const Call& call) const {
  const plan::CallShape& shape = call.shape;
  if (bytesOf(call) < parts_.gpuFromBytes) return false;
  if (!isReduction(shape.collective)) return true;
  return parts_.foldsOnGpu && shape.op != ReduceOp::kPreMulSum;
}

Status StagedLauncher::putRound(const StagingRound& round, void* stream, bool isCaptured) {
  if (goesByKernel(round)) {
    TUTTI_TRY(endRound(stream));
    return putKernel(round, stream);
  }
  if (const Slot& slot = slots_[round.slot]; slot.mayBeBehind) {
    TUTTI_TRY(
        parts_.accelerator.awaitWord(&bridge_->deviceWords().rounds.ended, slot.lastRound, stream));
  }
  TUTTI_TRY(copyAll(round.before, stream));
  if (round.calls.empty()) return {};
  return isCaptured ? beginInGraph(round, stream) : begin(round, stream);
}

bool StagedLauncher::goesByKernel(const StagingRound& round) const {
  return kernel_ != nullptr && !round.calls.empty() && round.slot >= kFirstShortSlot &&
         round.before.size() + round.after.size() <= size_t{wire::kGpuStagingCopies};
}

// A rank that gets nothing out of the round lets its stream go on as soon as all is copied in.
Status StagedLauncher::putKernel(const StagingRound& round, void* stream) {
  const Slot before = slots_[round.slot];
  wire::GpuStaging staging{.words = &bridge_->deviceWords().rounds,
                           .round = bridge_->nextRound(),
                           .freed = before.mayBeBehind ? before.lastRound : 0,
                           .inCount = static_cast<int32_t>(round.before.size()),
                           .outCount = static_cast<int32_t>(round.after.size()),
                           .copies = {}};
  wire::GpuStagingCopy* next = staging.copies;
  for (const std::vector<StagingCopy>* copies : {&round.before, &round.after}) {
    for (const StagingCopy& copy : *copies)
      *next++ = {.to = copy.to, .from = copy.from, .bytes = copy.bytes};
  }
  const size_t bytes = std::max(bytesOf(round.before), bytesOf(round.after));
  const auto blocks = static_cast<uint32_t>(
      std::clamp<size_t>(bytes / kBytesOfBlock, 1, size_t{wire::kGpuStagingBlocks}));
  TUTTI_TRY(parts_.accelerator.launch({.kernel = kernel_,
                                       .blocks = blocks,
                                       .threads = kernels::cuda::kStageThreads,
                                       .argument = &staging},
                                      stream));
  slots_[round.slot] = {.lastRound = staging.round, .mayBeBehind = round.after.empty()};
  return bridge_->follow(round, staging.round, beginningOf(round, staging.round, blocks, before));
}

// What brings nothing needs only its slot, which is free when the round after the next of the one
// that had it has begun. So the host is ahead of the stream; but not where there are graphs, whose
// replays nobody announces: the calls of ranks come in one order.
StagingBridge::Beginning StagedLauncher::beginningOf(const StagingRound& round, uint32_t number,
                                                     uint32_t blocks, const Slot& before) const {
  if (!round.before.empty() || order_.hasCaptured()) return {.number = number, .blocks = blocks};
  if (before.lastRound == 0) return {.blocks = 0};
  return {.number = before.lastRound + 2};
}

// The round before ends after this one has begun: its slot is another one.
Status StagedLauncher::begin(const StagingRound& round, void* stream) {
  const uint32_t number = bridge_->nextRound();
  wire::GpuStagingWords& words = bridge_->deviceWords().rounds;
  TUTTI_TRY(parts_.accelerator.writeWord(words.begun, number, stream));
  slots_[round.slot] = {.lastRound = number};
  TUTTI_TRY(bridge_->follow(round, number, {.number = number}));
  TUTTI_TRY(endRound(stream));
  open_ = {.ended = &words.ended, .value = number, .after = round.after};
  return {};
}

Status StagedLauncher::beginInGraph(const StagingRound& round, void* stream) {
  TUTTI_TRY(parts_.accelerator.callHost(&StagingBridge::begin, bridge_->take(round), stream));
  TUTTI_TRY(endRound(stream));
  open_ = {.ended = &bridge_->deviceWords().graphs[round.slot].ended,
           .value = 1,
           .isInGraph = true,
           .after = round.after};
  return {};
}

Status StagedLauncher::endRound(void* stream) {
  if (open_.ended == nullptr) return {};
  void* word = std::exchange(open_.ended, nullptr);
  TUTTI_TRY(parts_.accelerator.awaitWord(word, open_.value, stream));
  if (open_.isInGraph) TUTTI_TRY(parts_.accelerator.writeWord(word, 0, stream));
  return copyAll(open_.after, stream);
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
  return !isBusy_ && bridge_->isIdle() && parts_.launcher.isIdle();
}

bool StagedLauncher::waitIdle(Nanoseconds bound, Clock& clock) {
  return pollUntilIdle(*this, bound, clock);
}

}  // namespace tutti::launch
