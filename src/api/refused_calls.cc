// Calls of the interface that this build cannot carry out. Each checks its communicator, then
// refuses with ncclInvalidUsage and a text that says what is missing, and changes nothing.
#include <nccl.h>
#include <nccl_device.h>

#include "api/abi.h"

using tutti::Status;
using tutti::api::abiCall;
using tutti::api::abiCommCall;

namespace {

ncclResult_t refuse(const char* function, ncclComm_t comm, const char* reason) {
  return abiCommCall(function, comm,
                     [&](const auto&) -> Status { return tutti::invalidUsage("{}", reason); });
}

constexpr const char* kNoDeviceApi =
    "the device API is not offered: its structures are compiled into user kernels and belong to "
    "one implementation";

}  // namespace

TUTTI_EXPORT ncclResult_t pncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t*,
                                             ncclDevComm_t*) {
  return refuse("ncclDevCommCreate", comm, kNoDeviceApi);
}
TUTTI_WEAK_TWIN(ncclDevCommCreate);

TUTTI_EXPORT ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t*) {
  return refuse("ncclDevCommDestroy", comm, kNoDeviceApi);
}
TUTTI_WEAK_TWIN(ncclDevCommDestroy);

TUTTI_EXPORT ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam_t, int, ncclLsaBarrierHandle_t*,
                                                           ncclDevResourceRequirements_t*) {
  return abiCall("ncclLsaBarrierCreateRequirement",
                 []() -> Status { return tutti::invalidUsage("{}", kNoDeviceApi); });
}
TUTTI_WEAK_TWIN(ncclLsaBarrierCreateRequirement);

TUTTI_EXPORT ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t, int,
                                                           ncclGinBarrierHandle_t*,
                                                           ncclDevResourceRequirements_t*) {
  return refuse("ncclGinBarrierCreateRequirement", comm, kNoDeviceApi);
}
TUTTI_WEAK_TWIN(ncclGinBarrierCreateRequirement);

TUTTI_EXPORT ncclResult_t pncclLLA2ACreateRequirement(int, int, ncclLLA2AHandle_t*,
                                                      ncclDevResourceRequirements_t*) {
  return abiCall("ncclLLA2ACreateRequirement",
                 []() -> Status { return tutti::invalidUsage("{}", kNoDeviceApi); });
}
TUTTI_WEAK_TWIN(ncclLLA2ACreateRequirement);

// No slots: there is nothing to size while the requirement itself is refused.
TUTTI_EXPORT int pncclLLA2ACalcSlots(int, int) { return 0; }
TUTTI_WEAK_TWIN(ncclLLA2ACalcSlots);
