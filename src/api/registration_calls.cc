// Registration of buffers and windows.
#include <nccl.h>

#include <cstdint>

#include "api/abi.h"

using tutti::Status;
using tutti::api::abiCommCall;
using tutti::api::checkPointer;
using tutti::comm::Registrations;

namespace {

Status checkWindow(const void* buffer, size_t size, int flags) {
  TUTTI_TRY(checkPointer(buffer, "buff"));
  if (size == 0) return tutti::invalidArgument("size is 0; a window has at least 1 byte");
  if (reinterpret_cast<uintptr_t>(buffer) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    return tutti::invalidArgument("buff {} is not aligned to {} bytes, as ncclMemAlloc would do it",
                                  buffer, NCCL_WIN_REQUIRED_ALIGNMENT);
  }
  if (flags == NCCL_WIN_DEFAULT || flags == NCCL_WIN_COLL_SYMMETRIC) return {};
  return tutti::invalidArgument("winFlags is {}; it must be {} or {}", flags, NCCL_WIN_DEFAULT,
                                NCCL_WIN_COLL_SYMMETRIC);
}

}  // namespace

TUTTI_EXPORT ncclResult_t pncclCommRegister(const ncclComm_t comm, void* buff, size_t size,
                                            void** handle) {
  return abiCommCall("ncclCommRegister", comm, [&](const auto& communicator) -> Status {
    TUTTI_TRY(checkPointer(handle, "handle"));
    TUTTI_TRY(communicator->checkReady());
    TUTTI_TRY_ASSIGN(*handle, communicator->addBuffer(buff, size));
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclCommRegister);

// Also after an error of the communicator: the buffer is about to be freed.
TUTTI_EXPORT ncclResult_t pncclCommDeregister(const ncclComm_t comm, void* handle) {
  return abiCommCall("ncclCommDeregister", comm, [&](const auto& communicator) {
    return communicator->removeBuffer(Registrations::Kind::kBuffer, handle);
  });
}
TUTTI_WEAK_TWIN(ncclCommDeregister);

TUTTI_EXPORT ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size,
                                                  ncclWindow_t* win, int winFlags) {
  return abiCommCall("ncclCommWindowRegister", comm, [&](const auto& communicator) -> Status {
    TUTTI_TRY(checkPointer(win, "win"));
    TUTTI_TRY(checkWindow(buff, size, winFlags));
    TUTTI_TRY(communicator->checkReady());
    TUTTI_TRY_ASSIGN(void* handle,
                     communicator->addWindow(buff, size, winFlags == NCCL_WIN_COLL_SYMMETRIC));
    *win = static_cast<ncclWindow_t>(handle);
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclCommWindowRegister);

// NULL, which registering may give, ends nothing and is fine.
TUTTI_EXPORT ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return abiCommCall("ncclCommWindowDeregister", comm, [&](const auto& communicator) -> Status {
    if (win == nullptr) return {};
    return communicator->removeBuffer(Registrations::Kind::kWindow, win);
  });
}
TUTTI_WEAK_TWIN(ncclCommWindowDeregister);
