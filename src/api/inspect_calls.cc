// Looking into a communicator (include/tutti/inspect.h).
#include <tutti/inspect.h>

#include <algorithm>
#include <cstring>

#include "api/abi.h"

using tutti::Status;
using tutti::api::abiCommCall;
using tutti::api::checkPointer;

TUTTI_EXPORT ncclResult_t pncclTuttiCommDump(ncclComm_t comm, char* text, size_t capacity,
                                             size_t* length) {
  return abiCommCall("ncclTuttiCommDump", comm, [&](auto& communicator) -> Status {
    if (capacity > 0) TUTTI_TRY(checkPointer(text, "text"));
    TUTTI_TRY_ASSIGN(const std::string description, communicator->describe());
    if (capacity > 0) {
      const size_t copied = std::min(description.size(), capacity - 1);
      std::memcpy(text, description.data(), copied);
      text[copied] = '\0';
    }
    if (length != nullptr) *length = description.size();
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclTuttiCommDump);
