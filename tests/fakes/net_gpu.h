/* Memory of GPUs for net.c: by copies that the driver makes, on a stream of this plug-in's that
 * waits for no other, to and from pinned buffers; or by mapping a descriptor of it. Included once.
 */
#pragma once

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "net_plugin.h"

enum { kGpuBufferBytes = 1 << 20, kGpuBuffers = 64, kMaxArrivals = 4 * kMaxRequests };

/* What came in and is not in the GPU's memory yet. */
struct Arrival {
  char* target;
  char* buffer;
  size_t size;
  const struct Memory* memory;
};

static atomic_long gpuRegistered, gpuReleased, gpuSends, gpuReceives, gpuFlushes;

static int memoryKinds(void) {
  const char* text = getenv("FAKE_NET_GPU");
  if (text == NULL) return kHostMemory;
  if (strcmp(text, "address") == 0) return kHostMemory | kGpuMemory;
  if (strcmp(text, "dmabuf") == 0) return kHostMemory | kDmaBuffers;
  return kHostMemory | kGpuMemory | kDmaBuffers;
}

static void reportGpus(void) {
  const char* report = getenv("FAKE_NET_GPU_REPORT");
  FILE* file = report == NULL ? NULL : fopen(report, "a");
  if (file == NULL) return;
  fprintf(file, "%d %ld %ld %ld %ld %ld\n", (int)getpid(), gpuRegistered, gpuReleased, gpuSends,
          gpuReceives, gpuFlushes);
  fclose(file);
}

/* ---- the driver ---- */

typedef unsigned long long GpuPointer;
static struct {
  int (*init)(unsigned);
  int (*deviceCount)(int*);
  int (*deviceGet)(int*, int);
  int (*contextState)(int, unsigned*, int*);
  int (*contextRetain)(void**, int);
  int (*contextPush)(void*);
  int (*contextPop)(void**);
  int (*pointerAttribute)(void*, int, GpuPointer);
  int (*hostAlloc)(void**, size_t, unsigned);
  int (*streamCreate)(void**, unsigned, int);
  int (*copyAsync)(GpuPointer, GpuPointer, size_t, void*);
  int (*streamSynchronize)(void*);
} driver;

static void* gpuContext;
static void* gpuStream;
static pthread_mutex_t buffersMutex = PTHREAD_MUTEX_INITIALIZER;
static char* freeBuffers[kGpuBuffers];
static int freeBufferCount;

static int findCall(void* library, const char* name, void* place) {
  void* found = dlsym(library, name);
  if (found == NULL) say(2, 0x10, __FILE__, __LINE__, "libcuda.so.1 has no %s", name);
  memcpy(place, &found, sizeof found);
  return found != NULL;
}

/* The GPU whose context this process uses already; else the first. */
static int openContext(void) {
  int count = 0, device = 0;
  if (driver.init(0) != 0 || driver.deviceCount(&count) != 0 || count == 0) return 0;
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0;
    int isActive = 0, candidate = 0;
    if (driver.deviceGet(&candidate, i) != 0) return 0;
    if (driver.contextState(candidate, &flags, &isActive) != 0 || !isActive) continue;
    device = candidate;
    break;
  }
  return driver.contextRetain(&gpuContext, device) == 0;
}

static int openGpus(void) {
  static int isOpen;
  if (isOpen) return 1;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    say(2, 0x10, __FILE__, __LINE__, "FAKE_NET_GPU is set and there is no libcuda.so.1");
    return 0;
  }
  const int isComplete = findCall(library, "cuInit", &driver.init) &
                         findCall(library, "cuDeviceGetCount", &driver.deviceCount) &
                         findCall(library, "cuDeviceGet", &driver.deviceGet) &
                         findCall(library, "cuDevicePrimaryCtxGetState", &driver.contextState) &
                         findCall(library, "cuDevicePrimaryCtxRetain", &driver.contextRetain) &
                         findCall(library, "cuCtxPushCurrent_v2", &driver.contextPush) &
                         findCall(library, "cuCtxPopCurrent_v2", &driver.contextPop) &
                         findCall(library, "cuPointerGetAttribute", &driver.pointerAttribute) &
                         findCall(library, "cuMemHostAlloc", &driver.hostAlloc) &
                         findCall(library, "cuStreamCreateWithPriority", &driver.streamCreate) &
                         findCall(library, "cuMemcpyAsync", &driver.copyAsync) &
                         findCall(library, "cuStreamSynchronize", &driver.streamSynchronize);
  if (!isComplete || !openContext()) return 0;
  enum { kNonBlocking = 1, kMostUrgent = -1000, kPortable = 1 };
  char* buffers = NULL;
  driver.contextPush(gpuContext);
  int result = driver.streamCreate(&gpuStream, kNonBlocking, kMostUrgent);
  if (result == 0)
    result = driver.hostAlloc((void**)&buffers, (size_t)kGpuBuffers * kGpuBufferBytes, kPortable);
  void* popped;
  driver.contextPop(&popped);
  if (result != 0) return 0;
  for (int i = 0; i < kGpuBuffers; ++i) freeBuffers[i] = buffers + (size_t)i * kGpuBufferBytes;
  freeBufferCount = kGpuBuffers;
  isOpen = 1;
  return 1;
}

/* Null: all are in use. */
static char* takeBuffer(void) {
  pthread_mutex_lock(&buffersMutex);
  char* buffer = freeBufferCount > 0 ? freeBuffers[--freeBufferCount] : NULL;
  pthread_mutex_unlock(&buffersMutex);
  return buffer;
}

static void giveBuffer(char* buffer) {
  pthread_mutex_lock(&buffersMutex);
  freeBuffers[freeBufferCount++] = buffer;
  pthread_mutex_unlock(&buffersMutex);
}

static int copyByDriver(const void* to, const void* from, size_t size) {
  driver.contextPush(gpuContext);
  int result =
      driver.copyAsync((GpuPointer)(uintptr_t)to, (GpuPointer)(uintptr_t)from, size, gpuStream);
  if (result == 0) result = driver.streamSynchronize(gpuStream);
  void* popped;
  driver.contextPop(&popped);
  return result == 0;
}

static int readGpu(char* buffer, const char* data, size_t size, const struct Memory* memory) {
  if (memory->mapped == NULL) return copyByDriver(buffer, data, size);
  memcpy(buffer, memory->mapped + (data - memory->data), size);
  return 1;
}

static int writeGpu(const struct Arrival* arrival) {
  const struct Memory* memory = arrival->memory;
  if (memory->mapped == NULL) return copyByDriver(arrival->target, arrival->buffer, arrival->size);
  memcpy(memory->mapped + (arrival->target - memory->data), arrival->buffer, arrival->size);
  return 1;
}

/* ---- registered memory ---- */

static ncclResult_t enrollOnGpu(void* owner, void* data, size_t size, char* mapped, void** made) {
  enum { kMemoryType = 2, kDevice = 2 };
  unsigned type = 0;
  if (isOrdered("fail-gpu")) return ncclSystemError;
  if (owner == NULL ||
      driver.pointerAttribute(&type, kMemoryType, (GpuPointer)(uintptr_t)data) != 0 ||
      type != kDevice)
    return ncclInvalidArgument;
  struct Memory* memory = malloc(sizeof *memory);
  if (memory == NULL) return ncclSystemError;
  *memory = (struct Memory){.data = data, .size = size, .isOnGpu = 1, .mapped = mapped};
  *made = memory;
  atomic_fetch_add(&gpuRegistered, 1);
  return ncclSuccess;
}

static ncclResult_t enrollAny(void* owner, void* data, RegisterSize size, int kind, void** made) {
  if (kind != kGpuMemory) return enroll(owner, data, size, kind, made);
  if ((memoryKinds() & kGpuMemory) == 0) return ncclInvalidArgument;
  return enrollOnGpu(owner, data, (size_t)size, NULL, made);
}

static ncclResult_t enrollDmaBuffer(void* owner, void* data, size_t size, int kind, uint64_t offset,
                                    int fd, void** made) {
  if ((memoryKinds() & kDmaBuffers) == 0 || kind != kGpuMemory || offset != 0 || fd < 0)
    return ncclInvalidArgument;
  char* mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) mapped = NULL;
  const ncclResult_t result = enrollOnGpu(owner, data, size, mapped, made);
  if (result != ncclSuccess && mapped != NULL) munmap(mapped, size);
  return result;
}

static ncclResult_t releaseAny(void* owner, struct Memory* memory) {
  if (memory->isOnGpu) atomic_fetch_add(&gpuReleased, 1);
  if (memory->mapped != NULL) munmap(memory->mapped, memory->size);
  return release(owner, memory);
}
