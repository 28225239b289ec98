// Asking virtual communicators (include/tutti/virtual.h).
#include <tutti/virtual.h>

#include "api/abi.h"

using tutti::Status;
using tutti::api::abiCommCall;
using tutti::api::checkPointer;

TUTTI_EXPORT ncclResult_t pncclTuttiCommVirtualTime(ncclComm_t comm, double* microseconds) {
  return abiCommCall("ncclTuttiCommVirtualTime", comm, [&](auto& communicator) -> Status {
    TUTTI_TRY(checkPointer(microseconds, "microseconds"));
    TUTTI_TRY(communicator->checkReady());
    tutti::launch::VirtualLauncher* launcher = communicator->virtualLauncher();
    if (launcher == nullptr)
      return tutti::invalidUsage(
          "the communicator is not virtual: TUTTI_VIRTUAL_CLUSTER describes no cluster");
    *microseconds = launcher->spentUs();
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclTuttiCommVirtualTime);
