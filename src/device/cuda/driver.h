// The part of the CUDA driver interface that the library uses, as a table of functions filled by
// dlopen: the library loads, and runs CPU ranks, on machines without CUDA, and a test fills the
// table with functions of its own.
//
// The declarations are written out here, so that this folder compiles without a CUDA toolkit;
// driver_abi_test.cc holds them against cuda.h where there is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace tutti::device::cuda {

using DriverResult = int;
using DeviceNumber = int;
using DevicePointer = unsigned long long;
using AllocationHandle = unsigned long long;
struct ContextTag;
using Context = ContextTag*;
struct ModuleTag;
using Module = ModuleTag*;
struct FunctionTag;
using Function = FunctionTag*;
struct StreamTag;
using StreamHandle = StreamTag*;
struct EventTag;
using EventHandle = EventTag*;
struct GraphTag;
using Graph = GraphTag*;
struct GraphNodeTag;
using GraphNode = GraphNodeTag*;
struct UserObjectTag;
using UserObject = UserObjectTag*;

inline constexpr DriverResult kSuccess = 0;
inline constexpr DriverResult kNotReady = 600;
inline constexpr DriverResult kDeinitialized = 4;  // the process is ending
inline constexpr DriverResult kPeerAccessIsOn = 704;

inline constexpr int kAttributeMultiprocessors = 16;
inline constexpr int kAttributeComputeMajor = 75;
inline constexpr int kAttributeComputeMinor = 76;
inline constexpr int kAttributeSharedBytes = 97;  // of a block that asks for them
inline constexpr int kAttributeVirtualMemory = 102;
inline constexpr int kAttributePosixHandles = 103;
inline constexpr int kFunctionLocalBytes = 3;
inline constexpr int kFunctionSharedBytes = 8;  // the most that a launch may ask for
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr int kPointerIsManaged = 8;
inline constexpr int kPointerBufferId = 7;
inline constexpr int kPointerHasLegacyHandle = 10;  // cuIpcGetMemHandle takes it
inline constexpr unsigned kIpcOpensPeerAccess = 1;
inline constexpr unsigned kMemoryTypeHost = 1;
inline constexpr unsigned kMemoryTypeDevice = 2;
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kHostAllocDeviceMap = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr int kCaptureNone = 0;
inline constexpr int kCaptureActive = 1;
inline constexpr int kCaptureBroken = 2;
inline constexpr int kCaptureModeRelaxed = 2;
inline constexpr unsigned kAddCaptureDependencies = 0;
inline constexpr unsigned kUserObjectNoDestructorSync = 1;
inline constexpr unsigned kGraphUserObjectMove = 1;
inline constexpr int kLocationDevice = 1;
inline constexpr int kHandlePosixFd = 1;
inline constexpr int kAllocationPinned = 1;
inline constexpr int kAccessReadWrite = 3;
inline constexpr int kGranularityRecommended = 1;
inline constexpr unsigned kWaitValueReached = 0;
inline constexpr int kAttributeMappedForDevices = 110;  // cuMemCreate's memory, for RDMA
inline constexpr int kRangeHandleDmaBuf = 1;
inline constexpr int kPeerHasAtomics = 3;
inline constexpr int kMostUrgent = -1000;     // the driver takes the highest priority that there is
inline constexpr int kLaunchStartsEarly = 6;  // programmatic stream serialization

struct MemoryLocation {
  int type = kLocationDevice;
  int id = 0;
};
struct AllocationProperties {
  int type = kAllocationPinned;
  int handleTypes = kHandlePosixFd;
  MemoryLocation location;
  void* win32 = nullptr;
  struct {
    unsigned char compression = 0;
    unsigned char rdmaCapable = 0;
    unsigned short usage = 0;
    unsigned char reserved[4] = {};
  } flags;
};
struct IpcHandle {
  unsigned char bytes[64];
};
// One attribute of a launch; its value has 64 bytes, of which ours take four.
struct LaunchAttribute {
  int id = 0;
  int padding = 0;
  int value[16] = {};
};
struct LaunchShape {
  unsigned gridX = 1, gridY = 1, gridZ = 1;
  unsigned blockX = 1, blockY = 1, blockZ = 1;
  unsigned sharedBytes = 0;
  StreamHandle stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attributeCount = 0;
};
struct AccessDescription {
  MemoryLocation location;
  int flags = kAccessReadWrite;
};

// One line a function: the member's name, the driver's name, the parameters. The driver keeps old
// names for good, so the versions named here are those with these parameters.
#define TUTTI_CUDA_FUNCTIONS(X)                                                                   \
  X(init, cuInit, (unsigned))                                                                     \
  X(driverVersion, cuDriverGetVersion, (int*))                                                    \
  X(errorName, cuGetErrorName, (DriverResult, const char**))                                      \
  X(deviceCount, cuDeviceGetCount, (int*))                                                        \
  X(deviceGet, cuDeviceGet, (DeviceNumber*, int))                                                 \
  X(deviceName, cuDeviceGetName, (char*, int, DeviceNumber))                                      \
  X(deviceAttribute, cuDeviceGetAttribute, (int*, int, DeviceNumber))                             \
  X(devicePciBusId, cuDeviceGetPCIBusId, (char*, int, DeviceNumber))                              \
  X(deviceByBusId, cuDeviceGetByPCIBusId, (DeviceNumber*, const char*))                           \
  X(canAccessPeer, cuDeviceCanAccessPeer, (int*, DeviceNumber, DeviceNumber))                     \
  X(peerAttribute, cuDeviceGetP2PAttribute, (int*, int, DeviceNumber, DeviceNumber))              \
  X(primaryRetain, cuDevicePrimaryCtxRetain, (Context*, DeviceNumber))                            \
  X(contextGet, cuCtxGetCurrent, (Context*))                                                      \
  X(contextDevice, cuCtxGetDevice, (DeviceNumber*))                                               \
  X(contextPush, cuCtxPushCurrent_v2, (Context))                                                  \
  X(contextPop, cuCtxPopCurrent_v2, (Context*))                                                   \
  X(moduleLoad, cuModuleLoadData, (Module*, const void*))                                         \
  X(moduleFunction, cuModuleGetFunction, (Function*, Module, const char*))                        \
  X(functionAttribute, cuFuncGetAttribute, (int*, int, Function))                                 \
  X(setFunctionAttribute, cuFuncSetAttribute, (Function, int, int))                               \
  X(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int*, Function, int, size_t))        \
  X(launchKernel, cuLaunchKernelEx, (const LaunchShape*, Function, void**, void**))               \
  X(hostAlloc, cuMemHostAlloc, (void**, size_t, unsigned))                                        \
  X(hostFree, cuMemFreeHost, (void*))                                                             \
  X(hostDevicePointer, cuMemHostGetDevicePointer_v2, (DevicePointer*, void*, unsigned))           \
  X(pointerAttribute, cuPointerGetAttribute, (void*, int, DevicePointer))                         \
  X(addressRange, cuMemGetAddressRange_v2, (DevicePointer*, size_t*, DevicePointer))              \
  X(peerAccess, cuCtxEnablePeerAccess, (Context, unsigned))                                       \
  X(ipcGet, cuIpcGetMemHandle, (IpcHandle*, DevicePointer))                                       \
  X(ipcOpen, cuIpcOpenMemHandle_v2, (DevicePointer*, IpcHandle, unsigned))                        \
  X(ipcClose, cuIpcCloseMemHandle, (DevicePointer))                                               \
  X(memoryRetain, cuMemRetainAllocationHandle, (AllocationHandle*, void*))                        \
  X(granularity, cuMemGetAllocationGranularity, (size_t*, const AllocationProperties*, int))      \
  X(memoryCreate, cuMemCreate,                                                                    \
    (AllocationHandle*, size_t, const AllocationProperties*, unsigned long long))                 \
  X(memoryRelease, cuMemRelease, (AllocationHandle))                                              \
  X(addressReserve, cuMemAddressReserve,                                                          \
    (DevicePointer*, size_t, size_t, DevicePointer, unsigned long long))                          \
  X(addressFree, cuMemAddressFree, (DevicePointer, size_t))                                       \
  X(memoryMap, cuMemMap, (DevicePointer, size_t, size_t, AllocationHandle, unsigned long long))   \
  X(memoryUnmap, cuMemUnmap, (DevicePointer, size_t))                                             \
  X(memorySetAccess, cuMemSetAccess, (DevicePointer, size_t, const AccessDescription*, size_t))   \
  X(memoryExport, cuMemExportToShareableHandle,                                                   \
    (void*, AllocationHandle, int, unsigned long long))                                           \
  X(rangeHandle, cuMemGetHandleForAddressRange,                                                   \
    (void*, DevicePointer, size_t, int, unsigned long long))                                      \
  X(memoryImport, cuMemImportFromShareableHandle, (AllocationHandle*, void*, int))                \
  X(copyAsync, cuMemcpyAsync, (DevicePointer, DevicePointer, size_t, StreamHandle))               \
  X(fillAsync, cuMemsetD8Async, (DevicePointer, unsigned char, size_t, StreamHandle))             \
  X(streamCreate, cuStreamCreate, (StreamHandle*, unsigned))                                      \
  X(streamCreateWithPriority, cuStreamCreateWithPriority, (StreamHandle*, unsigned, int))         \
  X(streamDestroy, cuStreamDestroy_v2, (StreamHandle))                                            \
  X(streamSynchronize, cuStreamSynchronize, (StreamHandle))                                       \
  X(streamId, cuStreamGetId, (StreamHandle, unsigned long long*))                                 \
  X(streamWaitEvent, cuStreamWaitEvent, (StreamHandle, EventHandle, unsigned))                    \
  X(hostFunction, cuLaunchHostFunc, (StreamHandle, void (*)(void*), void*))                       \
  X(streamWaitValue, cuStreamWaitValue32_v2, (StreamHandle, DevicePointer, unsigned, unsigned))   \
  X(streamWriteValue, cuStreamWriteValue32_v2, (StreamHandle, DevicePointer, unsigned, unsigned)) \
  X(streamCaptureInfo, cuStreamGetCaptureInfo_v2,                                                 \
    (StreamHandle, int*, unsigned long long*, Graph*, const GraphNode**, size_t*))                \
  X(updateCapture, cuStreamUpdateCaptureDependencies,                                             \
    (StreamHandle, GraphNode*, size_t, unsigned))                                                 \
  X(exchangeCaptureMode, cuThreadExchangeStreamCaptureMode, (int*))                               \
  X(eventCreate, cuEventCreate, (EventHandle*, unsigned))                                         \
  X(eventDestroy, cuEventDestroy_v2, (EventHandle))                                               \
  X(eventRecord, cuEventRecord, (EventHandle, StreamHandle))                                      \
  X(eventQuery, cuEventQuery, (EventHandle))                                                      \
  X(eventSynchronize, cuEventSynchronize, (EventHandle))                                          \
  X(graphAddWait, cuGraphAddEventWaitNode,                                                        \
    (GraphNode*, Graph, const GraphNode*, size_t, EventHandle))                                   \
  X(graphAddRecord, cuGraphAddEventRecordNode,                                                    \
    (GraphNode*, Graph, const GraphNode*, size_t, EventHandle))                                   \
  X(graphAddEdges, cuGraphAddDependencies, (Graph, const GraphNode*, const GraphNode*, size_t))   \
  X(graphRemoveEdges, cuGraphRemoveDependencies,                                                  \
    (Graph, const GraphNode*, const GraphNode*, size_t))                                          \
  X(graphRetain, cuGraphRetainUserObject, (Graph, UserObject, unsigned, unsigned))                \
  X(userObjectCreate, cuUserObjectCreate,                                                         \
    (UserObject*, void*, void (*)(void*), unsigned, unsigned))                                    \
  X(userObjectRelease, cuUserObjectRelease, (UserObject, unsigned))

struct Driver {
#define TUTTI_CUDA_MEMBER(member, symbol, parameters) DriverResult(*member) parameters = nullptr;
  TUTTI_CUDA_FUNCTIONS(TUTTI_CUDA_MEMBER)
#undef TUTTI_CUDA_MEMBER

  // Ok, or an error that names the call, what it was for and the driver's name for the reason.
  Status check(DriverResult result, std::string_view call, std::string_view what = {}) const;
};

// Opens libcuda.so.1 and initialises the driver. The error says what is missing; it is not logged,
// since most machines without a GPU are meant to have none.
Result<Driver> loadDriver();

}  // namespace tutti::device::cuda
