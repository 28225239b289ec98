#include "api/abi.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "api/last_error.h"
#include "comm/process.h"
#include "group/group.h"

namespace tutti::api {

ncclResult_t finish(std::string_view function, const Status& status,
                    comm::Communicator* communicator) {
  if (status.ok()) return ncclSuccess;
  if (status.code() != Code::kInProgress) {
    setThreadError(function, status.message());
    if (communicator != nullptr) communicator->setLastError(threadError());
    group::Group::current().noteError(status);
  }
  return static_cast<ncclResult_t>(status.code());
}

Result<std::shared_ptr<comm::Communicator>> findCommunicator(const ncclComm_t handle) {
  if (handle == nullptr) return invalidArgument("comm is NULL: it was never initialised");
  TUTTI_TRY(comm::Process::get().checkNotForked());
  auto pin = comm::Process::get().communicators().pin(handle);
  if (!pin) {
    return invalidArgument(
        "comm {} is not a communicator of this process: it was destroyed or aborted, or never made",
        static_cast<const void*>(handle));
  }
  return pin.share();
}

Status checkPointer(const void* pointer, std::string_view name) {
  if (pointer != nullptr) return {};
  return invalidArgument("{} is NULL", name);
}

Status noMemory() { return makeError(Code::kSystemError, "out of memory"); }

Status unexpected(const char* what) { return internalError("unexpected exception: {}", what); }

}  // namespace tutti::api
