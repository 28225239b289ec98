// Chooses the loops for the processor at hand. The only place that knows of platforms.
#include <array>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h>
#endif

#include "kernels/cpu/fold.h"
#include "kernels/kernels.h"

namespace tutti::kernels {
namespace cpu {
namespace {

struct TableList {
  std::array<const FoldTable*, 3> tables = {};
  size_t count = 0;

  void add(const FoldTable& table) { tables[count++] = &table; }
};

#if defined(__x86_64__)
// F16C; not every compiler's __builtin_cpu_supports knows it.
bool convertsHalves() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

TableList listTables() {
  TableList list;
  list.add(baselineFoldTable());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && convertsHalves()) {
    list.add(avx2FoldTable());
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      list.add(avx512FoldTable());
    }
  }
#endif
  return list;
}

}  // namespace

std::span<const FoldTable* const> supportedFoldTables() {
  static const TableList list = listTables();
  return {list.tables.data(), list.count};
}

}  // namespace cpu

namespace {

// The floating-point mode of a thread: rounding, and whether denormals are flushed to zero.
#if defined(__x86_64__)
using FloatMode = uint32_t;
constexpr FloatMode kDefaultMode = 0x1f80;  // to nearest, nothing flushed, all exceptions masked
constexpr FloatMode kExceptionsSeen = 0x3f;
FloatMode floatMode() { return _mm_getcsr() & ~kExceptionsSeen; }
void setFloatMode(FloatMode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
using FloatMode = uint64_t;
constexpr FloatMode kDefaultMode = 0;
FloatMode floatMode() {
  FloatMode mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
void setFloatMode(FloatMode mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
using FloatMode = int;  // not known here: the thread's own mode counts
constexpr FloatMode kDefaultMode = 0;
FloatMode floatMode() { return kDefaultMode; }
void setFloatMode(FloatMode) {}
#endif

// A program may flush denormals or round otherwise in its own threads, but ranks that reduce the
// same elements must get the same bits. Where nothing was changed this is one read of a register
// (3 ns on an AMD EPYC 9005 in a virtual machine, 2026-11).
class DefaultFloatMode {
 public:
  DefaultFloatMode() : saved_(floatMode()) {
    if (saved_ != kDefaultMode) setFloatMode(kDefaultMode);
  }
  ~DefaultFloatMode() {
    if (saved_ != kDefaultMode) setFloatMode(saved_);
  }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
  const FloatMode saved_;
};

const cpu::FoldTable& fastestTable() {
  static const cpu::FoldTable& fastest = *cpu::supportedFoldTables().back();
  return fastest;
}

}  // namespace

void fold(const FoldSpec& spec, const FoldArgs& args) {
  if (args.elementCount == 0) return;
  const DefaultFloatMode mode;
  cpu::foldWith(fastestTable(), spec, args);
}

PairFold findPairFold(DataType type, ReduceOp op) {
  const cpu::TypeLoops& loops = fastestTable().types[static_cast<size_t>(type)];
  return loops.pair[static_cast<size_t>(cpu::combineOf(op))];
}

void foldPair(PairFold fold, void* destination, const void* a, const void* b, size_t elementCount) {
  const DefaultFloatMode mode;
  fold(static_cast<std::byte*>(destination), static_cast<const std::byte*>(a),
       static_cast<const std::byte*>(b), elementCount);
}

}  // namespace tutti::kernels
