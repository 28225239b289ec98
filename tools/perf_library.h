// The functions of a libnccl.so.2 that a measurement calls: of the one that the command is linked
// with, or of another file, so that two can be measured in turn by one program.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "tools/perf_options.h"

// The measurement passes pointers only; CUDA's headers would cost seconds of build time.
#ifndef TUTTI_WITHOUT_CUDA_HEADERS
#define TUTTI_WITHOUT_CUDA_HEADERS
#endif
#include "nccl.h"
#include "tutti/host.h"
#include "tutti/inspect.h"

namespace tutti::tools {

#define TUTTI_PERF_LIBRARY(X)                       \
  X(getErrorString, ncclGetErrorString)             \
  X(getLastError, ncclGetLastError)                 \
  X(getVersion, ncclGetVersion)                     \
  X(getUniqueId, ncclGetUniqueId)                   \
  X(commInitRank, ncclCommInitRank)                 \
  X(commAbort, ncclCommAbort)                       \
  X(commDestroy, ncclCommDestroy)                   \
  X(commGetAsyncError, ncclCommGetAsyncError)       \
  X(commRegister, ncclCommRegister)                 \
  X(commDeregister, ncclCommDeregister)             \
  X(memAlloc, ncclMemAlloc)                         \
  X(memFree, ncclMemFree)                           \
  X(redOpCreatePreMulSum, ncclRedOpCreatePreMulSum) \
  X(redOpDestroy, ncclRedOpDestroy)                 \
  X(groupStart, ncclGroupStart)                     \
  X(groupEnd, ncclGroupEnd)                         \
  X(allReduce, ncclAllReduce)                       \
  X(allGather, ncclAllGather)                       \
  X(reduceScatter, ncclReduceScatter)               \
  X(broadcast, ncclBroadcast)                       \
  X(reduce, ncclReduce)                             \
  X(send, ncclSend)                                 \
  X(recv, ncclRecv)

// What older libraries, or ones that are not ours, lack: null there.
#define TUTTI_PERF_LIBRARY_EXTRA(X)                 \
  X(commWindowRegister, ncclCommWindowRegister)     \
  X(commWindowDeregister, ncclCommWindowDeregister) \
  X(allToAll, ncclAlltoAll)                         \
  X(gather, ncclGather)                             \
  X(scatter, ncclScatter)                           \
  X(commDump, ncclTuttiCommDump)                    \
  X(streamCreate, ncclTuttiStreamCreate)            \
  X(streamDestroy, ncclTuttiStreamDestroy)          \
  X(streamSynchronize, ncclTuttiStreamSynchronize)

struct Library {
#define TUTTI_PERF_MEMBER(member, symbol) decltype(&::symbol) member = nullptr;
  TUTTI_PERF_LIBRARY(TUTTI_PERF_MEMBER)
  TUTTI_PERF_LIBRARY_EXTRA(TUTTI_PERF_MEMBER)
#undef TUTTI_PERF_MEMBER
  std::string path;  // empty: the linked one

  static Library linked();
  // Stays loaded to the end of the process. kSystemError when it cannot be loaded or lacks a
  // function that every measurement calls.
  static Result<Library> open(const std::string& path);

  // Success, or the library's result and its own words for it.
  Status check(const char* call, ncclResult_t result, ncclComm_t comm) const;
  // kInvalidUsage when the library lacks what these options call.
  Status checkServes(const PerfOptions& options) const;
};

}  // namespace tutti::tools
