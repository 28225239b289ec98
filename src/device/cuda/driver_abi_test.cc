// Our declarations of the driver's interface against its own header, where there is one.
#include <gtest/gtest.h>

#include "device/cuda/driver.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

namespace tutti::device::cuda {
namespace {

static_assert(sizeof(DeviceNumber) == sizeof(CUdevice));
static_assert(sizeof(DevicePointer) == sizeof(CUdeviceptr));
static_assert(sizeof(AllocationHandle) == sizeof(CUmemGenericAllocationHandle));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, handleTypes) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(AllocationProperties, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(offsetof(AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));

static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(LaunchShape) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchShape, sharedBytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(LaunchShape, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchShape, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchShape, attributeCount) == offsetof(CUlaunchConfig, numAttrs));
static_assert(kLaunchStartsEarly == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);

static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));
static_assert(kPointerBufferId == CU_POINTER_ATTRIBUTE_BUFFER_ID);
static_assert(kPointerHasLegacyHandle == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
static_assert(kIpcOpensPeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
static_assert(kPeerAccessIsOn == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
static_assert(kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kDeinitialized == CUDA_ERROR_DEINITIALIZED);
static_assert(kAttributeVirtualMemory == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(kAttributeMappedForDevices ==
              CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
static_assert(kRangeHandleDmaBuf == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
static_assert(kAttributeMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kAttributePosixHandles ==
              CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
static_assert(kFunctionLocalBytes == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
static_assert(kPointerMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(kPointerDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(kPointerIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(kMemoryTypeHost == CU_MEMORYTYPE_HOST);
static_assert(kMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(kHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(kHostAllocDeviceMap == CU_MEMHOSTALLOC_DEVICEMAP);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kCaptureActive == CU_STREAM_CAPTURE_STATUS_ACTIVE);
static_assert(kCaptureBroken == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
static_assert(kAddCaptureDependencies == CU_STREAM_ADD_CAPTURE_DEPENDENCIES);
static_assert(kUserObjectNoDestructorSync == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
static_assert(kGraphUserObjectMove == CU_GRAPH_USER_OBJECT_MOVE);
static_assert(kCaptureModeRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kHandlePosixFd == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(kAllocationPinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kGranularityRecommended == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);

TEST(DriverAbi, DeclarationsAreThoseOfTheHeader) { SUCCEED() << "checked when this was compiled"; }

}  // namespace
}  // namespace tutti::device::cuda
#else
TEST(DriverAbi, DeclarationsAreThoseOfTheHeader) { GTEST_SKIP() << "no cuda.h was found"; }
#endif
