// Loads and stores of kernels: those that order memory between GPUs, and those of user buffers that
// may lie at any address.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::kernels::cuda {

// ---- ordered: words that another GPU writes or reads
// ---------------------------------------------

__device__ __forceinline__ uint64_t loadAcquire(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

__device__ __forceinline__ uint32_t loadAcquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__device__ __forceinline__ uint64_t loadRelaxed(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

__device__ __forceinline__ uint32_t loadRelaxed(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__device__ __forceinline__ void storeRelaxed(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

__device__ __forceinline__ void storeRelaxed(uint32_t* to, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ __forceinline__ void fenceSystem() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// A line: each half (payload, flag) is one 8-byte store to the memory system, whatever becomes of
// the 16 bytes.
__device__ __forceinline__ void storeLine(uint4* to, const uint4& line) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(line.x),
               "r"(line.y), "r"(line.z), "r"(line.w)
               : "memory");
}

__device__ __forceinline__ void storeLine(uint4* to, uint2 payload, uint32_t flag) {
  storeLine(to, make_uint4(payload.x, flag, payload.y, flag));
}

__device__ __forceinline__ uint4 loadLine(const uint4* from) {
  uint4 line;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(line.x), "=r"(line.y), "=r"(line.z), "=r"(line.w)
               : "l"(from)
               : "memory");
  return line;
}

// A thread's 16 bytes of a wide line (wire/gpu_program.h). All threads of a warp at once: one that
// came later would find, or leave, another state of the line than the others.
__device__ __forceinline__ void storePart(uint4* to, const uint4& part) {
  __syncwarp();
  storeLine(to, part);
}

__device__ __forceinline__ uint4 loadPart(const uint4* from) {
  __syncwarp();
  return loadLine(from);
}

// One of two, by their words: a conditional between two elements of an array would be one between
// their addresses, and keep the array in local memory.
__device__ __forceinline__ uint4 pick(bool isFirst, const uint4 a, const uint4 b) {
  return make_uint4(isFirst ? a.x : b.x, isFirst ? a.y : b.y, isFirst ? a.z : b.z,
                    isFirst ? a.w : b.w);
}

__device__ __forceinline__ uint2 pick(bool isFirst, const uint2 a, const uint2 b) {
  return make_uint2(isFirst ? a.x : b.x, isFirst ? a.y : b.y);
}

__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// ---- user buffers
// --------------------------------------------------------------------------------

template <typename W>
__device__ __forceinline__ bool isAligned(const std::byte* at) {
  return reinterpret_cast<uintptr_t>(at) % sizeof(W) == 0;
}

// The first `count` bytes at any address, the rest zero; and the way back. Byte by byte, or by
// words or halves where the address allows.
template <typename W>
__device__ __noinline__ W gather(const std::byte* from, int count) {
  union {
    W whole;
    uint32_t words[sizeof(W) / 4];
  } result;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(W) / 4); ++i) result.words[i] = 0;
  if (count == static_cast<int>(sizeof(W)) && isAligned<uint32_t>(from)) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(W) / 4); ++i) {
      result.words[i] = reinterpret_cast<const uint32_t*>(from)[i];
    }
  } else if (count == static_cast<int>(sizeof(W)) && isAligned<uint16_t>(from)) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(W) / 2); ++i) {
      result.words[i / 2] |= uint32_t{reinterpret_cast<const uint16_t*>(from)[i]} << (i % 2 * 16);
    }
  } else {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(W)); ++i) {
      if (i < count) result.words[i / 4] |= static_cast<uint32_t>(from[i]) << (i % 4 * 8);
    }
  }
  return result.whole;
}

template <typename W>
__device__ __noinline__ void scatter(std::byte* to, W value, int count) {
  union {
    W whole;
    uint32_t words[sizeof(W) / 4];
  } bits;
  bits.whole = value;
  if (count == static_cast<int>(sizeof(W)) && isAligned<uint32_t>(to)) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(W) / 4); ++i) {
      reinterpret_cast<uint32_t*>(to)[i] = bits.words[i];
    }
  } else if (count == static_cast<int>(sizeof(W)) && isAligned<uint16_t>(to)) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(W) / 2); ++i) {
      reinterpret_cast<uint16_t*>(to)[i] = static_cast<uint16_t>(bits.words[i / 2] >> (i % 2 * 16));
    }
  } else {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(W)); ++i) {
      if (i < count) to[i] = static_cast<std::byte>(bits.words[i / 4] >> (i % 4 * 8));
    }
  }
}

// A word at any address, of which `count` bytes are there.
template <typename W>
__device__ __forceinline__ W loadAny(const std::byte* from, int count) {
  if (count >= static_cast<int>(sizeof(W)) && isAligned<W>(from)) {
    return *reinterpret_cast<const W*>(from);
  }
  return gather<W>(from, min(count, static_cast<int>(sizeof(W))));
}

template <typename W>
__device__ __forceinline__ void storeAny(std::byte* to, const W& value, int count) {
  if (count >= static_cast<int>(sizeof(W)) && isAligned<W>(to)) {
    *reinterpret_cast<W*>(to) = value;
  } else {
    scatter<W>(to, value, min(count, static_cast<int>(sizeof(W))));
  }
}

// Memory that peers write: through the L2 they write to, never from a stale line of the L1.
__device__ __forceinline__ uint4 loadStaged(const uint4* from) { return __ldcg(from); }

// The same where there is something, else zeros: a register that is written under a condition alone
// would be taken by the compiler from the kernel's beginning on.
__device__ __forceinline__ uint4 loadStagedIf(bool isThere, const uint4* from) {
  uint4 value = make_uint4(0, 0, 0, 0);
  if (isThere) value = __ldcg(from);
  return value;
}

}  // namespace tutti::kernels::cuda
