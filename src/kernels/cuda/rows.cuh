// A thread's part of a row: a warp's 512 bytes, four wide lines (wide_lines.cuh), of which the
// eighth thread of each line has 8 bytes of payload and the number, the others 16 of payload.
#pragma once

#include "kernels/cuda/memory.cuh"
#include "wire/gpu_work.h"

namespace tutti::kernels::cuda {

struct RowPart {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool hasNumber = lane % 8 == 7;
  // In the row's payload: in order, the last ones' halves behind the others.
  const int offset = hasNumber ? 448 + lane / 8 * 8 : (lane - lane / 8) * 16;

  __device__ __forceinline__ int bytes() const { return hasNumber ? 8 : 16; }
  // Of the part that begins at `at` in a buffer of so many bytes: what lies in the buffer.
  __device__ __forceinline__ int rest(size_t at, size_t bufferBytes) const {
    const size_t left = at < bufferBytes ? bufferBytes - at : 0;
    return static_cast<int>(min(left, static_cast<size_t>(bytes())));
  }

  // `isAligned`: the buffer, to 16 bytes.
  __device__ __forceinline__ uint4 load(const std::byte* from, int rest, bool isAligned) const {
    uint4 value = make_uint4(0, 0, 0, 0);
    if (isAligned && rest == bytes()) {
      if (hasNumber) {
        const uint2 half = *reinterpret_cast<const uint2*>(from);
        value.x = half.x;
        value.y = half.y;
      } else {
        value = *reinterpret_cast<const uint4*>(from);
      }
    } else if (rest > 0) {
      value = gather<uint4>(from, rest);
    }
    return value;
  }
  __device__ __forceinline__ void store(std::byte* to, const uint4& value, int rest,
                                        bool isAligned) const {
    if (isAligned && rest == bytes()) {
      if (hasNumber) {
        *reinterpret_cast<uint2*>(to) = make_uint2(value.x, value.y);
      } else {
        *reinterpret_cast<uint4*>(to) = value;
      }
    } else if (rest > 0) {
      scatter<uint4>(to, value, rest);
    }
  }

  __device__ __forceinline__ uint4 numbered(uint4 value, uint64_t number) const {
    if (hasNumber) {
      value.z = static_cast<uint32_t>(number);
      value.w = static_cast<uint32_t>(number >> 32);
    }
    return value;
  }
  __device__ __forceinline__ bool isThere(const uint4& value, uint64_t number) const {
    return !hasNumber || (value.z == static_cast<uint32_t>(number) &&
                          value.w == static_cast<uint32_t>(number >> 32));
  }
};

}  // namespace tutti::kernels::cuda
