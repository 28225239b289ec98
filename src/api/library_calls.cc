// Versions, texts, groups, memory, run-time reductions.
#include <nccl.h>

#include <cstring>
#include <optional>

#include "api/abi.h"
#include "api/last_error.h"
#include "base/version.h"
#include "comm/process.h"
#include "group/group.h"

using tutti::DataType;
using tutti::Status;
using tutti::api::abiCall;
using tutti::api::abiCommCall;
using tutti::api::checkPointer;
using tutti::comm::Process;
using tutti::group::Group;

TUTTI_EXPORT ncclResult_t pncclGetVersion(int* version) {
  return abiCall("ncclGetVersion", [&]() -> Status {
    TUTTI_TRY(checkPointer(version, "version"));
    *version = tutti::kInterfaceVersionCode;
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclGetVersion);

// NCCL's words: programs compare them.
TUTTI_EXPORT const char* pncclGetErrorString(ncclResult_t result) {
  switch (tutti::api::rawValue(result)) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: break;  // any number may come
  }
  return "unknown result code";
}
TUTTI_WEAK_TWIN(ncclGetErrorString);

TUTTI_EXPORT const char* pncclGetLastError(ncclComm_t comm) {
  if (comm != nullptr) {
    if (auto pin = Process::get().communicators().pin(comm)) {
      if (const std::string text = pin->lastError(); !text.empty())
        tutti::api::setThreadErrorText(text);
    }
  }
  return tutti::api::threadError();
}
TUTTI_WEAK_TWIN(ncclGetLastError);

// Settings are read once a process.
TUTTI_EXPORT void pncclResetDebugInit() {}
extern "C" __attribute__((weak, alias("pncclResetDebugInit"), visibility("default"))) void
ncclResetDebugInit();
TUTTI_EXPORT void ncclResetDebugInitInternal() {}

TUTTI_EXPORT ncclResult_t pncclGroupStart() {
  return abiCall("ncclGroupStart", [] {
    Group::current().start();
    return Status();
  });
}
TUTTI_WEAK_TWIN(ncclGroupStart);

TUTTI_EXPORT ncclResult_t pncclGroupEnd() {
  return abiCall("ncclGroupEnd", [] { return Group::current().end(); });
}
TUTTI_WEAK_TWIN(ncclGroupEnd);

TUTTI_EXPORT ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo) {
  return abiCall("ncclGroupSimulateEnd", [&]() -> Status {
    TUTTI_TRY_ASSIGN(const std::optional<double> us, Group::current().simulateEnd());
    if (!us || simInfo == nullptr) return {};  // NULL asks for nothing but the end
    constexpr unsigned kMagic = 0x74685283;    // of NCCL_SIM_INFO_INITIALIZER
    if (simInfo->magic != kMagic || simInfo->size < sizeof(ncclSimInfo_t))
      return tutti::invalidArgument(
          "simInfo has magic {:#x} and size {}; wanted {:#x} and at least {}, as "
          "NCCL_SIM_INFO_INITIALIZER makes it",
          simInfo->magic, simInfo->size, kMagic, sizeof(ncclSimInfo_t));
    simInfo->estimatedTime = static_cast<float>(*us);
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclGroupSimulateEnd);

TUTTI_EXPORT ncclResult_t pncclMemAlloc(void** ptr, size_t size) {
  const auto note = [&] { return tutti::api::noteOfBytes(size); };
  return abiCall("ncclMemAlloc", note, [&]() -> Status {
    TUTTI_TRY(checkPointer(ptr, "ptr"));
    if (size == 0) return tutti::invalidArgument("size is 0");
    TUTTI_TRY(Process::get().checkNotForked());
    TUTTI_TRY_ASSIGN(tutti::device::Device * device, Process::get().chooseDevice());
    TUTTI_TRY_ASSIGN(*ptr, device->allocate(size));
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclMemAlloc);

TUTTI_EXPORT ncclResult_t pncclMemFree(void* ptr) {
  return abiCall("ncclMemFree", [&]() -> Status {
    if (ptr == nullptr) return {};
    TUTTI_TRY(Process::get().checkNotForked());
    return Process::get().freeMemory(ptr);
  });
}
TUTTI_WEAK_TWIN(ncclMemFree);

TUTTI_EXPORT ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar,
                                                    ncclDataType_t datatype,
                                                    ncclScalarResidence_t residence,
                                                    ncclComm_t comm) {
  return abiCommCall("ncclRedOpCreatePreMulSum", comm, [&](const auto& communicator) -> Status {
    TUTTI_TRY(checkPointer(op, "op"));
    TUTTI_TRY(checkPointer(scalar, "scalar"));
    const auto type = tutti::api::rawValue(datatype);
    if (type < 0 || type >= tutti::kDataTypeCount)
      return tutti::invalidArgument("datatype is {}", type);
    const int where = tutti::api::rawValue(residence);
    if (where != ncclScalarDevice && where != ncclScalarHostImmediate) {
      return tutti::invalidArgument(
          "residence is {}; it must be ncclScalarDevice or ncclScalarHostImmediate",
          tutti::api::rawValue(residence));
    }
    tutti::comm::UserOp made{.type = static_cast<DataType>(type)};
    if (where == ncclScalarHostImmediate) {
      std::memcpy(made.scalar.bytes, scalar, tutti::sizeOf(made.type));
    } else {
      made.scalarAddress = scalar;
    }
    TUTTI_TRY_ASSIGN(const int32_t number, communicator->userOps().add(made));
    *op = static_cast<ncclRedOp_t>(number);
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclRedOpCreatePreMulSum);

TUTTI_EXPORT ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return abiCommCall("ncclRedOpDestroy", comm, [&](const auto& communicator) {
    return communicator->userOps().remove(tutti::api::rawValue(op));
  });
}
TUTTI_WEAK_TWIN(ncclRedOpDestroy);
