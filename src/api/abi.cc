#include "api/abi.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

#include "api/last_error.h"
#include "comm/process.h"
#include "group/group.h"

namespace tutti::api {

ncclResult_t finishFailed(std::string_view function, const Status& status,
                          comm::Communicator* communicator) {
  if (status.code() != Code::kInProgress) {
    setThreadError(function, status.message());
    if (communicator != nullptr) communicator->setLastError(threadError());
    group::Group::current().noteError(status);
  }
  return static_cast<ncclResult_t>(status.code());
}

CallNote noteOfHandle(const ncclComm_t handle) {
  const Pin pin = pinCommunicator(handle);
  return noteOf(pin ? &*pin : nullptr);
}

Status refuseHandle(const ncclComm_t handle) {
  if (handle == nullptr) return invalidArgument("comm is NULL: it was never initialised");
  TUTTI_TRY(comm::Process::get().checkNotForked());
  return invalidArgument(
      "comm {} is not a communicator of this process: it was destroyed or aborted, or never made",
      static_cast<const void*>(handle));
}

Result<std::shared_ptr<comm::Communicator>> findCommunicator(const ncclComm_t handle) {
  const Pin pin = pinCommunicator(handle);
  if (!pin) return refuseHandle(handle);
  return pin.share();
}

Status checkPointer(const void* pointer, std::string_view name) {
  if (pointer != nullptr) return {};
  return invalidArgument("{} is NULL", name);
}

namespace {

Status thrownError() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Status::outOfMemory();
  } catch (const std::exception& error) {
    return internalError("unexpected exception: {}", error.what());
  } catch (...) {
    return internalError("unexpected exception");
  }
}

}  // namespace

ncclResult_t finishThrown(std::string_view function, comm::Communicator* communicator) noexcept {
  const Status error = thrownError();
  try {
    return finish(function, error, communicator);
  } catch (const std::bad_alloc&) {  // the communicator keeps no text of it
    return finish(function, error, nullptr);
  }
}

}  // namespace tutti::api
