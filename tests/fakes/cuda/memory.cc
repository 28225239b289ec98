// Memory of the fake's devices: the host's, or files that may be mapped.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>

#include "base/affinity.h"
#include "fakes/cuda/entry.h"

namespace fakes::cuda {
namespace {

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

// Where FAKE_CUDA_AFFINITY_FILE is set: on which CPUs host memory is made, a line a block.
void noteAffinity() {
  const char* path = std::getenv("FAKE_CUDA_AFFINITY_FILE");
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "ae");
  if (file == nullptr) return;
  for (const int32_t cpu : tutti::affinityCpus()) std::fprintf(file, "%d ", cpu);
  std::fprintf(file, "\n");
  std::fclose(file);
}

}  // namespace

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

}  // namespace fakes::cuda
