// How a fold is put together from loops over one block, and the table of those loops.
//
// The loops (fold_loops.h) are compiled once for each processor level into a table; the driver
// (fold.cc) is compiled once and walks blocks of a buffer. All levels give the same bits: they run
// the same operations on each element in the same order, with no contraction, and a NaN that
// arithmetic or a comparison produces is always the canonical one.
//
// "Accumulator" is the type that sums are kept in: fp32 for fp16, bf16 and fp8, else the element's
// own type. Pointers need no alignment. A loop's output may be one of its inputs, never overlap it
// in part.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/kernels.h"

namespace tutti::kernels::cpu {

// The two-operand operations; average and pre-multiplied sum are sums with something before or
// after.
enum class Combine : uint8_t { kSum, kProd, kMax, kMin };
inline constexpr size_t kCombineCount = 4;
Combine combineOf(ReduceOp op);

using Bytes = std::byte*;
using ConstBytes = const std::byte*;

// out = a op b, count elements each.
using PairLoop = PairFold;
// out = (accumulator op a) op b.
using TripleLoop = void (*)(Bytes out, ConstBytes accumulator, ConstBytes a, ConstBytes b,
                            size_t count);
// out = in, in another format.
using ConvertLoop = void (*)(Bytes out, ConstBytes in, size_t count);
// out = in * scale; both accumulators.
using ScaleLoop = void (*)(Bytes out, ConstBytes in, const Scalar& scale, size_t count);
// out = in / divisor; accumulators in, elements out. REQUIRES: divisor >= 1.
using DivideLoop = void (*)(Bytes out, ConstBytes in, int32_t divisor, size_t count);

// Copies past the cache: the lines of `out` are not read first, and do not push others out. Such
// stores wait for no later one until they are fenced. REQUIRES: out aligned to kLineBytes, bytes a
// multiple of it.
using StreamLoop = void (*)(Bytes out, ConstBytes in, size_t bytes);
inline constexpr size_t kLineBytes = 64;

// The loops of one element type.
struct TypeLoops {
  size_t accumulatorSize = 0;                          // bytes
  std::array<PairLoop, kCombineCount> pair = {};       // elements in, elements out
  std::array<PairLoop, kCombineCount> extend = {};     // a: accumulators; b: elements; out: as a
  std::array<TripleLoop, kCombineCount> extend2 = {};  // a and b: elements; out: as accumulator
  ScaleLoop scale = nullptr;
  DivideLoop divide = nullptr;
  // Element to accumulator and back; null where they are the same.
  ConvertLoop widen = nullptr;
  ConvertLoop narrow = nullptr;
};

struct FoldTable {
  std::string_view name;
  std::array<TypeLoops, kDataTypeCount> types;  // by DataType
  StreamLoop stream = nullptr;                  // null: not on this processor
  void (*fenceStreams)() = nullptr;             // the stores of `stream` come before what follows
};

const FoldTable& baselineFoldTable();
// x86-64 only. REQUIRES of the caller's processor: AVX2 and F16C; AVX-512 F, BW, DQ and VL as well.
const FoldTable& avx2FoldTable();
const FoldTable& avx512FoldTable();

// The tables that this processor can run, the fastest last; never empty. In registry.cc, which
// knows the platform.
std::span<const FoldTable* const> supportedFoldTables();

// kernels::fold with the loops of one table, in the calling thread's floating-point mode.
void foldWith(const FoldTable& table, const FoldSpec& spec, const FoldArgs& args);

}  // namespace tutti::kernels::cpu
