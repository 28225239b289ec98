// A libcuda.so.1 without a GPU: devices whose memory is the host's, whose streams are threads, and
// which run what kernels do for the host's executor (kernels/cuda/step.cu), on the host. With it
// in LD_LIBRARY_PATH, GPU ranks run where there is no GPU, through host memory. Kernels of other
// names are taken and do nothing. Tests make calls fail, and count what is alive (fake_cuda.h). The
// interface is NVIDIA's published one; device/cuda/driver_abi_test.cc holds our view of it against
// its header.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "fakes/cuda/entry.h"
#include "fakes/fake_cuda.h"

namespace fakes::cuda {
namespace {

constexpr int kDevices = 2;

// What a test wants to fail.
struct Faults {
  std::mutex mutex;
  FakeCudaFault fault{};  // no call: none
  bool hasFailed = false;
};
Faults& faults() {
  static auto* one = new Faults;
  return *one;
}

void*& current() {
  thread_local void* context = nullptr;
  return context;
}
std::vector<void*>& pushed() {
  thread_local std::vector<void*> contexts;
  return contexts;
}
void* contextOf(int device) { return reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1); }

}  // namespace

std::atomic<long> alive{0};

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

bool doesShare() {
  const char* mode = std::getenv("FAKE_CUDA");
  return mode != nullptr && std::strcmp(mode, "shares") == 0;
}

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

}  // namespace fakes::cuda
