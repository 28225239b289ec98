#include "launch/gpu_profile.h"

#include <algorithm>
#include <array>

#include "base/log.h"

namespace tutti::launch {
namespace {

using observe::EventKind;

// Kernels end within some milliseconds of an abort.
constexpr Nanoseconds kGrace = std::chrono::milliseconds(100);

}  // namespace

Result<std::unique_ptr<GpuProfile>> GpuProfile::open(const Parts& parts) {
  std::unique_ptr<GpuProfile> profile(new GpuProfile(parts));
  TUTTI_TRY_ASSIGN(profile->stamps_, GpuStamps::open({.accelerator = parts.accelerator,
                                                      .clock = parts.clock,
                                                      .timeout = parts.timeout}));
  log::info(log::Subsystem::kInit, "rank {}: the GPU's clock is known to {} ns either way",
            parts.rank, profile->stamps_->uncertainty().count());
  parts.teller.add(*profile);
  return profile;
}

GpuProfile::~GpuProfile() {
  parts_.teller.remove(*this);
  if (stamps_ == nullptr) return;
  const std::lock_guard lock(readMutex_);
  readAll();
  finishAll();
}

// Null: no room.
GpuProfile::Launch* GpuProfile::takeLaunch(bool isCaptured) {
  if (isCaptured) return &captured_;
  const uint64_t next = published_.load(std::memory_order_relaxed);
  const bool hasRoom = next - retired_.load(std::memory_order_acquire) < kMostLaunches;
  return hasRoom ? &launches_[next % kMostLaunches] : nullptr;
}

Status GpuProfile::tell(const Group& group, const std::function<Status()>& launch) {
  const std::lock_guard lock(launchMutex_);
  if (const std::unique_lock reading(readMutex_, std::try_to_lock); reading.owns_lock()) readAll();
  Result<device::Capture> capture = parts_.accelerator.captureOf(group.calls.front().stream);
  const bool isCaptured = capture.ok() && capture->isActive;
  const uint64_t sequence = sequence_;
  Launch* taken = takeLaunch(isCaptured);
  if (taken == nullptr) {
    drop(group.calls.size());
    sequence_ += static_cast<uint64_t>(std::ranges::count_if(
        group.calls, [](const StreamCall& item) { return !isPointToPoint(*item.call); }));
    return launch();
  }
  beginEvents(*taken, group, isCaptured);
  const observe::EventTag launching =
      parts_.profiler.beginLaunch(taken->group, group.calls.front().stream, parts_.clock.now());
  current_ = isCaptured ? nullptr : taken;
  Status status = launch();
  current_ = nullptr;
  taken->launched = parts_.clock.now();
  parts_.profiler.end(EventKind::kLaunch, launching, taken->launched);
  if (!taken->spans.empty()) {
    taken->lastStamp = stamps_->last();
    published_.fetch_add(1);  // in one order with the teller's way to sleep, for wake()
    parts_.teller.wake();
    return status;
  }
  finish(*taken, taken->launched);
  if (!status.ok()) sequence_ = sequence;
  return status;
}

void GpuProfile::drop(size_t calls) {
  parts_.profiler.drop(calls);
  if (hasWarned_) return;
  hasWarned_ = true;
  log::warn("rank {}: calls are not profiled while more than {} launches are under way",
            parts_.rank, kMostLaunches);
}

void GpuProfile::beginEvents(Launch& launch, const Group& group, bool isCaptured) {
  launch.group = parts_.profiler.beginGroup(
      {.callCount = group.calls.size(), .isUsers = group.isUsers, .isCaptured = isCaptured},
      parts_.clock.now());
  launch.calls.clear();
  launch.spans.clear();
  launch.nextCollective = launch.at = 0;
  launch.isRunning = false;
  // As the batcher has them: the k-th send or receive of each peer in the k-th round.
  std::array<std::array<int32_t, wire::kGpuProgramRanks>, 2> rounds{};
  for (const StreamCall& item : group.calls) {
    ToldCall& told = launch.calls.emplace_back();
    told.call =
        parts_.profiler.beginCall(launch.group, noteOf(item, isCaptured), parts_.clock.now());
    told.isOpen = true;
    const plan::CallShape& shape = item.call->shape;
    if (shape.count == 0) {
      told.round = kNoElements;
    } else if (isPointToPoint(shape.collective)) {
      const size_t way = shape.collective == Collective::kSend ? 0 : 1;
      told.round = rounds[way][static_cast<size_t>(index(shape.peer))]++;
    }
  }
  launch.begun = launch.ran = parts_.clock.now();
}

observe::CallNote GpuProfile::noteOf(const StreamCall& item, bool isCaptured) {
  const Call& call = *item.call;
  return {.collective = call.shape.collective,
          .type = call.shape.type,
          .op = call.shape.op,
          .isCaptured = isCaptured,
          .peer = index(call.shape.peer),
          .count = call.shape.count,
          .sequence = isPointToPoint(call) ? 0 : ++sequence_,
          .input = call.input,
          .output = call.output,
          .algorithm = algorithmOf(call),
          .stream = item.stream};
}

std::string_view GpuProfile::algorithmOf(const Call& call) {
  if (isPointToPoint(call)) return "direct";
  const GpuChooser::Decision decision = chooser_.decisionFor(call.shape);
  if (decision.program) return decision.program->algorithm->name;
  const auto choice = kernels::cuda::choose(decision.request);
  return choice ? choice->algorithm : std::string_view();
}

Status GpuProfile::begin(const GpuBatch& batch, void* stream) {
  if (current_ == nullptr || isOver_.load(std::memory_order_relaxed)) return {};
  Launch& launch = *current_;
  const auto span = static_cast<int32_t>(launch.spans.size());
  const bool hasRoom = stamps_->hasRoom(2);
  size_t untold = 0;
  const auto join = [&](ToldCall& call) {
    if (hasRoom) {
      call.span = span;
    } else {
      ++untold;
    }
  };
  for (ToldCall& call : launch.calls) {
    if (batch.round != GpuBatch::kNoRound && call.round == batch.round) join(call);
  }
  for (int32_t left = batch.collectiveCount; left > 0; ++launch.nextCollective) {
    ToldCall& call = launch.calls[launch.nextCollective];
    if (call.round != kCollective) continue;
    join(call);
    --left;
  }
  if (untold != 0) drop(untold);
  if (!hasRoom) return {};
  TUTTI_TRY_ASSIGN(const uint64_t stamp, stamps_->put(stream));
  launch.spans.push_back({.begin = stamp});
  return {};
}

Status GpuProfile::end(void* stream) {
  if (current_ == nullptr || current_->spans.empty() || current_->spans.back().end != 0) return {};
  TUTTI_TRY_ASSIGN(current_->spans.back().end, stamps_->put(stream));
  return {};
}

Nanoseconds GpuProfile::look() {
  const std::lock_guard lock(readMutex_);
  if (!isOpen()) return kUntilWoken;
  stamps_->compareClocks();
  readAll();
  if (!isOpen()) return kUntilWoken;
  if (isOver_.load(std::memory_order_relaxed)) {
    const Instant now = parts_.clock.now();
    if (overSince_ == Instant{}) overSince_ = now;
    if (now - overSince_ > kGrace) finishAll();
  }
  return kSoon;
}

void GpuProfile::readAll() {
  uint64_t next = retired_.load(std::memory_order_relaxed);
  for (; next != published_.load(std::memory_order_acquire); ++next) {
    Launch& launch = launches_[next % kMostLaunches];
    if (!readOn(launch)) return;
    finish(launch, std::max(launch.ran, launch.launched));  // short ones may end before
    stamps_->release(launch.lastStamp);
    retired_.store(next + 1, std::memory_order_release);
  }
}

// False: the GPU is not through.
bool GpuProfile::readOn(Launch& launch) {
  for (; launch.at < launch.spans.size(); ++launch.at) {
    const Span& span = launch.spans[launch.at];
    const auto isOfSpan = [&](const ToldCall& call) {
      return call.span == static_cast<int32_t>(launch.at);
    };
    if (!launch.isRunning) {
      launch.runTimer = stamps_->read(span.begin, launch.begun);
      if (launch.runTimer == 0) return false;
      launch.ran = std::max(launch.ran, stamps_->instantOf(launch.runTimer));
      launch.isRunning = true;
      for (ToldCall& call : launch.calls) {
        if (!isOfSpan(call)) continue;
        call.run = parts_.profiler.beginRun(call.call, launch.ran);
        call.isRunning = true;
      }
    }
    const uint64_t timer = span.end == 0 ? 0 : stamps_->read(span.end, launch.begun);
    if (timer == 0) return false;
    // The length is the GPU's own, whatever has been learnt of its clock meanwhile.
    const Instant ended = launch.ran + Nanoseconds(timer - launch.runTimer);
    launch.ran = std::min(ended, parts_.clock.now());
    launch.isRunning = false;
    for (ToldCall& call : launch.calls) {
      if (isOfSpan(call)) endRun(call, launch.ran);
    }
  }
  return true;
}

void GpuProfile::endRun(ToldCall& call, Instant now) {
  if (call.isRunning) parts_.profiler.end(EventKind::kRun, call.run, now);
  if (call.isOpen) parts_.profiler.end(EventKind::kCall, call.call, now);
  call.isRunning = call.isOpen = false;
}

void GpuProfile::finish(Launch& launch, Instant now) {
  for (ToldCall& call : launch.calls) endRun(call, now);
  parts_.profiler.end(EventKind::kGroup, launch.group, now);
}

// Their stamps stay as they are: the GPU may still come there.
void GpuProfile::finishAll() {
  const uint64_t last = published_.load(std::memory_order_acquire);
  for (uint64_t next = retired_.load(std::memory_order_relaxed); next != last; ++next)
    finish(launches_[next % kMostLaunches], parts_.clock.now());
  retired_.store(last, std::memory_order_release);
}

}  // namespace tutti::launch
