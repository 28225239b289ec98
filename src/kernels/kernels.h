// Folds: the arithmetic of collectives, for every element type and reduction.
//
// Rules, tested bit for bit against plain arithmetic:
//   fp16, bf16 and fp8 are widened to fp32, folded in the order of the sources, and rounded once
//     to nearest even; fp8 saturates to its largest finite value as NCCL's conversions do;
//   fp32 and fp64 accumulate in themselves, in the order of the sources, one rounding a step;
//   integers wrap; their average divides the wrapped sum, rounding toward zero;
//   max and min propagate NaN, and -0 is less than +0;
//   a NaN that comes out is the type's canonical quiet one (fp32 0x7fc00000, fp16 and bf16 0x7fff,
//     fp8 0x7f), whatever went in; denormals count, whatever the thread's floating-point mode;
//   one source with nothing to apply is copied bit for bit;
//   nothing depends on how a buffer is cut into pieces, nor on the processor's vector width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/types.h"

namespace tutti::kernels {

// The scalar of a pre-multiplied sum, in the element's own type (fp16, bf16 and fp8: as that type's
// bits).
struct Scalar {
  alignas(8) unsigned char bytes[8] = {};
};

struct FoldSpec {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int32_t rankCount = 1;  // divisor of kAvg when `post` is set; at least 1
  Scalar preScale{};      // multiplies the source named by scaledSource; kPreMulSum only
};

struct FoldArgs {
  std::span<const void* const> sources;  // one: copy (converted through pre-scale and post only
                                         // where those apply)
  std::span<void* const> destinations;   // each gets the same result; may equal a source, never
                                         // partly overlap one
  size_t elementCount = 0;
  int32_t scaledSource = -1;  // this source is the rank's raw input: kPreMulSum multiplies it
                              // first; -1: none
  bool post = false;          // apply the average's division
  size_t streamedCount = 0;   // of the destinations, the first: not read soon, so stored past the
                              // cache where that can be done
};

// Folds the sources in order into every destination. Any thread; touches nothing beyond
// elementCount elements.
void fold(const FoldSpec& spec, const FoldArgs& args);

// The same for two sources and one destination with no pre-scale and no division, looked up once
// for many calls: arranging a fold costs more than a few elements do.
using PairFold = void (*)(std::byte* out, const std::byte* a, const std::byte* b, size_t count);
PairFold findPairFold(DataType type, ReduceOp op);
void foldPair(PairFold fold, void* destination, const void* a, const void* b, size_t elementCount);

}  // namespace tutti::kernels
