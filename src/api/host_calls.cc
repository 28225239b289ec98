// Streams and events of CPU ranks (include/tutti/host.h).
#include <tutti/host.h>

#include "api/abi.h"
#include "comm/process.h"
#include "device/host_streams.h"

using tutti::Code;
using tutti::Status;
using tutti::api::abiCall;
using tutti::api::checkPointer;

namespace {

tutti::device::HostStreams& streams() {
  return *tutti::comm::Process::get().hostDevice().hostStreams();
}

// The threads of a forked child's streams are its parent's.
template <typename Body>
ncclResult_t streamCall(std::string_view function, Body&& body) noexcept {
  return abiCall(function, [&]() -> Status {
    TUTTI_TRY(tutti::comm::Process::get().checkNotForked());
    return body();
  });
}

Status progress(bool isDone) {
  return isDone ? Status() : Status(Code::kInProgress, "work is not done yet");
}

}  // namespace

TUTTI_EXPORT ncclResult_t pncclTuttiStreamCreate(cudaStream_t* stream) {
  return streamCall("ncclTuttiStreamCreate", [&]() -> Status {
    TUTTI_TRY(checkPointer(stream, "stream"));
    TUTTI_TRY_ASSIGN(void* made, streams().createStream());
    *stream = static_cast<cudaStream_t>(made);
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclTuttiStreamCreate);

TUTTI_EXPORT ncclResult_t pncclTuttiStreamDestroy(cudaStream_t stream) {
  return streamCall("ncclTuttiStreamDestroy", [&] { return streams().destroyStream(stream); });
}
TUTTI_WEAK_TWIN(ncclTuttiStreamDestroy);

TUTTI_EXPORT ncclResult_t pncclTuttiStreamSynchronize(cudaStream_t stream) {
  return streamCall("ncclTuttiStreamSynchronize",
                    [&] { return streams().synchronizeStream(stream); });
}
TUTTI_WEAK_TWIN(ncclTuttiStreamSynchronize);

TUTTI_EXPORT ncclResult_t pncclTuttiStreamQuery(cudaStream_t stream) {
  return streamCall("ncclTuttiStreamQuery", [&]() -> Status {
    TUTTI_TRY_ASSIGN(const bool isDone, streams().isStreamDone(stream));
    return progress(isDone);
  });
}
TUTTI_WEAK_TWIN(ncclTuttiStreamQuery);

TUTTI_EXPORT ncclResult_t pncclTuttiLaunchHostFunc(cudaStream_t stream, void (*function)(void*),
                                                   void* argument) {
  return streamCall("ncclTuttiLaunchHostFunc", [&]() -> Status {
    if (function == nullptr) return tutti::invalidArgument("function is NULL");
    return streams().launchHostFunction(stream, function, argument);
  });
}
TUTTI_WEAK_TWIN(ncclTuttiLaunchHostFunc);

TUTTI_EXPORT ncclResult_t pncclTuttiEventCreate(ncclTuttiEvent_t* event) {
  return streamCall("ncclTuttiEventCreate", [&]() -> Status {
    TUTTI_TRY(checkPointer(event, "event"));
    TUTTI_TRY_ASSIGN(void* made, streams().createEvent());
    *event = static_cast<ncclTuttiEvent_t>(made);
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclTuttiEventCreate);

TUTTI_EXPORT ncclResult_t pncclTuttiEventDestroy(ncclTuttiEvent_t event) {
  return streamCall("ncclTuttiEventDestroy", [&] { return streams().destroyEvent(event); });
}
TUTTI_WEAK_TWIN(ncclTuttiEventDestroy);

TUTTI_EXPORT ncclResult_t pncclTuttiEventRecord(ncclTuttiEvent_t event, cudaStream_t stream) {
  return streamCall("ncclTuttiEventRecord", [&] { return streams().recordEvent(event, stream); });
}
TUTTI_WEAK_TWIN(ncclTuttiEventRecord);

TUTTI_EXPORT ncclResult_t pncclTuttiStreamWaitEvent(cudaStream_t stream, ncclTuttiEvent_t event) {
  return streamCall("ncclTuttiStreamWaitEvent", [&] { return streams().waitEvent(stream, event); });
}
TUTTI_WEAK_TWIN(ncclTuttiStreamWaitEvent);

TUTTI_EXPORT ncclResult_t pncclTuttiEventSynchronize(ncclTuttiEvent_t event) {
  return streamCall("ncclTuttiEventSynchronize", [&] { return streams().synchronizeEvent(event); });
}
TUTTI_WEAK_TWIN(ncclTuttiEventSynchronize);

TUTTI_EXPORT ncclResult_t pncclTuttiEventQuery(ncclTuttiEvent_t event) {
  return streamCall("ncclTuttiEventQuery", [&]() -> Status {
    TUTTI_TRY_ASSIGN(const bool isDone, streams().isEventDone(event));
    return progress(isDone);
  });
}
TUTTI_WEAK_TWIN(ncclTuttiEventQuery);

TUTTI_EXPORT ncclResult_t pncclTuttiEventElapsedTime(float* milliseconds, ncclTuttiEvent_t start,
                                                     ncclTuttiEvent_t end) {
  return streamCall("ncclTuttiEventElapsedTime", [&]() -> Status {
    TUTTI_TRY(checkPointer(milliseconds, "milliseconds"));
    TUTTI_TRY_ASSIGN(*milliseconds, streams().elapsedMilliseconds(start, end));
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclTuttiEventElapsedTime);
