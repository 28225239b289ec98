// Streams and events of CPU ranks: what the CUDA runtime gives to GPU ranks.
#pragma once

#include "base/status.h"

namespace tutti::device {

// Handles are opaque, and checked against a table: a null, destroyed or foreign one is
// kInvalidArgument, never a crash. As a stream, nullptr (or CUDA's legacy and per-thread constants)
// is the calling thread: work on it is done when the call returns. Thread-safe, except that nothing
// may be enqueued on a stream while it is being destroyed.
class HostStreams {
 public:
  virtual Result<void*> createStream() = 0;
  // Waits for all work enqueued before. kInvalidUsage from the stream's own host function.
  virtual Status destroyStream(void* stream) = 0;
  // Returns when all work enqueued before the call is done. kInvalidUsage from the stream's own
  // host function.
  virtual Status synchronizeStream(void* stream) = 0;
  virtual Result<bool> isStreamDone(void* stream) = 0;
  // Calls function(argument) in stream order, on the stream's thread. It may take its time and call
  // the library; only waiting for its own stream is refused.
  virtual Status launchHostFunction(void* stream, void (*function)(void*), void* argument) = 0;

  virtual Result<void*> createEvent() = 0;
  // Pending records and waits go on undisturbed.
  virtual Status destroyEvent(void* event) = 0;
  // The event is reached when all work enqueued on the stream before is done. Replaces an earlier
  // record: waits that were made before keep waiting for the earlier one.
  virtual Status recordEvent(void* event, void* stream) = 0;
  // Later work of the stream starts after the event's latest record was reached. At once for an
  // event never recorded.
  virtual Status waitEvent(void* stream, void* event) = 0;
  virtual Status synchronizeEvent(void* event) = 0;
  virtual Result<bool> isEventDone(void* event) = 0;  // true also for an event never recorded
  // kInvalidArgument when one was never recorded, kInProgress (not logged) when one is not reached
  // yet.
  virtual Result<float> elapsedMilliseconds(void* start, void* end) = 0;

 protected:
  ~HostStreams() = default;
};

}  // namespace tutti::device
