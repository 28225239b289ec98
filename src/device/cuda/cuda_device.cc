#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "device/cuda/context_scope.h"
#include "device/cuda/memory.h"

namespace tutti::device::cuda {
namespace {

StreamHandle asStream(void* stream) { return static_cast<StreamHandle>(stream); }
EventHandle asEvent(Event* event) { return reinterpret_cast<EventHandle>(event); }
DevicePointer asPointer(const void* address) { return reinterpret_cast<DevicePointer>(address); }

}  // namespace

Result<int32_t> deviceCount(const Driver& driver) {
  int count = 0;
  TUTTI_TRY(driver.check(driver.deviceCount(&count), "cuDeviceGetCount"));
  return int32_t{count};
}

// A thread without a context would get device 0 from the CUDA runtime.
Result<int32_t> currentDevice(const Driver& driver) {
  Context current = nullptr;
  TUTTI_TRY(driver.check(driver.contextGet(&current), "cuCtxGetCurrent"));
  if (current == nullptr) return int32_t{0};
  DeviceNumber device = 0;
  TUTTI_TRY(driver.check(driver.contextDevice(&device), "cuCtxGetDevice"));
  TUTTI_TRY_ASSIGN(const int32_t count, deviceCount(driver));
  for (int32_t index = 0; index < count; ++index) {
    DeviceNumber candidate = 0;
    TUTTI_TRY(driver.check(driver.deviceGet(&candidate, index), "cuDeviceGet"));
    if (candidate == device) return index;
  }
  return internalError("the current CUDA context's device {} is none of the {} there are", device,
                       count);
}

Result<DeviceFacts> factsOf(const Driver& driver, int32_t index) {
  DeviceFacts facts;
  TUTTI_TRY(driver.check(driver.deviceGet(&facts.number, index), "cuDeviceGet",
                         fmt::format("device {}", index)));
  std::array<char, 128> name{};
  TUTTI_TRY(
      driver.check(driver.deviceName(name.data(), static_cast<int>(name.size()), facts.number),
                   "cuDeviceGetName"));
  facts.name = name.data();
  std::array<char, 32> busId{};
  TUTTI_TRY(driver.check(
      driver.devicePciBusId(busId.data(), static_cast<int>(busId.size()), facts.number),
      "cuDeviceGetPCIBusId"));
  facts.busId = busId.data();
  int major = 0, minor = 0;
  TUTTI_TRY(driver.check(driver.deviceAttribute(&major, kAttributeComputeMajor, facts.number),
                         "cuDeviceGetAttribute", "compute capability"));
  TUTTI_TRY(driver.check(driver.deviceAttribute(&minor, kAttributeComputeMinor, facts.number),
                         "cuDeviceGetAttribute", "compute capability"));
  facts.capability = major * 10 + minor;
  return facts;
}

CudaDevice::CudaDevice(const Driver& driver, int32_t index) : driver_(driver) {
  caps_ = {.name = "cuda", .isHost = false, .index = index};
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::open(const Driver& driver, int32_t index) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(driver, index));
  TUTTI_TRY(device->initialise());
  return device;
}

Status CudaDevice::initialise() {
  TUTTI_TRY_ASSIGN(DeviceFacts facts, factsOf(driver_, caps_.index));
  number_ = facts.number;
  name_ = std::move(facts.name);
  busId_ = std::move(facts.busId);
  const std::array<std::pair<int, const char*>, 2> needs = {{
      {kAttributeVirtualMemory, "virtual memory management"},
      {kAttributePosixHandles, "memory handles that are file descriptors"},
  }};
  for (const auto& [attribute, what] : needs) {
    int value = 0;
    TUTTI_TRY(driver_.check(driver_.deviceAttribute(&value, attribute, number_),
                            "cuDeviceGetAttribute", what));
    if (value == 0) {
      return invalidUsage("device {} ({}) has no {}: set TUTTI_DEVICE=host for CPU ranks",
                          caps_.index, name_, what);
    }
  }
  int count = 0;
  TUTTI_TRY(driver_.check(driver_.deviceAttribute(&count, kAttributeMultiprocessors, number_),
                          "cuDeviceGetAttribute", "multiprocessors"));
  multiprocessors_ = static_cast<uint32_t>(std::max(count, 1));
  capability_ = facts.capability;
  int sharedBytes = 0;
  TUTTI_TRY(driver_.check(driver_.deviceAttribute(&sharedBytes, kAttributeSharedBytes, number_),
                          "cuDeviceGetAttribute", "shared memory of a block"));
  sharedBytesPerBlock_ = static_cast<uint32_t>(std::max(sharedBytes, 0));
  TUTTI_TRY(driver_.check(driver_.primaryRetain(&context_, number_), "cuDevicePrimaryCtxRetain",
                          fmt::format("device {} ({})", caps_.index, name_)));
  const OwnCallsScope scope(driver_, context_);
  return driver_.check(
      driver_.streamCreateWithPriority(&ownStream_, kStreamNonBlocking, kMostUrgent),
      "cuStreamCreateWithPriority");
}

// The primary context stays retained: memory and events of communicators that outlive this object
// (at the end of the process) belong to it.
CudaDevice::~CudaDevice() {
  if (ownStream_ == nullptr) return;
  const OwnCallsScope scope(driver_, context_);
  driver_.streamDestroy(ownStream_);
}

// The driver has no word for it, but atomics of a peer work over NVLink alone.
bool CudaDevice::keepsLinesTo(std::string_view busId) const {
  if (busId == busId_) return true;
  DeviceNumber other = 0;
  int hasAtomics = 0;
  return driver_.deviceByBusId(&other, std::string(busId).c_str()) == kSuccess &&
         driver_.peerAttribute(&hasAtomics, kPeerHasAtomics, number_, other) == kSuccess &&
         hasAtomics != 0;
}

Status CudaDevice::makeAccessible(DeviceMemory& memory) {
  TUTTI_TRY_ASSIGN(const int32_t count, deviceCount(driver_));
  for (int32_t index = 0; index < count; ++index) {
    DeviceNumber other = 0;
    int canAccess = 0;
    TUTTI_TRY(driver_.check(driver_.deviceGet(&other, index), "cuDeviceGet"));
    if (other == number_) continue;
    TUTTI_TRY(
        driver_.check(driver_.canAccessPeer(&canAccess, other, number_), "cuDeviceCanAccessPeer"));
    if (canAccess != 0) TUTTI_TRY(allowAccess(driver_, other, memory));
  }
  return {};
}

// As ncclMemAlloc promises: usable by every device that can reach this one.
Result<void*> CudaDevice::allocate(size_t bytes) {
  const OwnCallsScope scope(driver_, context_);
  TUTTI_TRY_ASSIGN(
      auto memory,
      createMemory({.driver = driver_, .context = context_, .device = number_}, bytes));
  TUTTI_TRY(makeAccessible(*memory));
  void* address = memory->address();
  std::lock_guard lock(mutex_);
  allocations_.emplace(address, std::move(memory));
  return address;
}

Status CudaDevice::free(void* memory) {
  std::unique_ptr<DeviceMemory> freed;
  {
    std::lock_guard lock(mutex_);
    const auto found = allocations_.find(memory);
    if (found == allocations_.end()) {
      return invalidArgument("{} is no memory from ncclMemAlloc on device {}", memory, caps_.index);
    }
    freed = std::move(found->second);
    allocations_.erase(found);
  }
  freed.reset();
  kept_.dropUnused();
  return {};
}

bool CudaDevice::hasAllocated(const void* memory) {
  std::lock_guard lock(mutex_);
  return allocations_.contains(const_cast<void*>(memory));
}

Status CudaDevice::enqueue(Stream*, std::span<Task* const>) {
  return internalError("device {} runs kernels, not tasks of the host", caps_.index);
}

Result<std::unique_ptr<DeviceMemory>> CudaDevice::makeMemory(size_t bytes) {
  const OwnCallsScope scope(driver_, context_);
  TUTTI_TRY_ASSIGN(
      auto memory,
      createMemory({.driver = driver_, .context = context_, .device = number_}, bytes));
  TUTTI_TRY(
      driver_.check(driver_.fillAsync(asPointer(memory->address()), 0, memory->bytes(), ownStream_),
                    "cuMemsetD8Async"));
  TUTTI_TRY(driver_.check(driver_.streamSynchronize(ownStream_), "cuStreamSynchronize"));
  return memory;
}

Result<std::unique_ptr<DeviceMemory>> CudaDevice::importMemory(UniqueFd handle, size_t bytes) {
  const OwnCallsScope scope(driver_, context_);
  return mapMemory({.driver = driver_, .context = context_, .device = number_}, std::move(handle),
                   bytes);
}

Result<std::unique_ptr<SharedWords>> CudaDevice::makeWords(size_t bytes) {
  kept_.dropUnused();
  const OwnCallsScope scope(driver_, context_);
  return createWords({.driver = driver_, .context = context_, .device = number_}, bytes);
}

Status CudaDevice::copy(void* to, const void* from, size_t bytes) {
  const OwnCallsScope scope(driver_, context_);
  TUTTI_TRY(driver_.check(driver_.copyAsync(asPointer(to), asPointer(from), bytes, ownStream_),
                          "cuMemcpyAsync", fmt::format("{} bytes", bytes)));
  return driver_.check(driver_.streamSynchronize(ownStream_), "cuStreamSynchronize");
}

Result<UniqueFd> CudaDevice::exportForDevices(const DeviceMemory& memory) {
  const ContextScope scope(driver_, context_);
  int fd = -1;
  const DriverResult result =
      driver_.rangeHandle(&fd, asPointer(memory.address()), memory.bytes(), kRangeHandleDmaBuf, 0);
  if (result == kSuccess) return UniqueFd(fd);
  return Status(Code::kUnhandledCudaError,
                fmt::format("the driver of device {} gives no DMA buffer of its memory ({})",
                            caps_.index, result));
}

// Memory that the driver does not know is the host's own.
Result<MemoryPlace> CudaDevice::placeOf(const void* address) {
  const ContextScope scope(driver_, context_);
  unsigned type = 0;
  if (driver_.pointerAttribute(&type, kPointerMemoryType, asPointer(address)) != kSuccess)
    return MemoryPlace::kUnknownHost;
  if (type == kMemoryTypeHost) return MemoryPlace::kPinnedHost;
  unsigned isManaged = 0;
  if (driver_.pointerAttribute(&isManaged, kPointerIsManaged, asPointer(address)) == kSuccess &&
      isManaged != 0)
    return MemoryPlace::kThisDevice;
  int ordinal = 0;
  TUTTI_TRY(
      driver_.check(driver_.pointerAttribute(&ordinal, kPointerDeviceOrdinal, asPointer(address)),
                    "cuPointerGetAttribute"));
  return ordinal == caps_.index ? MemoryPlace::kThisDevice : MemoryPlace::kOtherDevice;
}

uint64_t CudaDevice::allocationId(const void* address) {
  const ContextScope scope(driver_, context_);
  unsigned long long id = 0;
  const auto result = driver_.pointerAttribute(&id, kPointerBufferId, asPointer(address));
  return result == kSuccess ? id : 0;
}

Result<Allocation> CudaDevice::allocationOf(const void* address) {
  TUTTI_TRY_ASSIGN(const MemoryPlace place, placeOf(address));
  if (place != MemoryPlace::kThisDevice)
    return Status(Code::kInvalidUsage,
                  fmt::format("{} is no memory of device {}", address, caps_.index));
  const ContextScope scope(driver_, context_);
  DevicePointer base = 0;
  Allocation allocation;
  TUTTI_TRY(driver_.check(driver_.addressRange(&base, &allocation.bytes, asPointer(address)),
                          "cuMemGetAddressRange"));
  allocation.base = reinterpret_cast<std::byte*>(base);
  allocation.id = allocationId(address);
  return allocation;
}

// cudaMalloc's memory has a handle of its own kind; other memory was perhaps made to be shared, as
// ncclMemAlloc's is.
Result<SharingHandle> CudaDevice::exportAllocation(const Allocation& allocation) {
  const OwnCallsScope scope(driver_, context_);
  SharingHandle handle;
  unsigned isLegacy = 0;
  if (driver_.pointerAttribute(&isLegacy, kPointerHasLegacyHandle, asPointer(allocation.base)) !=
      kSuccess)
    isLegacy = 0;
  if (isLegacy == 0) {
    TUTTI_TRY_ASSIGN(handle.descriptor, exportMapped(driver_, allocation.base));
    return handle;
  }
  IpcHandle legacy{};
  TUTTI_TRY(
      driver_.check(driver_.ipcGet(&legacy, asPointer(allocation.base)), "cuIpcGetMemHandle"));
  static_assert(sizeof legacy == sizeof handle.legacy);
  std::memcpy(handle.legacy.data(), legacy.bytes, sizeof legacy.bytes);
  handle.isLegacy = true;
  return handle;
}

Result<std::unique_ptr<DeviceMemory>> CudaDevice::importLegacy(
    const std::array<std::byte, 64>& handle, size_t bytes) {
  const OwnCallsScope scope(driver_, context_);
  IpcHandle legacy{};
  std::memcpy(legacy.bytes, handle.data(), sizeof legacy.bytes);
  return openLegacy({.driver = driver_, .context = context_, .device = number_}, legacy, bytes);
}

Status CudaDevice::reachDevice(int32_t index) {
  if (index == caps_.index) return {};
  DeviceNumber other = 0;
  Context theirs = nullptr;
  TUTTI_TRY(driver_.check(driver_.deviceGet(&other, index), "cuDeviceGet"));
  // Kept, as every device's of which memory is used.
  TUTTI_TRY(driver_.check(driver_.primaryRetain(&theirs, other), "cuDevicePrimaryCtxRetain"));
  const OwnCallsScope scope(driver_, context_);
  const DriverResult result = driver_.peerAccess(theirs, 0);
  if (result == kPeerAccessIsOn) return {};
  return driver_.check(result, "cuCtxEnablePeerAccess",
                       fmt::format("device {} of device {}", index, caps_.index));
}

// One load for all ranks of this process on the device. Asking for an attribute makes the driver
// load the function now, where it would otherwise do so at the first launch: loading may wait for
// running kernels, and one of those may wait for a rank that would load.
Result<const Kernel*> CudaDevice::findKernel(std::span<const unsigned char> image, const char* name,
                                             uint32_t sharedBytes) {
  if (image.empty()) {
    return invalidUsage("this build holds no {} for GPUs: it was made without a CUDA compiler",
                        name);
  }
  std::lock_guard lock(mutex_);
  const OwnCallsScope scope(driver_, context_);
  Module& module = modules_[image.data()];
  if (module == nullptr) {
    TUTTI_TRY(driver_.check(driver_.moduleLoad(&module, image.data()), "cuModuleLoadData",
                            fmt::format("kernels on device {} ({})", caps_.index, name_)));
  }
  Function function = nullptr;
  TUTTI_TRY(
      driver_.check(driver_.moduleFunction(&function, module, name), "cuModuleGetFunction", name));
  int localBytes = 0;
  TUTTI_TRY(driver_.check(driver_.functionAttribute(&localBytes, kFunctionLocalBytes, function),
                          "cuFuncGetAttribute", name));
  if (sharedBytes > 0) {
    TUTTI_TRY(driver_.check(
        driver_.setFunctionAttribute(function, kFunctionSharedBytes, static_cast<int>(sharedBytes)),
        "cuFuncSetAttribute", fmt::format("{} of {} bytes of shared memory", name, sharedBytes)));
  }
  return static_cast<const Kernel*>(reinterpret_cast<Kernel*>(function));
}

// Worked out by the driver on the host, from what the function needs.
Result<uint32_t> CudaDevice::blocksPerMultiprocessor(const Kernel& kernel, uint32_t threads,
                                                     uint32_t sharedBytes) {
  const OwnCallsScope scope(driver_, context_);
  auto* function = reinterpret_cast<Function>(const_cast<Kernel*>(&kernel));
  int blocks = 0;
  TUTTI_TRY(
      driver_.check(driver_.occupancy(&blocks, function, static_cast<int>(threads), sharedBytes),
                    "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
  return static_cast<uint32_t>(std::max(blocks, 1));
}

Status CudaDevice::launch(const KernelLaunch& launch, void* stream) {
  const ContextScope scope(driver_, context_);
  void* parameters[] = {const_cast<void*>(launch.argument)};
  auto* function = reinterpret_cast<Function>(const_cast<Kernel*>(launch.kernel));
  LaunchAttribute early{.id = kLaunchStartsEarly, .value = {1}};
  const LaunchShape shape{.gridX = launch.blocks,
                          .blockX = launch.threads,
                          .sharedBytes = launch.sharedBytes,
                          .stream = asStream(stream),
                          .attributes = &early,
                          .attributeCount = launch.startsEarly ? 1U : 0U};
  const DriverResult result = driver_.launchKernel(&shape, function, parameters, nullptr);
  if (result == kSuccess) return {};
  return driver_.check(result, "cuLaunchKernelEx",
                       fmt::format("{} blocks of {} threads on device {}, stream {}", launch.blocks,
                                   launch.threads, caps_.index, stream));
}

Status CudaDevice::copyOnStream(void* to, const void* from, size_t bytes, void* stream) {
  const ContextScope scope(driver_, context_);
  return driver_.check(driver_.copyAsync(asPointer(to), asPointer(from), bytes, asStream(stream)),
                       "cuMemcpyAsync");
}

Status CudaDevice::callHost(void (*function)(void*), void* argument, void* stream) {
  const ContextScope scope(driver_, context_);
  return driver_.check(driver_.hostFunction(asStream(stream), function, argument),
                       "cuLaunchHostFunc");
}

Status CudaDevice::awaitWord(const void* word, uint32_t value, void* stream) {
  const ContextScope scope(driver_, context_);
  return driver_.check(
      driver_.streamWaitValue(asStream(stream), asPointer(word), value, kWaitValueReached),
      "cuStreamWaitValue32");
}

Status CudaDevice::writeWord(void* word, uint32_t value, void* stream) {
  const ContextScope scope(driver_, context_);
  return driver_.check(driver_.streamWriteValue(asStream(stream), asPointer(word), value, 0),
                       "cuStreamWriteValue32");
}

Result<void*> CudaDevice::createStream() {
  const OwnCallsScope scope(driver_, context_);
  StreamHandle stream = nullptr;
  TUTTI_TRY(driver_.check(driver_.streamCreate(&stream, kStreamNonBlocking), "cuStreamCreate"));
  return static_cast<void*>(stream);
}

Result<void*> CudaDevice::createUrgentStream() {
  const OwnCallsScope scope(driver_, context_);
  StreamHandle stream = nullptr;
  TUTTI_TRY(
      driver_.check(driver_.streamCreateWithPriority(&stream, kStreamNonBlocking, kMostUrgent),
                    "cuStreamCreateWithPriority"));
  return static_cast<void*>(stream);
}

void CudaDevice::destroyStream(void* stream) {
  const OwnCallsScope scope(driver_, context_);
  if (stream != nullptr) driver_.streamDestroy(asStream(stream));
}

Result<uint64_t> CudaDevice::streamId(void* stream) {
  const ContextScope scope(driver_, context_);
  unsigned long long id = 0;
  TUTTI_TRY(driver_.check(driver_.streamId(asStream(stream), &id), "cuStreamGetId"));
  return uint64_t{id};
}

Result<Event*> CudaDevice::createEvent() {
  const OwnCallsScope scope(driver_, context_);
  EventHandle event = nullptr;
  TUTTI_TRY(driver_.check(driver_.eventCreate(&event, kEventDisableTiming), "cuEventCreate"));
  return reinterpret_cast<Event*>(event);
}

void CudaDevice::destroyEvent(Event* event) {
  const OwnCallsScope scope(driver_, context_);
  if (event != nullptr) driver_.eventDestroy(asEvent(event));
}

Status CudaDevice::record(Event* event, void* stream) {
  const ContextScope scope(driver_, context_);
  return driver_.check(driver_.eventRecord(asEvent(event), asStream(stream)), "cuEventRecord");
}

Status CudaDevice::wait(void* stream, Event* event) {
  const ContextScope scope(driver_, context_);
  return driver_.check(driver_.streamWaitEvent(asStream(stream), asEvent(event), 0),
                       "cuStreamWaitEvent");
}

Result<bool> CudaDevice::isDone(Event* event) {
  const OwnCallsScope scope(driver_, context_);
  const DriverResult result = driver_.eventQuery(asEvent(event));
  if (result == kNotReady) return false;
  TUTTI_TRY(driver_.check(result, "cuEventQuery", fmt::format("device {}", caps_.index)));
  return true;
}

// An error means that the stream cannot be used at all just now, as the legacy stream while one
// that waits for it is captured.
Result<Capture> CudaDevice::captureOf(void* stream) {
  const ContextScope scope(driver_, context_);
  int status = kCaptureNone;
  unsigned long long id = 0;
  TUTTI_TRY(driver_.check(
      driver_.streamCaptureInfo(asStream(stream), &status, &id, nullptr, nullptr, nullptr),
      "cuStreamGetCaptureInfo"));
  return Capture{
      .isActive = status == kCaptureActive, .isBroken = status == kCaptureBroken, .id = id};
}

}  // namespace tutti::device::cuda
