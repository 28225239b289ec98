// Streams and events of CPU ranks as owners: part of tutti/tutti.hpp. See tutti/host.h.
#pragma once

#include <nccl.h>
#include <tutti/host.h>

#include <utility>

#include "tutti/error.hpp"

namespace tutti {
inline namespace v0 {

// Work in order, on a thread of its own. Converts to the stream argument of the operations.
class HostStream {
 public:
  HostStream() { check(ncclTuttiStreamCreate(&stream_), "ncclTuttiStreamCreate"); }
  ~HostStream() {
    if (stream_ != nullptr) (void)ncclTuttiStreamDestroy(stream_);
  }
  HostStream(HostStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  HostStream& operator=(HostStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }

  void synchronize() { check(ncclTuttiStreamSynchronize(stream_), "ncclTuttiStreamSynchronize"); }
  // Whether everything given so far is done; never waits.
  bool isDone() const { return check(ncclTuttiStreamQuery(stream_), "ncclTuttiStreamQuery"); }

  cudaStream_t get() const { return stream_; }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// A point in a host stream.
class HostEvent {
 public:
  HostEvent() { check(ncclTuttiEventCreate(&event_), "ncclTuttiEventCreate"); }
  ~HostEvent() {
    if (event_ != nullptr) (void)ncclTuttiEventDestroy(event_);
  }
  HostEvent(HostEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  HostEvent& operator=(HostEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }

  void record(const HostStream& stream) {
    check(ncclTuttiEventRecord(event_, stream), "ncclTuttiEventRecord");
  }
  // Lets the stream's later work wait until this event is reached.
  void hold(const HostStream& stream) const {
    check(ncclTuttiStreamWaitEvent(stream, event_), "ncclTuttiStreamWaitEvent");
  }
  void synchronize() const {
    check(ncclTuttiEventSynchronize(event_), "ncclTuttiEventSynchronize");
  }
  bool isReached() const { return check(ncclTuttiEventQuery(event_), "ncclTuttiEventQuery"); }
  float millisecondsSince(const HostEvent& start) const {
    float milliseconds = 0;
    if (!check(ncclTuttiEventElapsedTime(&milliseconds, start.event_, event_),
               "ncclTuttiEventElapsedTime")) {
      throw Error(ncclInvalidUsage, "the event is not reached yet: synchronize() first");
    }
    return milliseconds;
  }

  ncclTuttiEvent_t get() const { return event_; }

 private:
  ncclTuttiEvent_t event_ = nullptr;
};

}  // namespace v0
}  // namespace tutti
