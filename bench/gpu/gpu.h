// What the GPU bench needs of the driver: checked calls, a rank's device memory and stream.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace tutti::bench {

// A bench has nothing to clean up that its end does not clean up too.
inline void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = "?";
  cuGetErrorString(result, &text);
  std::fprintf(stderr, "gpu_kernels_bench: %s: %s\n", what, text);
  std::fflush(stdout);
  std::_Exit(3);
}
#define TUTTI_CU(call) ::tutti::bench::check((call), #call)

// Device memory of the current context.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t bytes) : bytes_(bytes) { TUTTI_CU(cuMemAlloc(&address_, bytes)); }
  ~DeviceBuffer() { cuMemFree(address_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  CUdeviceptr address() const { return address_; }
  std::byte* at(size_t offset) const { return reinterpret_cast<std::byte*>(address_ + offset); }
  size_t bytes() const { return bytes_; }

 private:
  CUdeviceptr address_ = 0;
  size_t bytes_;
};

}  // namespace tutti::bench
