#include "tools/perf_gpu.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstring>

namespace tutti::tools {
namespace {

using Pointer = unsigned long long;

constexpr unsigned kStreamNonBlocking = 1;
constexpr int kCaptureThreadLocal = 1;
constexpr int kPointerMemoryType = 2;
constexpr unsigned kMemoryTypeDevice = 2;

Pointer asPointer(const void* memory) { return reinterpret_cast<Pointer>(memory); }

}  // namespace

#define TUTTI_PERF_DRIVER(X)                                                            \
  X(init, cuInit, (unsigned))                                                           \
  X(errorName, cuGetErrorName, (int, const char**))                                     \
  X(deviceCount, cuDeviceGetCount, (int*))                                              \
  X(deviceGet, cuDeviceGet, (int*, int))                                                \
  X(primaryRetain, cuDevicePrimaryCtxRetain, (void**, int))                             \
  X(setCurrent, cuCtxSetCurrent, (void*))                                               \
  X(memoryAllocate, cuMemAlloc_v2, (Pointer*, size_t))                                  \
  X(memoryFree, cuMemFree_v2, (Pointer))                                                \
  X(copyAsync, cuMemcpyAsync, (Pointer, Pointer, size_t, void*))                        \
  X(pointerAttribute, cuPointerGetAttribute, (void*, int, Pointer))                     \
  X(streamCreate, cuStreamCreate, (void**, unsigned))                                   \
  X(streamDestroy, cuStreamDestroy_v2, (void*))                                         \
  X(streamSynchronize, cuStreamSynchronize, (void*))                                    \
  X(captureBegin, cuStreamBeginCapture_v2, (void*, int))                                \
  X(captureEnd, cuStreamEndCapture, (void*, void**))                                    \
  X(graphInstantiate, cuGraphInstantiateWithFlags, (void**, void*, unsigned long long)) \
  X(graphUpload, cuGraphUpload, (void*, void*))                                         \
  X(graphLaunch, cuGraphLaunch, (void*, void*))                                         \
  X(graphDestroy, cuGraphDestroy, (void*))                                              \
  X(graphExecDestroy, cuGraphExecDestroy, (void*))

struct RankGpu::Driver {
#define TUTTI_PERF_MEMBER(member, symbol, parameters) int(*member) parameters = nullptr;
  TUTTI_PERF_DRIVER(TUTTI_PERF_MEMBER)
#undef TUTTI_PERF_MEMBER

  static Result<std::shared_ptr<const Driver>> load() {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return Status(Code::kSystemError, "there is no CUDA driver");
    auto driver = std::make_shared<Driver>();
    bool isWhole = true;
    const auto find = [&](auto& member, const char* symbol) {
      void* address = ::dlsym(library, symbol);
      isWhole = isWhole && address != nullptr;
      std::memcpy(&member, &address, sizeof member);
    };
#define TUTTI_PERF_FIND(member, symbol, parameters) find(driver->member, #symbol);
    TUTTI_PERF_DRIVER(TUTTI_PERF_FIND)
#undef TUTTI_PERF_FIND
    if (!isWhole) return Status(Code::kSystemError, "the CUDA driver is older than CUDA 12");
    if (const int result = driver->init(0); result != 0)
      return Status(Code::kSystemError, fmt::format("cuInit fails with {}", result));
    return std::shared_ptr<const Driver>(std::move(driver));
  }
};

Status RankGpu::check(int result, const char* call) const {
  if (result == 0) return {};
  const char* text = "?";
  driver_->errorName(result, &text);
  return Status(Code::kUnhandledCudaError, fmt::format("{}: {} ({})", call, text, result));
}

Result<std::unique_ptr<RankGpu>> RankGpu::open(int rank, int gpuCount) {
  std::unique_ptr<RankGpu> gpu(new RankGpu());
  TUTTI_TRY(gpu->initialise(rank, gpuCount));
  return gpu;
}

Status RankGpu::initialise(int rank, int gpuCount) {
  TUTTI_TRY_ASSIGN(driver_, Driver::load());
  int count = 0;
  TUTTI_TRY(check(driver_->deviceCount(&count), "cuDeviceGetCount"));
  if (count == 0) return Status(Code::kSystemError, "the CUDA driver finds no GPU");
  if (gpuCount > count)
    return invalidArgument("{} GPUs are asked for (-g), there are {}", gpuCount, count);
  number_ = rank % (gpuCount == 0 ? count : gpuCount);
  int device = 0;
  TUTTI_TRY(check(driver_->deviceGet(&device, number_), "cuDeviceGet"));
  TUTTI_TRY(check(driver_->primaryRetain(&context_, device), "cuDevicePrimaryCtxRetain"));
  TUTTI_TRY(makeCurrent());
  return check(driver_->streamCreate(&stream_, kStreamNonBlocking), "cuStreamCreate");
}

Status RankGpu::makeCurrent() { return check(driver_->setCurrent(context_), "cuCtxSetCurrent"); }

RankGpu::~RankGpu() {
  dropGraph();
  if (stream_ != nullptr) driver_->streamDestroy(stream_);
}

Result<void*> RankGpu::allocate(size_t bytes) {
  Pointer memory = 0;
  TUTTI_TRY(check(driver_->memoryAllocate(&memory, bytes), "cuMemAlloc"));
  return reinterpret_cast<void*>(memory);
}

void RankGpu::free(void* memory) { driver_->memoryFree(asPointer(memory)); }

// What the stream holds comes first, and is waited for apart: a copy to or from pageable memory
// waits inside the driver, where it keeps other ranks on the GPU from launching.
Status RankGpu::copy(void* to, const void* from, size_t bytes) {
  TUTTI_TRY(synchronize());
  TUTTI_TRY(
      check(driver_->copyAsync(asPointer(to), asPointer(from), bytes, stream_), "cuMemcpyAsync"));
  return synchronize();
}

Status RankGpu::synchronize() {
  return check(driver_->streamSynchronize(stream_), "cuStreamSynchronize");
}

bool RankGpu::isDeviceMemory(const void* memory) {
  unsigned type = 0;
  return driver_->pointerAttribute(&type, kPointerMemoryType, asPointer(memory)) == 0 &&
         type == kMemoryTypeDevice;
}

void RankGpu::dropGraph() {
  if (graph_ != nullptr) driver_->graphExecDestroy(graph_);
  graph_ = nullptr;
}

// Captured in this thread only: the others go on with calls that a global capture would forbid.
Status RankGpu::capture(const std::function<Status()>& work) {
  dropGraph();
  TUTTI_TRY(check(driver_->captureBegin(stream_, kCaptureThreadLocal), "cuStreamBeginCapture"));
  Status status = work();
  void* graph = nullptr;
  Status ended = check(driver_->captureEnd(stream_, &graph), "cuStreamEndCapture");
  TUTTI_TRY(std::move(status));
  TUTTI_TRY(std::move(ended));
  ended = check(driver_->graphInstantiate(&graph_, graph, 0), "cuGraphInstantiate");
  driver_->graphDestroy(graph);
  TUTTI_TRY(std::move(ended));
  return check(driver_->graphUpload(graph_, stream_), "cuGraphUpload");
}

Status RankGpu::replay() { return check(driver_->graphLaunch(graph_, stream_), "cuGraphLaunch"); }

}  // namespace tutti::tools
