#include "device/host/host_device.h"

#include <sched.h>

#include <array>

#include "device/host/cpus.h"
#include "device/host/driver.h"

namespace tutti::device::host {
namespace {

constexpr uint8_t kStreamHandles = 0x51;
constexpr uint8_t kEventHandles = 0x52;

// The calling thread: null, and the constants that CUDA's headers call the legacy and the
// per-thread default stream.
bool isCallingThread(void* handle) { return reinterpret_cast<uintptr_t>(handle) <= 2; }

// Ends the handle. Pins last a few instructions here, since every user copies the pointer: yielding
// is enough.
template <typename T>
std::shared_ptr<T> removeFrom(HandleTable<T>& table, void* handle) {
  std::shared_ptr<T> object = table.remove(handle);
  if (object == nullptr) return nullptr;
  while (!table.isUnpinned(handle)) ::sched_yield();
  table.retire(handle);
  return object;
}

Status unknownStream(void* handle) {
  return invalidArgument(
      "stream {} is neither NULL nor a live host stream (ncclTuttiStreamCreate makes one; a CUDA "
      "stream needs a GPU rank)",
      handle);
}

Status unknownEvent(void* handle) {
  return invalidArgument("event {} is not a live host event (ncclTuttiEventCreate makes one)",
                         handle);
}

Status enqueueOwn(HostStream& stream, std::unique_ptr<Task> task) {
  const std::array<Task*, 1> group{task.get()};
  TUTTI_TRY(stream.enqueue(group));
  [[maybe_unused]] Task* enqueued = task.release();  // frees itself
  return {};
}

}  // namespace

HostDevice::HostDevice(Clock& clock)
    : caps_{.name = "host", .isHost = true, .index = 0, .concurrency = usableCpus()},
      waiting_(clock),
      streams_(kStreamHandles),
      events_(kEventHandles) {
  updatePolicy();
}

Result<Stream*> HostDevice::resolve(void* handle) {
  if (isCallingThread(handle)) return static_cast<Stream*>(nullptr);
  const auto stream = streams_.pin(handle);
  if (!stream) return unknownStream(handle);
  return static_cast<Stream*>(&*stream);
}

Status HostDevice::enqueue(Stream* stream, std::span<Task* const> tasks) {
  if (stream != nullptr) return static_cast<HostStream*>(stream)->enqueue(tasks);
  drive(linkGroup(tasks), waiting_);
  return {};
}

uint32_t HostDevice::looksBeforeEnqueue() const {
  return waiting_.policy().spins > 0 ? kFirstLooks : 1;
}

void HostDevice::joinRanks(int32_t ranksOnHost) {
  std::lock_guard lock(mutex_);
  ++rankCounts_[ranksOnHost];
  updatePolicy();
}

void HostDevice::leaveRanks(int32_t ranksOnHost) {
  std::lock_guard lock(mutex_);
  const auto found = rankCounts_.find(ranksOnHost);
  if (found != rankCounts_.end() && --found->second == 0) rankCounts_.erase(found);
  updatePolicy();
}

void HostDevice::updatePolicy() {
  const int32_t ranks = rankCounts_.empty() ? 1 : rankCounts_.rbegin()->first;
  waiting_.setPolicy(makeWaitPolicy(ranks, caps_.concurrency));
}

Result<std::shared_ptr<HostStream>> HostDevice::findStream(void* handle) {
  if (isCallingThread(handle)) return std::shared_ptr<HostStream>();
  const auto stream = streams_.pin(handle);
  if (!stream) return unknownStream(handle);
  return stream.share();
}

Result<std::shared_ptr<HostEvent>> HostDevice::findEvent(void* handle) {
  const auto event = events_.pin(handle);
  if (!event) return unknownEvent(handle);
  return event.share();
}

Result<std::shared_ptr<Moment>> HostDevice::findMoment(void* event) {
  TUTTI_TRY_ASSIGN(const std::shared_ptr<HostEvent> found, findEvent(event));
  return found->latest();
}

Result<void*> HostDevice::createStream() {
  void* handle = streams_.insert(std::make_shared<HostStream>(waiting_));
  if (handle == nullptr)
    return internalError("{} host streams are in use, no more fit", streams_.kMaxHandles);
  return handle;
}

Status HostDevice::destroyStream(void* stream) {
  {
    TUTTI_TRY_ASSIGN(const std::shared_ptr<HostStream> found, findStream(stream));
    if (found == nullptr)
      return invalidArgument("the default stream {} cannot be destroyed", stream);
    // Also waits, so that the last owner, dropped below or by a concurrent waiter, joins an idle
    // thread.
    TUTTI_TRY(found->synchronize());
  }
  if (removeFrom(streams_, stream) == nullptr) return unknownStream(stream);
  return {};
}

Status HostDevice::synchronizeStream(void* stream) {
  TUTTI_TRY_ASSIGN(const std::shared_ptr<HostStream> found, findStream(stream));
  return found == nullptr ? Status() : found->synchronize();
}

Result<bool> HostDevice::isStreamDone(void* stream) {
  TUTTI_TRY_ASSIGN(const std::shared_ptr<HostStream> found, findStream(stream));
  return found == nullptr || found->isDone();
}

Status HostDevice::launchHostFunction(void* stream, void (*function)(void*), void* argument) {
  if (function == nullptr) return invalidArgument("the host function is NULL");
  TUTTI_TRY_ASSIGN(const std::shared_ptr<HostStream> found, findStream(stream));
  if (found == nullptr) return callForeign(function, argument);
  return enqueueOwn(*found, makeCallTask(function, argument));
}

Result<void*> HostDevice::createEvent() {
  void* handle = events_.insert(std::make_shared<HostEvent>());
  if (handle == nullptr)
    return internalError("{} host events are in use, no more fit", events_.kMaxHandles);
  return handle;
}

Status HostDevice::destroyEvent(void* event) {
  return removeFrom(events_, event) == nullptr ? unknownEvent(event) : Status();
}

Status HostDevice::recordEvent(void* event, void* stream) {
  TUTTI_TRY_ASSIGN(const std::shared_ptr<HostEvent> found, findEvent(event));
  TUTTI_TRY_ASSIGN(const std::shared_ptr<HostStream> on, findStream(stream));
  auto moment = std::make_shared<Moment>();
  if (on == nullptr) {
    moment->reach(waiting_.clock);
  } else {
    TUTTI_TRY(enqueueOwn(*on, makeReachTask(moment, waiting_.clock)));
  }
  found->setLatest(std::move(moment));  // last: a record that failed leaves the event as it was
  return {};
}

Status HostDevice::waitEvent(void* stream, void* event) {
  TUTTI_TRY_ASSIGN(const std::shared_ptr<HostStream> on, findStream(stream));
  TUTTI_TRY_ASSIGN(std::shared_ptr<Moment> moment, findMoment(event));
  if (moment == nullptr || moment->isReached()) return {};
  if (on != nullptr) return enqueueOwn(*on, makeWaitTask(std::move(moment)));
  moment->wait(waiting_);
  return {};
}

Status HostDevice::synchronizeEvent(void* event) {
  TUTTI_TRY_ASSIGN(const std::shared_ptr<Moment> moment, findMoment(event));
  if (moment != nullptr) moment->wait(waiting_);
  return {};
}

Result<bool> HostDevice::isEventDone(void* event) {
  TUTTI_TRY_ASSIGN(const std::shared_ptr<Moment> moment, findMoment(event));
  return moment == nullptr || moment->isReached();
}

Result<float> HostDevice::elapsedMilliseconds(void* start, void* end) {
  TUTTI_TRY_ASSIGN(const std::shared_ptr<Moment> from, findMoment(start));
  TUTTI_TRY_ASSIGN(const std::shared_ptr<Moment> to, findMoment(end));
  if (from == nullptr || to == nullptr) {
    return invalidArgument("the {} event was never recorded", from == nullptr ? "start" : "end");
  }
  if (!from->isReached() || !to->isReached()) {
    return Status(Code::kInProgress, "an event is not reached yet");  // an answer, not worth a log
                                                                      // line
  }
  return std::chrono::duration<float, std::milli>(to->at() - from->at()).count();
}

}  // namespace tutti::device::host
