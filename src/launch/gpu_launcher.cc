#include "launch/gpu_launcher.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/futex.h"
#include "base/log.h"
#include "launch/idle_poll.h"
#include "launch/stream_calls.h"
#include "wire/gpu_stamp.h"

namespace tutti::launch {
namespace {

// Peers that register at the same time, or capture the same call, answer within 1 ms or so.
constexpr Nanoseconds kSettlingTime = std::chrono::milliseconds(20);

}  // namespace

Result<std::unique_ptr<GpuLauncher>> GpuLauncher::open(Parts parts) {
  std::unique_ptr<GpuLauncher> launcher(new GpuLauncher(std::move(parts)));
  TUTTI_TRY(launcher->initialise());
  launcher->parts_.watcher.add(*launcher);
  return launcher;
}

Status GpuLauncher::initialise() {
  device::Accelerator& accelerator = parts_.accelerator;
  TUTTI_TRY_ASSIGN(words_, accelerator.makeWords(sizeof(Words)));
  new (words_->hostAddress()) Words{};
  if (parts_.options.limits.ranksPerDevice > 1) {
    TUTTI_TRY_ASSIGN(ownStream_, accelerator.createStream());
  }
  TUTTI_TRY(order_.open(ownStream_));
  TUTTI_TRY_ASSIGN(probe_, accelerator.createEvent());
  auto* onDevice = static_cast<std::byte*>(words_->deviceAddress());
  const int32_t rankCount = parts_.options.limits.rankCount;
  wire::GpuView view{};
  const std::span<std::byte* const> segments = parts_.segments->addresses();
  if (rankCount <= wire::kGpuMaxRanks) std::ranges::copy(segments, view.segments);
  view.abortWord = reinterpret_cast<uint32_t*>(onDevice + offsetof(Words, abort));
  view.error = reinterpret_cast<wire::GpuError*>(onDevice + offsetof(Words, error));
  view.starts = reinterpret_cast<uint64_t*>(onDevice + offsetof(Words, starts));
  view.timeoutNs = static_cast<uint64_t>(parts_.options.waitLimit.count());
  view.rank = parts_.recorder->rank();
  view.rankCount = rankCount;
  batcher_ = std::make_unique<GpuBatcher>(
      view, parts_.options.limits,
      wire::GpuProgramView{.own = segments[static_cast<size_t>(view.rank)],
                           .abortWord = view.abortWord,
                           .error = view.error,
                           .timeoutNs = view.timeoutNs,
                           .rank = view.rank,
                           .rankCount = rankCount});
  if (parts_.options.limits.adaptsBlocks) {
    batcher_->askWhetherToSave(
        [this] { return accord_.enter(words().starts.load(std::memory_order_relaxed)); });
  }
  if (ownStream_ == nullptr) {
    guest_ = std::make_unique<GpuRoom::Guest>(parts_.room, order_.tail());
  }
  if (parts_.profiler != nullptr) openProfile();
  return loadKernels();
}

// A communicator that cannot be profiled goes on.
void GpuLauncher::openProfile() {
  auto opened = GpuProfile::open({.profiler = *parts_.profiler,
                                  .accelerator = parts_.accelerator,
                                  .teller = *parts_.teller,
                                  .clock = parts_.clock,
                                  .limits = parts_.options.limits,
                                  .rank = parts_.recorder->rank(),
                                  .timeout = parts_.options.timeout});
  if (opened.ok()) {
    profile_ = std::move(opened).value();
  } else {
    log::warn("rank {} is not profiled: {}", parts_.recorder->rank(), opened.status().message());
  }
}

// All of them, while no kernel of this communicator can wait: loading waits for what runs on the
// GPU. All images took 9 to 13 ms and 4 MB, once a process and GPU (2026-11-21, H200, driver 580).
Status GpuLauncher::loadKernels() {
  const GpuLimits& limits = parts_.options.limits;
  const int32_t images =
      limits.hasPrograms ? kernels::cuda::kImageCount : kernels::cuda::kProgramImages;
  for (int32_t image = 0; image < images; ++image) {
    for (const char* name : kernels::cuda::kernelNames(image, limits.rankCount)) {
      if (name == nullptr) continue;
      kernels::cuda::GpuChoice choice{};
      choice.image = image;
      choice.kernel = name;
      TUTTI_TRY_ASSIGN(const Known* known, kernelFor(choice));
      if (ownStream_ != nullptr) TUTTI_TRY(tryKernel(*known->kernel));
    }
  }
  if (ownStream_ == nullptr) return {};
  if (profile_ != nullptr) TUTTI_TRY(tryKernel(profile_->kernel()));
  TUTTI_TRY(order_.end(ownStream_, {}));
  return awaitTail(parts_.options.timeout);
}

// The first kernel of a stream may wait until the GPU runs no other: with 3 or 5 ranks on a GPU and
// streams that had run nothing, 6 of 10 programs hung at their first calls; none of 10 did when
// each stream had run every kernel, with nothing to do (2026-11-21, H200, driver 580).
Status GpuLauncher::tryKernel(const device::Kernel& kernel) {
  const union {
    wire::GpuLaunch launch;
    wire::GpuStamp stamp;
    wire::GpuTransfers transfers;
    wire::GpuProgramLaunch program;
    wire::GpuProgramTransfers programTransfers;
  } nothing{};
  // As many as every kernel may have.
  const int32_t threads = kernels::cuda::transferKernel().threads;
  return parts_.accelerator.launch({.kernel = &kernel,
                                    .blocks = 1,
                                    .threads = static_cast<uint32_t>(threads),
                                    .argument = &nothing},
                                   ownStream_);
}

Status GpuLauncher::awaitTail(Nanoseconds bound) {
  const Instant deadline = parts_.clock.now() + bound;
  for (;;) {
    if (order_.isTailReached()) return {};
    if (parts_.clock.now() >= deadline) {
      return internalError(
          "rank {}: kernels with nothing to do have not ended within {} ms (TUTTI_TIMEOUT_MS): "
          "what "
          "else runs on GPU {}?",
          parts_.recorder->rank(),
          std::chrono::duration_cast<std::chrono::milliseconds>(bound).count(),
          parts_.accelerator.busId());
    }
    sleepFor(kIdlePoll);
  }
}

GpuLauncher::~GpuLauncher() {
  parts_.watcher.remove(*this);
  profile_.reset();
  parts_.recorder->setLife(observe::Life::kDestroyed);
  parts_.accelerator.destroyEvent(probe_);
  parts_.accelerator.destroyStream(ownStream_);
  if (!order_.isInGraphs() && !hasStrays_) return;
  // A graph may still hold our launches. It finds the abort word raised and does nothing, for which
  // the word and the segments must stay, and the event that it waits for and records.
  abort();
  device::Accelerator& accelerator = parts_.accelerator;
  const std::weak_ptr<const void> graphs = order_.graphs();
  if (hasStrays_) accelerator.keepForGood(order_.graphs());
  accelerator.keepFor(graphs, std::move(words_));
  accelerator.keepFor(graphs, order_.eventOfGraphs());
  for (const StreamOrder::Event& other : order_.otherOrders()) accelerator.keepFor(graphs, other);
  parts_.buffers->leaveToGraphs(graphs);
  accelerator.keepFor(graphs, std::move(parts_.segments));
}

Status GpuLauncher::launch(std::span<const StreamCall> calls, bool isUsersGroup) {
  if (profile_ == nullptr) [[likely]]
    return launchNow(calls);
  if (hasFailed()) return failure();
  return profile_->tell({.calls = calls, .isUsers = isUsersGroup},
                        [this, calls] { return launchNow(calls); });
}

Status GpuLauncher::launchNow(std::span<const StreamCall> calls) {
  std::lock_guard lock(mutex_);
  if (hasFailed()) return failure();
  if (parts_.options.checksPointers) TUTTI_TRY(checkBuffers(calls, parts_.accelerator));
  const Rank self{parts_.recorder->rank()};
  TUTTI_TRY(checkSelfTransfers(calls, self));
  void* stream = calls.front().stream;
  TUTTI_TRY_ASSIGN(const device::Capture capture, captureOf(calls, parts_.accelerator, self));
  if (ownStream_ != nullptr && !capture.isActive) stream = ownStream_;
  if (guest_ != nullptr && capture.isActive && !order_.isInGraphs()) guest_->keepGraphs({}, {});
  TUTTI_TRY(order_.begin(calls, stream, capture, launched_ != finished_));
  if (guest_ != nullptr && order_.beginsGraph())
    guest_->keepGraphs(order_.graphs(), order_.eventOfGraphs());
  if (!capture.isActive) record(calls, capture);
  parts_.watcher.wake();  // not only at the end, which the driver may hold up: see look()
  hasPolled_ = false;
  Status status = batcher_->build(
      calls,
      [&](const void* buffer, size_t bytes, wire::GpuReach& reach) {
        return findBuffer(buffer, bytes, capture, reach);
      },
      [&](const GpuBatch& batch) { return emit(batch, stream, capture); },
      [&](const void* buffer, size_t bytes, GpuBatcher::Places& theirs) {
        pollBuffers();
        return parts_.buffers->findInWindow(
            {.buffer = buffer, .bytes = bytes, .isCaptured = capture.isActive}, theirs);
      });
  if (status.ok()) status = noteEnd(stream, capture);
  if (!status.ok()) {
    if (!hasBroken(capture, stream, parts_.accelerator)) giveUp(status, stream, capture);
    return status;
  }
  if (capture.isActive) record(calls, capture);
  return order_.join(calls, stream, capture);
}

// Some of the group may run, and the peers count on the rest. What is on the stream uses our memory
// until it ends; where that cannot be told, for good.
void GpuLauncher::giveUp(const Status& status, void* stream, const device::Capture& capture) {
  fail(status);
  if (!order_.end(stream, capture).ok()) {
    hasStrays_ = true;
  } else if (!capture.isActive) {
    last_.launch = ++launched_;
  }
}

// Captured calls run whenever the graph does; what is recorded of them is that they were called.
void GpuLauncher::record(std::span<const StreamCall> calls, const device::Capture& capture) {
  for (const StreamCall& item : calls) {
    const plan::CallShape& shape = item.call->shape;
    const uint64_t sequence = isPointToPoint(shape.collective) ? 0 : ++collectiveSequence_;
    last_.entry = parts_.recorder->begin({.collective = shape.collective,
                                          .type = shape.type,
                                          .op = shape.op,
                                          .peer = index(shape.peer),
                                          .count = shape.count,
                                          .sequence = sequence});
    if (capture.isActive) parts_.recorder->end(last_.entry, observe::EntryState::kDone);
  }
}

Status GpuLauncher::noteEnd(void* stream, const device::Capture& capture) {
  if (!capture.isActive) {
    last_.launch = ++launched_;
    if (probed_.launch == 0) {
      TUTTI_TRY(parts_.accelerator.record(probe_, stream));
      probed_ = last_;
      if (guest_ != nullptr) guest_->probe();
    }
  }
  TUTTI_TRY(order_.end(stream, capture));
  settleInRoom(capture);
  return {};
}

Result<GpuLauncher::Known*> GpuLauncher::kernelFor(const kernels::cuda::GpuChoice& choice) {
  auto& known = kernels_[static_cast<size_t>(choice.image)];
  for (Known& one : known) {
    if (one.name == choice.kernel || (one.name != nullptr && !std::strcmp(one.name, choice.kernel)))
      return &one;
    if (one.name != nullptr) continue;
    const uint32_t sharedBytes =
        parts_.options.limits.hasBulk
            ? kernels::cuda::mostSharedBytes(choice.kernel, parts_.options.limits.rankCount)
            : 0;
    TUTTI_TRY_ASSIGN(const device::Kernel* kernel,
                     parts_.accelerator.findKernel(kernels::cuda::image(choice.image),
                                                   choice.kernel, sharedBytes));
    one = {.name = choice.kernel, .kernel = kernel};
    return &one;
  }
  return internalError("image {} has more kernels than {}", choice.image, known.size());
}

// Nearly all launches of a kernel have the shape of the last one.
Result<uint32_t> GpuLauncher::blocksPerMultiprocessor(Known& known,
                                                      const device::KernelLaunch& launch) {
  if (known.perMultiprocessor == 0 || known.threads != launch.threads ||
      known.sharedBytes != launch.sharedBytes) {
    TUTTI_TRY_ASSIGN(known.perMultiprocessor,
                     parts_.accelerator.blocksPerMultiprocessor(*known.kernel, launch.threads,
                                                                launch.sharedBytes));
    known.threads = launch.threads;
    known.sharedBytes = launch.sharedBytes;
  }
  return known.perMultiprocessor;
}

// One that starts early is there beside the one before it on the stream.
Status GpuLauncher::enterRoom(GpuRoom::Launch own, device::KernelLaunch& launch, void* stream,
                              const device::Capture& capture) {
  if (launch.startsEarly) {
    GpuRoom::Launch both = own;
    both.blocks += lastEntered_.blocks;
    both.perMultiprocessor = std::min(own.perMultiprocessor, lastEntered_.perMultiprocessor);
    launch.startsEarly = guest_->tryEnter(both);
  }
  lastEntered_ = own;
  if (launch.startsEarly) return {};
  if (own.capture == 0) own.stream = order_.lastStream();
  roomTails_.clear();
  roomOrders_.clear();
  guest_->enter(own, roomTails_, roomOrders_);
  for (const GpuRoom::Tail& tail : roomTails_)
    TUTTI_TRY(parts_.accelerator.wait(stream, tail.get()));
  for (const GpuRoom::Tail& order : roomOrders_)
    TUTTI_TRY(order_.joinOrder(order, stream, capture));
  return {};
}

Status GpuLauncher::emit(const GpuBatch& batch, void* stream, const device::Capture& capture) {
  TUTTI_TRY_ASSIGN(Known * known, kernelFor(batch.choice));
  device::KernelLaunch launch{.kernel = known->kernel,
                              .blocks = static_cast<uint32_t>(batch.blocks),
                              .threads = static_cast<uint32_t>(batch.choice.threads),
                              .sharedBytes = batch.sharedBytes,
                              .argument = batch.argument(),
                              .startsEarly = batch.choice.startsEarly && !order_.beginsGraph()};
  if (guest_ != nullptr) {
    TUTTI_TRY_ASSIGN(const uint32_t fits, blocksPerMultiprocessor(*known, launch));
    // Blocks of collectives wait for those of the same number. Of lanes of several blocks, whose
    // parts follow each other in the grid, and of transfers, which the two sides may have in
    // different places, all are needed, as of programs.
    const bool hasWaves = batch.collectives != nullptr && !batch.choice.isApart;
    TUTTI_TRY(enterRoom({.blocks = launch.blocks,
                         .leastBlocks = hasWaves ? 1 : launch.blocks,
                         .perMultiprocessor = fits,
                         .capture = capture.isActive ? capture.id : 0},
                        launch, stream, capture));
  }
  if (profile_ != nullptr) TUTTI_TRY(profile_->begin(batch, stream));
  if (batch.engines != nullptr) {
    TUTTI_TRY(engines_.launch(launch, *batch.engines, stream));
  } else {
    TUTTI_TRY(parts_.accelerator.launch(launch, stream));
  }
  return profile_ != nullptr ? profile_->end(stream) : Status();
}

void GpuLauncher::settleInRoom(const device::Capture& capture) {
  if (guest_ == nullptr) return;
  if (capture.isActive) {
    guest_->settleCaptured(capture.id, order_.tailOf(capture));
  } else {
    guest_->settle(order_.lastStream());
  }
}

// Once a launch.
void GpuLauncher::pollBuffers() {
  if (!hasPolled_) parts_.buffers->poll(finished_);
  hasPolled_ = true;
}

// Also for buffers that nobody registered: peers' mail is looked at here.
bool GpuLauncher::findBuffer(const void* buffer, size_t bytes, const device::Capture& capture,
                             wire::GpuReach& reach) {
  channel::PeerBuffers& buffers = *parts_.buffers;
  pollBuffers();
  if (capture.isActive && parts_.options.registersGraphs && buffers.addForGraph(buffer, bytes))
    buffers.settle(kSettlingTime, finished_);
  return buffers.find(
      {.buffer = buffer, .bytes = bytes, .launch = launched_ + 1, .isCaptured = capture.isActive},
      reach);
}

Status GpuLauncher::addBuffer(const void* handle, const void* memory, size_t bytes,
                              channel::PeerBuffers::Kind kind) {
  if (parts_.options.limits.rankCount > wire::kGpuMaxRanks) {
    return Status(Code::kInvalidUsage, fmt::format("programs, as which calls of more than {} GPU "
                                                   "ranks go, do not use registered buffers",
                                                   wire::kGpuMaxRanks));
  }
  if (kind == channel::PeerBuffers::Kind::kWindow) {
    std::lock_guard lock(mutex_);
    TUTTI_TRY(engines_.open());
  }
  return parts_.buffers->add(handle, memory, bytes, kind);
}

void GpuLauncher::removeBuffer(const void* handle) {
  parts_.buffers->remove(handle);
  std::lock_guard lock(mutex_);
  findPending();
  parts_.buffers->poll(finished_);
}

void GpuLauncher::settleBuffers() { parts_.buffers->settle(kSettlingTime, 0); }

// A launch that the driver holds up has the mutex, for nobody knows how long; others have it for
// moments.
bool GpuLauncher::isIdle() {
  int tries = 10;
  std::unique_lock lock(mutex_, std::defer_lock);
  while (!lock.try_lock()) {
    if (--tries == 0) return false;
    sleepFor(kIdlePoll);
  }
  return findPending().launch == 0;
}

bool GpuLauncher::waitIdle(Nanoseconds bound, Clock& clock) {
  return pollUntilIdle(*this, bound, clock);
}

Status GpuLauncher::failure() const {
  std::lock_guard lock(failureMutex_);
  return failure_.clone();
}

// Not under mutex_: a launch that the driver holds up until a kernel ends has it, and that may be
// another communicator's kernel, which the watcher has yet to end.
void GpuLauncher::fail(const Status& status) {
  {
    std::lock_guard lock(failureMutex_);
    if (failure_.ok()) failure_ = status.clone();
    hasFailed_.store(true, std::memory_order_release);
  }
  abort();
}

void GpuLauncher::abort() {
  words().abort.store(1, std::memory_order_relaxed);
  if (profile_ != nullptr) profile_->giveUp();
}

// The oldest launch that may still run, after a look at the device. REQUIRES: mutex_ is held.
GpuLauncher::Pending GpuLauncher::findPending() {
  if (launched_ == finished_) return {};
  const auto isProbeReached = [this] {
    const Result<bool> done = parts_.accelerator.isDone(probe_);
    return !done.ok() || done.value();
  };
  if (order_.isTailReached()) {
    finishUpTo(last_);
    probed_ = {};
    if (guest_ != nullptr) guest_->leave();
    return {};
  }
  if (probed_.launch == 0 || !isProbeReached()) return probed_.launch == 0 ? last_ : probed_;
  finishUpTo(probed_);
  probed_ = {};
  if (guest_ != nullptr) guest_->probeReached();
  return last_;
}

void GpuLauncher::finishUpTo(const Pending& done) {
  finished_ = done.launch;
  const bool isLong = done.entry - ended_ > observe::kHistory;
  for (uint64_t entry = isLong ? done.entry - observe::kHistory : ended_; entry < done.entry;)
    parts_.recorder->end(++entry, observe::EntryState::kDone);
  ended_ = done.entry;
}

}  // namespace tutti::launch
