// A libcuda.so.1 without a GPU: devices whose memory is the host's, whose streams are threads, and
// which run what kernels do for the host's executor (kernels/cuda/step.cu), on the host. With it
// in LD_LIBRARY_PATH, GPU ranks run where there is no GPU, through host memory. Kernels of other
// names are taken and do nothing. Tests make calls fail, and count what is alive (fake_cuda.h). The
// interface is NVIDIA's published one; device/cuda/driver_abi_test.cc holds our view of it against
// its header.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/affinity.h"
#include "base/rng.h"
#include "fakes/fake_cuda.h"
#include "kernels/gpu_catalog.h"
#include "kernels/kernels.h"
#include "wire/gpu_fold.h"
#include "wire/gpu_staging.h"

namespace {

using Pointer = unsigned long long;
using Work = std::function<void()>;

constexpr int kSuccess = 0, kInvalidValue = 1, kInvalidHandle = 400, kNotReady = 600;
constexpr int kCaptureForbids = 900, kCaptureInvalidated = 901, kNotSupported = 801;
constexpr int kDevices = 2;

// What a test wants to fail, and whatever was made and is still there.
struct Faults {
  std::mutex mutex;
  FakeCudaFault fault{};  // no call: none
  bool hasFailed = false;
};
Faults& faults() {
  static auto* one = new Faults;
  return *one;
}
std::atomic<long> alive{0};

// A moment in a stream's work.
struct Moment {
  std::mutex mutex;
  std::condition_variable reached;
  bool isReached = false;

  void reach() {
    const std::lock_guard lock(mutex);
    isReached = true;
    reached.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    reached.wait(lock, [this] { return isReached; });
  }
  bool test() {
    const std::lock_guard lock(mutex);
    return isReached;
  }
};

struct Graph {
  std::vector<Work> nodes;
};

// Where FAKE_CUDA_DELAY_US is set: what is on a stream begins up to so much later, each time
// another time.
class Delay {
 public:
  explicit Delay(uint64_t seed) : rng_(seed) {}
  void wait() {
    if (most_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(rng_.below(most_)));
  }

 private:
  static uint64_t most() {
    const char* text = std::getenv("FAKE_CUDA_DELAY_US");
    return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  }
  const uint64_t most_ = most();
  tutti::SeededRng rng_;
};

struct Stream {
  // Whoever puts more waits, as with a GPU's.
  static constexpr size_t kMostQueued = 1024;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> queue;
  bool isEnding = false;
  bool isCapturing = false;
  bool isBroken = false;  // the capture
  int captureMode = 0;
  std::thread::id captor;
  const unsigned long long id = nextId();
  unsigned long long capture = 0;
  Graph graph;
  Delay delay{id};
  std::thread thread{[this] { run(); }};

  ~Stream() {
    {
      const std::lock_guard lock(mutex);
      isEnding = true;
      changed.notify_all();
    }
    thread.join();
  }

  int put(Work work) {
    std::unique_lock lock(mutex);
    if (isBroken) return kCaptureInvalidated;
    if (isCapturing) {
      graph.nodes.push_back(std::move(work));
    } else {
      changed.wait(lock, [this] { return queue.size() < kMostQueued; });
      queue.push_back(std::move(work));
      changed.notify_all();
    }
    return kSuccess;
  }
  // For what a capture forbids.
  bool breakCapture() {
    const std::lock_guard lock(mutex);
    if (isCapturing) isBroken = true;
    return isCapturing;
  }

 private:
  static unsigned long long nextId() {
    static std::atomic<unsigned long long> last{0};
    return ++last;
  }
  void run() {
    for (;;) {
      Work next;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return isEnding || !queue.empty(); });
        if (queue.empty()) return;
        next = std::move(queue.front());
        queue.pop_front();
        if (queue.size() + 1 == kMostQueued) changed.notify_all();
      }
      delay.wait();
      next();
    }
  }
};

struct Event {
  std::mutex mutex;
  std::shared_ptr<Moment> latest;
};

// What is device memory, by its first address.
struct Memory {
  std::mutex mutex;
  std::map<Pointer, size_t> device, pinned;
  std::map<Pointer, int> files;  // of device memory that was mapped
};
Memory& memory() {
  static auto* one = new Memory;
  return *one;
}
bool holds(const std::map<Pointer, size_t>& ranges, Pointer address) {
  const auto above = ranges.upper_bound(address);
  if (above == ranges.begin()) return false;
  const auto& [start, bytes] = *std::prev(above);
  return address < start + bytes;
}

// Streams that are captured, and what a thread may call meanwhile, as
// cuThreadExchangeStreamCaptureMode has it.
struct Captures {
  std::mutex mutex;
  std::set<Stream*> streams;
};
Captures& captures() {
  static auto* one = new Captures;
  return *one;
}
constexpr int kModeGlobal = 0, kModeRelaxed = 2;
int& threadsMode() {
  thread_local int mode = kModeGlobal;
  return mode;
}

// Of calls that may wait for the device: where a capture forbids them, they break it.
int enterUnsafe() {
  if (threadsMode() == kModeRelaxed) return kSuccess;
  int result = kSuccess;
  const std::lock_guard lock(captures().mutex);
  for (Stream* stream : captures().streams) {
    const std::lock_guard streamLock(stream->mutex);
    const bool isOurs = stream->captor == std::this_thread::get_id();
    const bool isForbidden = stream->captureMode == kModeGlobal && threadsMode() == kModeGlobal;
    if (stream->captureMode == kModeRelaxed || (!isOurs && !isForbidden)) continue;
    stream->isBroken = true;
    result = kCaptureForbids;
  }
  return result;
}

// The legacy stream.
Stream& streamOf(void* handle) {
  static auto* legacy = new Stream;
  return handle == nullptr ? *legacy : *static_cast<Stream*>(handle);
}
Event& eventOf(void* handle) { return *static_cast<Event*>(handle); }

void*& current() {
  thread_local void* context = nullptr;
  return context;
}
std::vector<void*>& pushed() {
  thread_local std::vector<void*> contexts;
  return contexts;
}
void* contextOf(int device) { return reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1); }

// What the call returns instead of doing anything; success: it does.
int enter(const char* call) {
  Faults& all = faults();
  const std::lock_guard lock(all.mutex);
  FakeCudaFault& fault = all.fault;
  if (fault.call == nullptr) return kSuccess;
  if (fault.device >= 0 && current() != contextOf(fault.device)) return kSuccess;
  if (!(all.hasFailed && fault.isSticky != 0)) {
    if (std::strcmp(call, fault.call) != 0 || fault.number == 0 || --fault.number != 0)
      return kSuccess;
  }
  all.hasFailed = true;
  return fault.result;
}

std::atomic_ref<uint32_t> wordAt(Pointer address) {
  return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(address));
}

}  // namespace

#define FAKE_CUDA extern "C" __attribute__((visibility("default"))) int
#define FAKE_CUDA_REFUSES(name) \
  FAKE_CUDA name() { return kNotSupported; }
#define FAKE_CUDA_ENTER \
  if (const int result = enter(__func__); result != kSuccess) return result
#define FAKE_CUDA_ENTER_UNSAFE \
  FAKE_CUDA_ENTER;             \
  if (const int forbids = enterUnsafe(); forbids != kSuccess) return forbids

FAKE_CUDA fakeCudaFail(const FakeCudaFault* fault) {
  const std::lock_guard lock(faults().mutex);
  faults().fault = fault == nullptr ? FakeCudaFault{} : *fault;
  faults().hasFailed = false;
  return kSuccess;
}
FAKE_CUDA fakeCudaHasFailed() {
  const std::lock_guard lock(faults().mutex);
  return faults().hasFailed ? 1 : 0;
}
FAKE_CUDA fakeCudaAlive() { return static_cast<int>(alive.load()); }

FAKE_CUDA cuInit(unsigned) {
  FAKE_CUDA_ENTER;
  return kSuccess;
}
FAKE_CUDA cuDriverGetVersion(int* version) {
  FAKE_CUDA_ENTER;
  *version = 13000;
  return kSuccess;
}
FAKE_CUDA cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_OF_THE_FAKE";
  return kSuccess;
}
FAKE_CUDA cuGetErrorString(int, const char** text) {
  *text = "an error of the fake driver";
  return kSuccess;
}

// ---- devices and contexts

FAKE_CUDA cuDeviceGetCount(int* count) {
  FAKE_CUDA_ENTER;
  *count = kDevices;
  return kSuccess;
}
FAKE_CUDA cuDeviceGet(int* device, int index) {
  FAKE_CUDA_ENTER;
  *device = index;
  return index < kDevices ? kSuccess : kInvalidValue;
}
FAKE_CUDA cuDeviceGetName(char* name, int bytes, int) {
  FAKE_CUDA_ENTER;
  std::strncpy(name, "Fake GPU", static_cast<size_t>(bytes));
  return kSuccess;
}
FAKE_CUDA cuDeviceGetAttribute(int* value, int attribute, int) {
  FAKE_CUDA_ENTER;
  constexpr int kMultiprocessors = 16, kComputeMajor = 75, kSharedBytes = 97;
  const char* major = std::getenv("FAKE_CUDA_MAJOR");
  *value = attribute == kComputeMajor && major != nullptr ? std::atoi(major) : 1;
  if (attribute == kMultiprocessors) *value = 132;
  if (attribute == kSharedBytes) *value = 227 << 10;
  return kSuccess;
}
FAKE_CUDA cuDeviceGetPCIBusId(char* id, int bytes, int device) {
  FAKE_CUDA_ENTER;
  std::strncpy(id, device == 0 ? "0000:01:00.0" : "0000:02:00.0", static_cast<size_t>(bytes));
  return kSuccess;
}
FAKE_CUDA cuDeviceGetByPCIBusId(int* device, const char* id) {
  FAKE_CUDA_ENTER;
  *device = std::strcmp(id, "0000:01:00.0") == 0 ? 0 : 1;
  return kSuccess;
}
// As over NVLink, where FAKE_CUDA=shares.
static bool doesShare() {
  const char* mode = std::getenv("FAKE_CUDA");
  return mode != nullptr && std::strcmp(mode, "shares") == 0;
}
FAKE_CUDA cuDeviceGetP2PAttribute(int* value, int attribute, int, int) {
  FAKE_CUDA_ENTER;
  constexpr int kHasAtomics = 3;
  *value = attribute == kHasAtomics && doesShare() ? 1 : 0;
  return kSuccess;
}
FAKE_CUDA cuDeviceCanAccessPeer(int* can, int, int) {
  FAKE_CUDA_ENTER;
  *can = 0;
  return kSuccess;
}
FAKE_CUDA cuDevicePrimaryCtxRetain(void** context, int device) {
  FAKE_CUDA_ENTER;
  *context = contextOf(device);
  return kSuccess;
}
FAKE_CUDA cuDevicePrimaryCtxGetState(int, unsigned* flags, int* isActive) {
  FAKE_CUDA_ENTER;
  *flags = 0;
  *isActive = 1;
  return kSuccess;
}
FAKE_CUDA cuCtxGetCurrent(void** context) {
  FAKE_CUDA_ENTER;
  *context = current();
  return kSuccess;
}
FAKE_CUDA cuCtxSetCurrent(void* context) {
  current() = context;
  return kSuccess;
}
FAKE_CUDA cuCtxGetDevice(int* device) {
  FAKE_CUDA_ENTER;
  *device = static_cast<int>(reinterpret_cast<intptr_t>(current())) - 1;
  return kSuccess;
}
FAKE_CUDA cuCtxPushCurrent_v2(void* context) {
  FAKE_CUDA_ENTER;
  pushed().push_back(current());
  current() = context;
  return kSuccess;
}
FAKE_CUDA cuCtxPopCurrent_v2(void** context) {
  *context = current();
  current() = pushed().back();
  pushed().pop_back();
  return kSuccess;
}

// ---- memory

FAKE_CUDA cuMemAlloc_v2(Pointer* address, size_t bytes) {
  FAKE_CUDA_ENTER_UNSAFE;
  void* block = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  *address = reinterpret_cast<Pointer>(block);
  const std::lock_guard lock(memory().mutex);
  memory().device[*address] = bytes;
  ++alive;
  return kSuccess;
}
FAKE_CUDA cuMemFree_v2(Pointer address) {
  const std::lock_guard lock(memory().mutex);
  memory().device.erase(address);
  --alive;
  std::free(reinterpret_cast<void*>(address));
  return kSuccess;
}
// Where FAKE_CUDA_AFFINITY_FILE is set: on which CPUs host memory is made, a line a block.
void noteAffinity() {
  const char* path = std::getenv("FAKE_CUDA_AFFINITY_FILE");
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "ae");
  if (file == nullptr) return;
  for (const int32_t cpu : tutti::affinityCpus()) std::fprintf(file, "%d ", cpu);
  std::fprintf(file, "\n");
  std::fclose(file);
}

FAKE_CUDA cuMemHostAlloc(void** block, size_t bytes, unsigned) {
  FAKE_CUDA_ENTER_UNSAFE;
  noteAffinity();
  *block = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  const std::lock_guard lock(memory().mutex);
  ++alive;
  memory().pinned[reinterpret_cast<Pointer>(*block)] = bytes;
  return kSuccess;
}
FAKE_CUDA cuMemFreeHost(void* block) {
  if (const int forbids = enterUnsafe(); forbids != kSuccess) return forbids;
  const std::lock_guard lock(memory().mutex);
  --alive;
  memory().pinned.erase(reinterpret_cast<Pointer>(block));
  std::free(block);
  return kSuccess;
}
FAKE_CUDA cuMemHostGetDevicePointer_v2(Pointer* address, void* block, unsigned) {
  FAKE_CUDA_ENTER;
  *address = reinterpret_cast<Pointer>(block);
  return kSuccess;
}
FAKE_CUDA cuPointerGetAttribute(void* value, int attribute, Pointer address) {
  FAKE_CUDA_ENTER;
  constexpr int kMemoryType = 2, kHost = 1, kDevice = 2;
  const std::lock_guard lock(memory().mutex);
  const bool isDevice = holds(memory().device, address);
  if (!isDevice && !holds(memory().pinned, address)) return kInvalidValue;
  const int type = isDevice ? kDevice : kHost;
  *static_cast<int*>(value) = attribute == kMemoryType ? type : 0;
  return kSuccess;
}

// Memory in files, which may be mapped here, and is given to other processes where
// FAKE_CUDA=shares.
FAKE_CUDA cuMemGetAllocationGranularity(size_t* bytes, const void*, int) {
  FAKE_CUDA_ENTER;
  *bytes = size_t{2} << 20;
  return kSuccess;
}
FAKE_CUDA cuMemCreate(unsigned long long* handle, size_t bytes, const void*, unsigned long long) {
  FAKE_CUDA_ENTER;
  const int fd = ::memfd_create("fake-gpu", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return kInvalidValue;
  ++alive;
  *handle = static_cast<unsigned long long>(fd);
  return kSuccess;
}
FAKE_CUDA cuMemRelease(unsigned long long handle) {
  --alive;
  ::close(static_cast<int>(handle));
  return kSuccess;
}
FAKE_CUDA cuMemAddressReserve(Pointer* address, size_t bytes, size_t, Pointer, unsigned long long) {
  FAKE_CUDA_ENTER;
  void* range = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ++alive;
  *address = reinterpret_cast<Pointer>(range);
  return range == MAP_FAILED ? kInvalidValue : kSuccess;
}
FAKE_CUDA cuMemAddressFree(Pointer address, size_t bytes) {
  --alive;
  ::munmap(reinterpret_cast<void*>(address), bytes);
  return kSuccess;
}
FAKE_CUDA cuMemMap(Pointer address, size_t bytes, size_t, unsigned long long handle,
                   unsigned long long) {
  FAKE_CUDA_ENTER;
  void* range = ::mmap(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_FIXED, static_cast<int>(handle), 0);
  if (range == MAP_FAILED) return kInvalidValue;
  const std::lock_guard lock(memory().mutex);
  memory().device[address] = bytes;
  ++alive;
  memory().files[address] = static_cast<int>(handle);
  return kSuccess;
}
// What a test's network may map.
FAKE_CUDA cuMemGetHandleForAddressRange(void* fd, Pointer address, size_t, int,
                                        unsigned long long) {
  FAKE_CUDA_ENTER;
  const std::lock_guard lock(memory().mutex);
  const auto found = memory().files.find(address);
  if (found == memory().files.end()) return kNotSupported;
  *static_cast<int*>(fd) = ::dup(found->second);
  return kSuccess;
}
FAKE_CUDA cuMemUnmap(Pointer address, size_t) {
  const std::lock_guard lock(memory().mutex);
  memory().device.erase(address);
  --alive;
  memory().files.erase(address);
  return kSuccess;
}
FAKE_CUDA cuMemSetAccess(Pointer, size_t, const void*, size_t) {
  FAKE_CUDA_ENTER;
  return kSuccess;
}
FAKE_CUDA cuMemExportToShareableHandle(void* fd, unsigned long long handle, int,
                                       unsigned long long) {
  FAKE_CUDA_ENTER;
  if (!doesShare()) return kNotSupported;
  *static_cast<int*>(fd) = ::dup(static_cast<int>(handle));
  return kSuccess;
}
FAKE_CUDA cuMemImportFromShareableHandle(unsigned long long* handle, void* fd, int) {
  FAKE_CUDA_ENTER;
  const int copy = ::dup(static_cast<int>(reinterpret_cast<intptr_t>(fd)));
  ++alive;
  *handle = static_cast<unsigned long long>(copy);
  return copy < 0 ? kInvalidValue : kSuccess;
}
FAKE_CUDA_REFUSES(cuMemGetAddressRange_v2)
FAKE_CUDA_REFUSES(cuCtxEnablePeerAccess)
FAKE_CUDA_REFUSES(cuIpcGetMemHandle)
FAKE_CUDA_REFUSES(cuIpcOpenMemHandle_v2)
FAKE_CUDA_REFUSES(cuIpcCloseMemHandle)
FAKE_CUDA_REFUSES(cuMemRetainAllocationHandle)

// ---- streams

FAKE_CUDA cuStreamCreate(void** stream, unsigned) {
  FAKE_CUDA_ENTER;
  *stream = new Stream;
  ++alive;
  return kSuccess;
}
FAKE_CUDA cuStreamCreateWithPriority(void** stream, unsigned flags, int) {
  FAKE_CUDA_ENTER;
  return cuStreamCreate(stream, flags);
}
FAKE_CUDA cuStreamDestroy_v2(void* stream) {
  --alive;
  {
    const std::lock_guard lock(captures().mutex);
    captures().streams.erase(static_cast<Stream*>(stream));
  }
  delete static_cast<Stream*>(stream);
  return kSuccess;
}
FAKE_CUDA cuStreamGetId(void* stream, unsigned long long* id) {
  FAKE_CUDA_ENTER;
  *id = streamOf(stream).id;
  return kSuccess;
}
FAKE_CUDA cuStreamSynchronize(void* stream) {
  if (streamOf(stream).breakCapture() || enterUnsafe() != kSuccess) return kCaptureForbids;
  auto moment = std::make_shared<Moment>();
  streamOf(stream).put([moment] { moment->reach(); });
  moment->wait();
  return enter(__func__);  // errors come with the end
}
FAKE_CUDA cuMemcpyAsync(Pointer to, Pointer from, size_t bytes, void* stream) {
  FAKE_CUDA_ENTER;
  return streamOf(stream).put([=] {
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  });
}
FAKE_CUDA cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, void* stream) {
  FAKE_CUDA_ENTER;
  return streamOf(stream).put([=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
}
FAKE_CUDA cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
  FAKE_CUDA_ENTER;
  return streamOf(stream).put([=] { function(argument); });
}
FAKE_CUDA cuStreamWaitValue32_v2(void* stream, Pointer word, unsigned value, unsigned) {
  FAKE_CUDA_ENTER;
  return streamOf(stream).put([=] {
    while (!tutti::wire::hasReached(wordAt(word).load(std::memory_order_acquire), value))
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  });
}
FAKE_CUDA cuStreamWriteValue32_v2(void* stream, Pointer word, unsigned value, unsigned) {
  FAKE_CUDA_ENTER;
  return streamOf(stream).put([=] { wordAt(word).store(value, std::memory_order_release); });
}

FAKE_CUDA cuEventCreate(void** event, unsigned) {
  FAKE_CUDA_ENTER;
  *event = new Event;
  ++alive;
  return kSuccess;
}
FAKE_CUDA cuEventDestroy_v2(void* event) {
  --alive;
  delete static_cast<Event*>(event);
  return kSuccess;
}
FAKE_CUDA cuEventRecord(void* event, void* stream) {
  FAKE_CUDA_ENTER;
  auto moment = std::make_shared<Moment>();
  const int result = streamOf(stream).put([moment] { moment->reach(); });
  const std::lock_guard lock(eventOf(event).mutex);
  if (result == kSuccess) eventOf(event).latest = moment;
  return result;
}
FAKE_CUDA cuStreamWaitEvent(void* stream, void* event, unsigned) {
  FAKE_CUDA_ENTER;
  std::shared_ptr<Moment> moment;
  {
    const std::lock_guard lock(eventOf(event).mutex);
    moment = eventOf(event).latest;
  }
  if (moment == nullptr) return kSuccess;
  return streamOf(stream).put([moment] { moment->wait(); });
}
FAKE_CUDA cuEventQuery(void* event) {
  FAKE_CUDA_ENTER_UNSAFE;
  const std::lock_guard lock(eventOf(event).mutex);
  return eventOf(event).latest == nullptr || eventOf(event).latest->test() ? kSuccess : kNotReady;
}
FAKE_CUDA cuEventSynchronize(void* event) {
  FAKE_CUDA_ENTER;
  std::shared_ptr<Moment> moment;
  {
    const std::lock_guard lock(eventOf(event).mutex);
    moment = eventOf(event).latest;
  }
  if (moment != nullptr) moment->wait();
  return kSuccess;
}

// ---- captures and graphs: of one stream

FAKE_CUDA cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, threadsMode());
  return kSuccess;
}
FAKE_CUDA cuStreamGetCaptureInfo_v2(void* handle, int* status, unsigned long long* id, void**,
                                    const void**, size_t*) {
  FAKE_CUDA_ENTER;
  Stream& stream = streamOf(handle);
  const std::lock_guard lock(stream.mutex);
  *status = stream.isBroken ? 2 : stream.isCapturing ? 1 : 0;
  *id = stream.capture;
  return kSuccess;
}
FAKE_CUDA cuStreamBeginCapture_v2(void* handle, int mode) {
  static std::atomic<unsigned long long> count{0};
  Stream& stream = streamOf(handle);
  const std::lock_guard allLock(captures().mutex);
  const std::lock_guard lock(stream.mutex);
  captures().streams.insert(&stream);
  stream.isCapturing = true;
  stream.isBroken = false;
  stream.captureMode = mode;
  stream.captor = std::this_thread::get_id();
  stream.capture = ++count;
  stream.graph = {};
  return kSuccess;
}
FAKE_CUDA cuStreamEndCapture(void* handle, void** graph) {
  Stream& stream = streamOf(handle);
  const std::lock_guard allLock(captures().mutex);
  const std::lock_guard lock(stream.mutex);
  captures().streams.erase(&stream);
  if (!stream.isCapturing) return kInvalidHandle;
  stream.isCapturing = false;
  *graph = stream.isBroken ? nullptr : new Graph(stream.graph);
  return std::exchange(stream.isBroken, false) ? kCaptureInvalidated : kSuccess;
}
FAKE_CUDA cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  FAKE_CUDA_ENTER;
  *executable = new Graph(*static_cast<Graph*>(graph));
  return kSuccess;
}
FAKE_CUDA cuGraphLaunch(void* executable, void* stream) {
  FAKE_CUDA_ENTER;
  for (const Work& node : static_cast<Graph*>(executable)->nodes) streamOf(stream).put(node);
  return kSuccess;
}
FAKE_CUDA cuGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return kSuccess;
}
FAKE_CUDA cuGraphExecDestroy(void* executable) {
  delete static_cast<Graph*>(executable);
  return kSuccess;
}

// ---- kernels: what they do for the host's executor

namespace {

struct LaunchShape {
  unsigned grid[3], block[3], sharedBytes;
  void* stream;
};

void runStep(tutti::DataType type, const tutti::wire::GpuFold& fold) {
  tutti::kernels::fold(
      {.type = type, .op = fold.op, .rankCount = fold.divisor},
      {.sources = {fold.sources, static_cast<size_t>(fold.sourceCount)},
       .destinations = {fold.destinations, static_cast<size_t>(fold.destinationCount)},
       .elementCount = fold.elementCount,
       .post = fold.divisor != 0});
}

void copyAll(const tutti::wire::GpuStagingCopy* copies, int count) {
  for (int i = 0; i < count; ++i) std::memmove(copies[i].to, copies[i].from, copies[i].bytes);
}

void awaitEnd(const tutti::wire::GpuStaging& staging, uint32_t round) {
  const auto& ended = staging.words->ended;
  while (!tutti::wire::hasReached(ended.load(std::memory_order_acquire), round))
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

void runRound(const tutti::wire::GpuStaging& round, unsigned blocks) {
  if (round.freed != 0) awaitEnd(round, round.freed);
  copyAll(round.copies, round.inCount);
  for (unsigned block = 0; block < blocks; ++block)
    round.words->begun[block].store(round.round, std::memory_order_release);
  if (round.outCount == 0) return;
  awaitEnd(round, round.round);
  copyAll(round.copies + round.inCount, round.outCount);
}

}  // namespace

FAKE_CUDA cuModuleLoadData(void** module, const void* image) {
  FAKE_CUDA_ENTER;
  *module = const_cast<void*>(image);
  return kSuccess;
}
// A function is the number of its type, from 1 on; others are kUnknownKernel.
namespace {
void* const kUnknownKernel = reinterpret_cast<void*>(intptr_t{1000});
void* const kStage = reinterpret_cast<void*>(intptr_t{1001});
}  // namespace
FAKE_CUDA cuModuleGetFunction(void** function, void*, const char* name) {
  FAKE_CUDA_ENTER;
  for (int type = 0; type < tutti::kDataTypeCount; ++type) {
    if (std::strcmp(name, tutti::kernels::cuda::stepKernel(tutti::DataType(type))) != 0) continue;
    *function = reinterpret_cast<void*>(static_cast<intptr_t>(type) + 1);
    return kSuccess;
  }
  const bool isStage = std::strcmp(name, tutti::kernels::cuda::kStageKernel) == 0;
  *function = isStage ? kStage : kUnknownKernel;
  return kSuccess;
}
FAKE_CUDA cuFuncGetAttribute(int* value, int, void*) {
  FAKE_CUDA_ENTER;
  *value = 0;
  return kSuccess;
}
FAKE_CUDA cuFuncSetAttribute(void*, int, int) {
  FAKE_CUDA_ENTER;
  return kSuccess;
}
FAKE_CUDA cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) {
  FAKE_CUDA_ENTER;
  *blocks = 1;
  return kSuccess;
}
FAKE_CUDA cuLaunchKernelEx(const LaunchShape* shape, void* function, void** parameters, void**) {
  FAKE_CUDA_ENTER;
  if (function == kUnknownKernel) return streamOf(shape->stream).put([] {});
  if (function == kStage) {
    const auto round = *static_cast<const tutti::wire::GpuStaging*>(parameters[0]);
    const unsigned blocks = shape->grid[0];
    return streamOf(shape->stream).put([round, blocks] { runRound(round, blocks); });
  }
  const auto type = tutti::DataType(reinterpret_cast<intptr_t>(function) - 1);
  const auto fold = *static_cast<const tutti::wire::GpuFold*>(parameters[0]);
  return streamOf(shape->stream).put([type, fold] { runStep(type, fold); });
}
