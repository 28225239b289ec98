// Tests only: a driver of two or more GPUs that lives in ordinary memory. Streams run at once,
// allocations are memory files that really map into several places and other processes, kernels are
// noted instead of run.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/cuda/driver.h"

namespace tutti::device::cuda {

struct FakeLaunch {
  Function function = nullptr;
  StreamHandle stream = nullptr;
  unsigned blocks = 0;
  unsigned threads = 0;
  unsigned sharedBytes = 0;
  bool startsEarly = false;
  std::vector<unsigned char> argument{};
};

// What the fake GPUs hold and were told. Reset by makeFakeDriver().
struct FakeGpus {
  std::mutex mutex;
  int count = 2;
  size_t argumentBytes = 0;                   // copied of each launch's argument
  std::map<std::string, DriverResult> fails;  // by the driver's name of a call
  std::vector<std::string> calls;             // in order, those that tests ask about
  std::vector<FakeLaunch> launches;
  std::map<DevicePointer, size_t> mappings;
  std::map<DevicePointer, unsigned long long> bufferIds;  // of mappings
  std::map<DevicePointer, AllocationHandle> handles;      // of mappings
  unsigned long long lastBufferId = 0;
  std::set<void*> pinned;
  int multiprocessors = 132;
  int blocksPerMultiprocessor = 1;
  int sharedBytes = 0;  // the last that a function was allowed
  bool isBusy = false;  // events are not reached
  int captureStatus = kCaptureNone;
  unsigned long long captureId = 0;
  // Of the graph that all streams are captured into: what the next work follows, the nodes that
  // were added by hand, with what they follow, and the user's objects that it holds.
  std::vector<GraphNode> captureLast;
  std::map<GraphNode, std::pair<std::string, std::set<GraphNode>>> eventNodes;
  std::vector<UserObject> graphObjects;
  std::map<UserObject, std::pair<void (*)(void*), void*>> userObjects;
  std::set<std::string> strictCalls;  // of threads whose calls captures may forbid
  uintptr_t lastHandle = 0x1000;

  static FakeGpus& get() {
    static FakeGpus gpus;
    return gpus;
  }
};

// As cuThreadExchangeStreamCaptureMode has it.
inline int& fakeCaptureMode() {
  thread_local int mode = 0;
  return mode;
}

// Returns from a fake call as a test wants it to.
inline DriverResult fakeResult(const char* call) {
  FakeGpus& gpus = FakeGpus::get();
  std::lock_guard lock(gpus.mutex);
  gpus.calls.emplace_back(call);
  if (fakeCaptureMode() != kCaptureModeRelaxed) gpus.strictCalls.insert(call);
  const auto found = gpus.fails.find(call);
  return found == gpus.fails.end() ? kSuccess : found->second;
}

template <typename T>
T fakeHandle() {
  FakeGpus& gpus = FakeGpus::get();
  std::lock_guard lock(gpus.mutex);
  return reinterpret_cast<T>(gpus.lastHandle += 16);
}

inline Context& fakeContext() {
  thread_local Context current = nullptr;
  return current;
}
inline Context fakeContextOf(DeviceNumber device) {
  return reinterpret_cast<Context>(static_cast<uintptr_t>(0x100 + device));
}

// Allocations are files in memory, so that two mappings of one are the same bytes.
inline void fakeAllocations(Driver& driver) {
  driver.granularity = [](size_t* bytes, const AllocationProperties*, int) {
    *bytes = size_t{2} << 20;
    return fakeResult("cuMemGetAllocationGranularity");
  };
  driver.memoryCreate = [](AllocationHandle* handle, size_t bytes, const AllocationProperties*,
                           unsigned long long) {
    const int fd = ::memfd_create("fake-gpu", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return 2;
    *handle = static_cast<AllocationHandle>(fd);
    return fakeResult("cuMemCreate");
  };
  driver.memoryRelease = [](AllocationHandle handle) {
    ::close(static_cast<int>(handle));
    return fakeResult("cuMemRelease");
  };
}

inline void fakeMappings(Driver& driver) {
  driver.addressReserve = [](DevicePointer* address, size_t bytes, size_t, DevicePointer,
                             unsigned long long) {
    void* range = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *address = reinterpret_cast<DevicePointer>(range);
    return range == MAP_FAILED ? 2 : fakeResult("cuMemAddressReserve");
  };
  driver.addressFree = [](DevicePointer address, size_t bytes) {
    ::munmap(reinterpret_cast<void*>(address), bytes);
    return fakeResult("cuMemAddressFree");
  };
  driver.memoryMap = [](DevicePointer address, size_t bytes, size_t, AllocationHandle handle,
                        unsigned long long) {
    if (const DriverResult result = fakeResult("cuMemMap"); result != kSuccess) return result;
    void* range = ::mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                         static_cast<int>(handle), 0);
    if (range == MAP_FAILED) return 2;
    FakeGpus& gpus = FakeGpus::get();
    std::lock_guard lock(gpus.mutex);
    gpus.mappings[address] = bytes;
    gpus.bufferIds[address] = ++gpus.lastBufferId;
    gpus.handles[address] = handle;
    return kSuccess;
  };
  driver.memoryRetain = [](AllocationHandle* handle, void* address) {
    FakeGpus& gpus = FakeGpus::get();
    std::lock_guard lock(gpus.mutex);
    const auto found = gpus.handles.find(reinterpret_cast<DevicePointer>(address));
    if (found == gpus.handles.end()) return 1;
    *handle = static_cast<AllocationHandle>(::dup(static_cast<int>(found->second)));
    return kSuccess;
  };
  driver.peerAccess = [](Context, unsigned) { return fakeResult("cuCtxEnablePeerAccess"); };
  driver.memoryUnmap = [](DevicePointer address, size_t) {
    FakeGpus& gpus = FakeGpus::get();
    {
      std::lock_guard lock(gpus.mutex);
      gpus.mappings.erase(address);
    }
    return fakeResult("cuMemUnmap");
  };
  driver.memorySetAccess = [](DevicePointer address, size_t bytes, const AccessDescription*,
                              size_t) {
    ::mprotect(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE);
    return fakeResult("cuMemSetAccess");
  };
  driver.memoryExport = [](void* fd, AllocationHandle handle, int, unsigned long long) {
    *static_cast<int*>(fd) = ::dup(static_cast<int>(handle));
    return fakeResult("cuMemExportToShareableHandle");
  };
  driver.rangeHandle = [](void* fd, DevicePointer address, size_t, int, unsigned long long) {
    FakeGpus& gpus = FakeGpus::get();
    {
      std::lock_guard lock(gpus.mutex);
      const auto found = gpus.handles.find(address);
      if (found == gpus.handles.end()) return 1;
      *static_cast<int*>(fd) = ::dup(static_cast<int>(found->second));
    }
    return fakeResult("cuMemGetHandleForAddressRange");
  };
  driver.memoryImport = [](AllocationHandle* handle, void* fd, int) {
    *handle =
        static_cast<AllocationHandle>(::dup(static_cast<int>(reinterpret_cast<intptr_t>(fd))));
    return fakeResult("cuMemImportFromShareableHandle");
  };
}

inline void fakeCopiesAndHostMemory(Driver& driver) {
  driver.copyAsync = [](DevicePointer to, DevicePointer from, size_t bytes, StreamHandle) {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    return fakeResult("cuMemcpyAsync");
  };
  driver.fillAsync = [](DevicePointer to, unsigned char value, size_t bytes, StreamHandle) {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return fakeResult("cuMemsetD8Async");
  };
  driver.hostAlloc = [](void** memory, size_t bytes, unsigned) {
    *memory = ::operator new (bytes, std::align_val_t{64});
    FakeGpus& gpus = FakeGpus::get();
    {
      std::lock_guard lock(gpus.mutex);
      gpus.pinned.insert(*memory);
    }
    return fakeResult("cuMemHostAlloc");
  };
  driver.hostFree = [](void* memory) {
    FakeGpus& gpus = FakeGpus::get();
    {
      std::lock_guard lock(gpus.mutex);
      gpus.pinned.erase(memory);
    }
    ::operator delete (memory, std::align_val_t{64});
    return fakeResult("cuMemFreeHost");
  };
  driver.hostDevicePointer = [](DevicePointer* device, void* host, unsigned) {
    *device = reinterpret_cast<DevicePointer>(host);
    return fakeResult("cuMemHostGetDevicePointer");
  };
  driver.pointerAttribute = [](void* value, int attribute, DevicePointer address) -> DriverResult {
    FakeGpus& gpus = FakeGpus::get();
    std::lock_guard lock(gpus.mutex);
    const auto above = gpus.mappings.upper_bound(address);
    if (above == gpus.mappings.begin()) return 1;
    const auto& [start, bytes] = *std::prev(above);
    if (address >= start + bytes) return 1;
    if (attribute == kPointerBufferId) {
      *static_cast<unsigned long long*>(value) = gpus.bufferIds[start];
      return kSuccess;
    }
    if (attribute == kPointerDeviceOrdinal) {
      *static_cast<int*>(value) =
          static_cast<int>(reinterpret_cast<uintptr_t>(fakeContext()) - 0x100);  // as if it were
                                                                                 // the asker's
      return kSuccess;
    }
    *static_cast<int*>(value) =
        attribute == kPointerMemoryType ? static_cast<int>(kMemoryTypeDevice) : 0;
    return kSuccess;
  };
  driver.addressRange = [](DevicePointer* base, size_t* bytes, DevicePointer address) {
    FakeGpus& gpus = FakeGpus::get();
    std::lock_guard lock(gpus.mutex);
    const auto above = gpus.mappings.upper_bound(address);
    if (above == gpus.mappings.begin()) return 1;
    *base = std::prev(above)->first;
    *bytes = std::prev(above)->second;
    return kSuccess;
  };
}

inline void fakeStreams(Driver& driver) {
  driver.streamCreate = [](StreamHandle* stream, unsigned) {
    *stream = fakeHandle<StreamHandle>();
    return fakeResult("cuStreamCreate");
  };
  driver.streamCreateWithPriority = [](StreamHandle* stream, unsigned, int) {
    *stream = fakeHandle<StreamHandle>();
    return fakeResult("cuStreamCreateWithPriority");
  };
  driver.streamDestroy = [](StreamHandle) { return fakeResult("cuStreamDestroy"); };
  driver.streamSynchronize = [](StreamHandle) { return fakeResult("cuStreamSynchronize"); };
  driver.streamId = [](StreamHandle stream, unsigned long long* id) {
    *id = reinterpret_cast<uintptr_t>(stream);
    return fakeResult("cuStreamGetId");
  };
  driver.streamWaitEvent = [](StreamHandle, EventHandle, unsigned) {
    return fakeResult("cuStreamWaitEvent");
  };
  driver.streamCaptureInfo = [](StreamHandle, int* status, unsigned long long* id, Graph* graph,
                                const GraphNode** last, size_t* count) {
    FakeGpus& gpus = FakeGpus::get();
    *status = gpus.captureStatus;
    *id = gpus.captureId;
    if (graph != nullptr) *graph = reinterpret_cast<Graph>(&gpus);
    if (last != nullptr) *last = gpus.captureLast.data();
    if (count != nullptr) *count = gpus.captureLast.size();
    return fakeResult("cuStreamGetCaptureInfo");
  };
  driver.updateCapture = [](StreamHandle, GraphNode* nodes, size_t count, unsigned flags) {
    if (flags != kAddCaptureDependencies) return 1;
    auto& last = FakeGpus::get().captureLast;
    last.insert(last.end(), nodes, nodes + count);
    return fakeResult("cuStreamUpdateCaptureDependencies");
  };
  driver.exchangeCaptureMode = [](int* mode) {
    std::swap(*mode, fakeCaptureMode());
    return kSuccess;
  };
  driver.eventCreate = [](EventHandle* event, unsigned) {
    *event = fakeHandle<EventHandle>();
    return fakeResult("cuEventCreate");
  };
  driver.eventDestroy = [](EventHandle) { return fakeResult("cuEventDestroy"); };
  driver.eventRecord = [](EventHandle, StreamHandle) { return fakeResult("cuEventRecord"); };
  driver.eventQuery = [](EventHandle) -> DriverResult {
    const DriverResult result = fakeResult("cuEventQuery");
    return result == kSuccess && FakeGpus::get().isBusy ? kNotReady : result;
  };
  driver.eventSynchronize = [](EventHandle) { return fakeResult("cuEventSynchronize"); };
}

inline DriverResult addFakeEventNode(const char* call, GraphNode* node, const GraphNode* after,
                                     size_t count) {
  if (const DriverResult result = fakeResult(call); result != kSuccess) return result;
  *node = fakeHandle<GraphNode>();
  FakeGpus::get().eventNodes[*node] = {call, {after, after + count}};
  return kSuccess;
}
// As the driver, which takes no edge twice, and removes none that is not there.
inline DriverResult changeFakeEdges(const char* call, const GraphNode* from, const GraphNode* to,
                                    size_t count) {
  if (const DriverResult result = fakeResult(call); result != kSuccess) return result;
  const bool isAdding = std::string_view(call) == "cuGraphAddDependencies";
  for (size_t i = 0; i < count; ++i) {
    auto& after = FakeGpus::get().eventNodes.at(to[i]).second;
    const bool isDone = isAdding ? after.insert(from[i]).second : after.erase(from[i]) != 0;
    if (!isDone) return 1;
  }
  return kSuccess;
}
inline void releaseFakeObject(UserObject object) {
  FakeGpus& gpus = FakeGpus::get();
  const auto [destroy, argument] = gpus.userObjects.at(object);
  gpus.userObjects.erase(object);
  destroy(argument);
}
inline void destroyFakeGraph() {
  for (UserObject object : std::exchange(FakeGpus::get().graphObjects, {}))
    releaseFakeObject(object);
}

inline void fakeGraphs(Driver& driver) {
  driver.graphAddWait = [](GraphNode* node, Graph, const GraphNode* after, size_t count,
                           EventHandle) {
    return addFakeEventNode("cuGraphAddEventWaitNode", node, after, count);
  };
  driver.graphAddRecord = [](GraphNode* node, Graph, const GraphNode* after, size_t count,
                             EventHandle) {
    return addFakeEventNode("cuGraphAddEventRecordNode", node, after, count);
  };
  driver.graphAddEdges = [](Graph, const GraphNode* from, const GraphNode* to, size_t count) {
    return changeFakeEdges("cuGraphAddDependencies", from, to, count);
  };
  driver.graphRemoveEdges = [](Graph, const GraphNode* from, const GraphNode* to, size_t count) {
    return changeFakeEdges("cuGraphRemoveDependencies", from, to, count);
  };
  driver.userObjectCreate = [](UserObject* object, void* argument, void (*destroy)(void*),
                               unsigned count, unsigned flags) {
    const DriverResult result = fakeResult("cuUserObjectCreate");
    if (result != kSuccess) return result;
    if (count != 1 || flags != kUserObjectNoDestructorSync) return 1;
    *object = fakeHandle<UserObject>();
    FakeGpus::get().userObjects[*object] = {destroy, argument};
    return kSuccess;
  };
  driver.userObjectRelease = [](UserObject object, unsigned) {
    releaseFakeObject(object);
    return fakeResult("cuUserObjectRelease");
  };
  driver.graphRetain = [](Graph, UserObject object, unsigned count, unsigned flags) {
    const DriverResult result = fakeResult("cuGraphRetainUserObject");
    if (result != kSuccess) return result;
    if (count != 1 || flags != kGraphUserObjectMove) return 1;
    FakeGpus::get().graphObjects.push_back(object);
    return kSuccess;
  };
}

inline void fakeKernels(Driver& driver) {
  driver.moduleLoad = [](Module* module, const void*) {
    *module = fakeHandle<Module>();
    return fakeResult("cuModuleLoadData");
  };
  driver.moduleFunction = [](Function* function, Module, const char*) {
    *function = fakeHandle<Function>();
    return fakeResult("cuModuleGetFunction");
  };
  driver.functionAttribute = [](int* value, int, Function) {
    *value = 0;
    return fakeResult("cuFuncGetAttribute");
  };
  driver.setFunctionAttribute = [](Function, int attribute, int value) {
    if (attribute == kFunctionSharedBytes) FakeGpus::get().sharedBytes = value;
    return fakeResult("cuFuncSetAttribute");
  };
  driver.occupancy = [](int* blocks, Function, int, size_t) {
    *blocks = FakeGpus::get().blocksPerMultiprocessor;
    return fakeResult("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  };
  driver.launchKernel = [](const LaunchShape* shape, Function function, void** parameters, void**) {
    FakeGpus& gpus = FakeGpus::get();
    {
      std::lock_guard lock(gpus.mutex);
      const auto* argument = static_cast<const unsigned char*>(parameters[0]);
      gpus.launches.push_back({.function = function,
                               .stream = shape->stream,
                               .blocks = shape->gridX,
                               .threads = shape->blockX,
                               .sharedBytes = shape->sharedBytes,
                               .startsEarly = shape->attributeCount != 0,
                               .argument = {argument, argument + gpus.argumentBytes}});
    }
    return fakeResult("cuLaunchKernelEx");
  };
}

// Two devices that reach each other.
inline void addFakePeers(Driver& driver) {
  driver.deviceByBusId = [](DeviceNumber* device, const char* id) {
    const std::string_view wanted = id;
    *device = wanted == "0000:01:00.0" ? 0 : 1;
    return *device == 0 || wanted == "0000:02:00.0" ? kSuccess : 101;
  };
  driver.peerAttribute = [](int* value, int, DeviceNumber, DeviceNumber) {
    *value = 1;
    return fakeResult("cuDeviceGetP2PAttribute");
  };
  driver.canAccessPeer = [](int* can, DeviceNumber, DeviceNumber) {
    *can = 1;
    return kSuccess;
  };
}

inline void resetFakeGpus(int gpuCount) {
  FakeGpus& gpus = FakeGpus::get();
  std::lock_guard lock(gpus.mutex);
  gpus.count = gpuCount;
  gpus.fails.clear();
  gpus.calls.clear();
  gpus.launches.clear();
  gpus.isBusy = false;
  gpus.multiprocessors = 132;
  gpus.blocksPerMultiprocessor = 1;
  gpus.captureStatus = kCaptureNone;
  gpus.captureLast.clear();
  gpus.eventNodes.clear();
  gpus.strictCalls.clear();
  gpus.argumentBytes = 0;
}

inline Driver makeFakeDriver(int gpuCount = 2) {
  resetFakeGpus(gpuCount);
  Driver driver;
  driver.errorName = [](DriverResult, const char** name) {
    *name = "CUDA_ERROR_FAKE";
    return kSuccess;
  };
  driver.deviceCount = [](int* count) {
    *count = FakeGpus::get().count;
    return fakeResult("cuDeviceGetCount");
  };
  driver.deviceGet = [](DeviceNumber* device, int index) {
    *device = index;
    return index < FakeGpus::get().count ? kSuccess : 101;
  };
  driver.deviceName = [](char* name, int bytes, DeviceNumber) {
    std::strncpy(name, "Fake GPU", static_cast<size_t>(bytes));
    return kSuccess;
  };
  driver.deviceAttribute = [](int* value, int attribute, DeviceNumber) {
    *value = attribute == kAttributeMultiprocessors ? FakeGpus::get().multiprocessors : 1;
    return fakeResult("cuDeviceGetAttribute");
  };
  driver.devicePciBusId = [](char* id, int bytes, DeviceNumber device) {
    std::strncpy(id, device == 0 ? "0000:01:00.0" : "0000:02:00.0", static_cast<size_t>(bytes));
    return kSuccess;
  };
  addFakePeers(driver);
  driver.primaryRetain = [](Context* context, DeviceNumber device) {
    *context = fakeContextOf(device);
    return fakeResult("cuDevicePrimaryCtxRetain");
  };
  driver.contextGet = [](Context* context) {
    *context = fakeContext();
    return kSuccess;
  };
  driver.contextDevice = [](DeviceNumber* device) {
    *device = static_cast<DeviceNumber>(reinterpret_cast<uintptr_t>(fakeContext()) - 0x100);
    return kSuccess;
  };
  // One deep is as much as the library nests.
  driver.contextPush = [](Context context) {
    fakeContext() = context;
    return fakeResult("cuCtxPushCurrent");
  };
  driver.contextPop = [](Context* context) {
    *context = fakeContext();
    fakeContext() = nullptr;
    return fakeResult("cuCtxPopCurrent");
  };
  fakeAllocations(driver);
  fakeMappings(driver);
  fakeCopiesAndHostMemory(driver);
  fakeStreams(driver);
  fakeGraphs(driver);
  fakeKernels(driver);
  return driver;
}

}  // namespace tutti::device::cuda
