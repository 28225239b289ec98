// Streams and events.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "fakes/cuda/entry.h"
#include "fakes/cuda/stream.h"
#include "wire/gpu_staging.h"

namespace fakes::cuda {
namespace {

// A moment in a stream's work.
struct Moment {
  std::mutex mutex;
  std::condition_variable reached;
  bool isReached = false;

  void reach() {
    const std::lock_guard lock(mutex);
    isReached = true;
    reached.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    reached.wait(lock, [this] { return isReached; });
  }
  bool test() {
    const std::lock_guard lock(mutex);
    return isReached;
  }
};

struct Event {
  std::mutex mutex;
  std::shared_ptr<Moment> latest;
};

Event& eventOf(void* handle) { return *static_cast<Event*>(handle); }

std::atomic_ref<uint32_t> wordAt(Pointer address) {
  return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(address));
}

}  // namespace

Stream& streamOf(void* handle) {
  static auto* legacy = new Stream;
  return handle == nullptr ? *legacy : *static_cast<Stream*>(handle);
}

Work waitFor(void* event) {
  const std::lock_guard lock(eventOf(event).mutex);
  const auto moment = eventOf(event).latest;
  if (moment == nullptr) return {};
  return [moment] { moment->wait(); };
}
Work recordOf(void* event) {
  auto moment = std::make_shared<Moment>();
  const std::lock_guard lock(eventOf(event).mutex);
  eventOf(event).latest = moment;
  return [moment] { moment->reach(); };
}

FAKE_CUDA cuStreamCreate(void** stream, unsigned) {
  FAKE_CUDA_ENTER;
  *stream = new Stream;
  ++alive;
  return kSuccess;
}
FAKE_CUDA cuStreamCreateWithPriority(void** stream, unsigned flags, int) {
  FAKE_CUDA_ENTER;
  return cuStreamCreate(stream, flags);
}
FAKE_CUDA cuStreamDestroy_v2(void* stream) {
  --alive;
  {
    const std::lock_guard lock(captures().mutex);
    captures().streams.erase(static_cast<Stream*>(stream));
  }
  delete static_cast<Stream*>(stream);
  return kSuccess;
}
FAKE_CUDA cuStreamGetId(void* stream, unsigned long long* id) {
  FAKE_CUDA_ENTER;
  *id = streamOf(stream).id;
  return kSuccess;
}
FAKE_CUDA cuStreamSynchronize(void* stream) {
  if (streamOf(stream).breakCapture() || enterUnsafe() != kSuccess) return kCaptureForbids;
  auto moment = std::make_shared<Moment>();
  streamOf(stream).put([moment] { moment->reach(); });
  moment->wait();
  return enter(__func__);  // errors come with the end
}
FAKE_CUDA cuMemcpyAsync(Pointer to, Pointer from, size_t bytes, void* stream) {
  FAKE_CUDA_ENTER;
  return streamOf(stream).put([=] {
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  });
}
FAKE_CUDA cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, void* stream) {
  FAKE_CUDA_ENTER;
  return streamOf(stream).put([=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
}
FAKE_CUDA cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
  FAKE_CUDA_ENTER;
  return streamOf(stream).put([=] { function(argument); });
}
FAKE_CUDA cuStreamWaitValue32_v2(void* stream, Pointer word, unsigned value, unsigned) {
  FAKE_CUDA_ENTER;
  return streamOf(stream).put([=] {
    while (!tutti::wire::hasReached(wordAt(word).load(std::memory_order_acquire), value))
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  });
}
FAKE_CUDA cuStreamWriteValue32_v2(void* stream, Pointer word, unsigned value, unsigned) {
  FAKE_CUDA_ENTER;
  return streamOf(stream).put([=] { wordAt(word).store(value, std::memory_order_release); });
}

FAKE_CUDA cuEventCreate(void** event, unsigned) {
  FAKE_CUDA_ENTER;
  *event = new Event;
  ++alive;
  return kSuccess;
}
FAKE_CUDA cuEventDestroy_v2(void* event) {
  --alive;
  delete static_cast<Event*>(event);
  return kSuccess;
}
FAKE_CUDA cuEventRecord(void* event, void* stream) {
  FAKE_CUDA_ENTER;
  auto moment = std::make_shared<Moment>();
  const int result = streamOf(stream).put([moment] { moment->reach(); });
  const std::lock_guard lock(eventOf(event).mutex);
  if (result == kSuccess) eventOf(event).latest = moment;
  return result;
}
FAKE_CUDA cuStreamWaitEvent(void* stream, void* event, unsigned) {
  FAKE_CUDA_ENTER;
  Work wait = waitFor(event);
  return wait ? streamOf(stream).put(std::move(wait)) : kSuccess;
}
FAKE_CUDA cuEventQuery(void* event) {
  FAKE_CUDA_ENTER_UNSAFE;
  const std::lock_guard lock(eventOf(event).mutex);
  return eventOf(event).latest == nullptr || eventOf(event).latest->test() ? kSuccess : kNotReady;
}
FAKE_CUDA cuEventSynchronize(void* event) {
  FAKE_CUDA_ENTER;
  std::shared_ptr<Moment> moment;
  {
    const std::lock_guard lock(eventOf(event).mutex);
    moment = eventOf(event).latest;
  }
  if (moment != nullptr) moment->wait();
  return kSuccess;
}

}  // namespace fakes::cuda
