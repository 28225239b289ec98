// The loops of a fold table. Included by one source file for each processor level, which is
// compiled with that level's options; nothing else includes it. All is in an unnamed namespace, and
// nothing of the standard library is called, so that no function built for one level can stand in
// for another's.
//
// Elements are read and written through memcpy: user buffers need not be aligned to their type. The
// loops are plain so that the compiler vectorises them; where it cannot (fp16 conversions), the few
// intrinsics are in widenChunk and narrowChunk.
#pragma once

#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <array>
#include <concepts>
#include <type_traits>

#include "kernels/cpu/float_formats.h"
#include "kernels/cpu/fold.h"

// An output may be exactly an input, never shifted against it, so iterations do not depend on each
// other; without this, the compiler's own overlap check sends in-place folds to a scalar loop.
#if defined(__clang__)
#define TUTTI_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define TUTTI_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace tutti::kernels::cpu {
namespace {

template <typename T>
[[gnu::always_inline]] inline T load(ConstBytes from, size_t index) {
  T value;
  __builtin_memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
[[gnu::always_inline]] inline void store(Bytes to, size_t index, T value) {
  __builtin_memcpy(to + index * sizeof(T), &value, sizeof(T));
}

// ---- vectors ------------------------------------------------------------------------------------

// The types narrower than fp32 are folded with vector types: the compiler does not vectorise
// conversions to and from fp16 by itself,
// and accumulators that pass through memory between a conversion and an addition cost five times
// the addition.
#if defined(__AVX512F__)
constexpr size_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif
constexpr size_t kLanes = kVectorBytes / sizeof(float);

using Floats = float __attribute__((vector_size(kVectorBytes)));
using Words = uint32_t __attribute__((vector_size(kVectorBytes)));
using Codes16 = uint16_t __attribute__((vector_size(kLanes * sizeof(uint16_t))));
using Codes8 = uint8_t __attribute__((vector_size(kLanes * sizeof(uint8_t))));
template <typename Format>
using Codes = std::conditional_t<sizeof(typename Format::Bits) == 1, Codes8, Codes16>;

// ---- the operations -----------------------------------------------------------------------------

template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <std::floating_point T>
[[gnu::always_inline]] inline T canonicalNan(T value) {
  return __builtin_isunordered(value, value) ? static_cast<T>(__builtin_nanf("")) : value;
}

// Integers come here unsigned where overflow must wrap; 8 and 16 bits wrap in the conversion back.
// Vectors of fp32 leave it to narrowing to make NaNs canonical.
struct Sum {
  template <std::integral T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    return static_cast<T>(a + b);
  }
  template <std::floating_point T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    return canonicalNan(a + b);
  }
  [[gnu::always_inline]] static Floats apply(Floats a, Floats b) { return a + b; }
};

struct Prod {
  template <std::integral T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    return static_cast<T>(a * b);
  }
  template <std::floating_point T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    return canonicalNan(a * b);
  }
  [[gnu::always_inline]] static Floats apply(Floats a, Floats b) { return a * b; }
};

// IEEE 754-2019 maximum and minimum: a NaN in, a NaN out, and -0 is less than +0; so the result
// does not depend on the order of the sources. Equal operands differ in the sign of zero at most,
// hence the `and` of their bits is the greater one and the `or` the lesser.
struct Max {
  template <std::integral T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    return a > b ? a : b;
  }
  template <std::floating_point T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    using Bits = BitsOf<T>;
    const Bits both = __builtin_bit_cast(Bits, a) & __builtin_bit_cast(Bits, b);
    const T larger = a > b ? a : b;
    const T ordered = a == b ? __builtin_bit_cast(T, both) : larger;
    return __builtin_isunordered(a, b) ? static_cast<T>(__builtin_nanf("")) : ordered;
  }
  [[gnu::always_inline]] static Floats apply(Floats a, Floats b) {
    const Words both = __builtin_bit_cast(Words, a) & __builtin_bit_cast(Words, b);
    const Floats larger = choose(a > b, a, b);  // b, if that is a NaN
    const Floats ordered = choose(a == b, __builtin_bit_cast(Floats, both), larger);
    return choose(a == a, ordered, a);
  }
};

struct Min {
  template <std::integral T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    return a < b ? a : b;
  }
  template <std::floating_point T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    using Bits = BitsOf<T>;
    const Bits either = __builtin_bit_cast(Bits, a) | __builtin_bit_cast(Bits, b);
    const T smaller = a < b ? a : b;
    const T ordered = a == b ? __builtin_bit_cast(T, either) : smaller;
    return __builtin_isunordered(a, b) ? static_cast<T>(__builtin_nanf("")) : ordered;
  }
  [[gnu::always_inline]] static Floats apply(Floats a, Floats b) {
    const Words either = __builtin_bit_cast(Words, a) | __builtin_bit_cast(Words, b);
    const Floats smaller = choose(a < b, a, b);
    const Floats ordered = choose(a == b, __builtin_bit_cast(Floats, either), smaller);
    return choose(a == a, ordered, a);
  }
};

// Quotients of the narrower integers go through a floating type wide enough that truncation is
// exact: it vectorises, which integer division does not.
template <typename T>
[[gnu::always_inline]] inline T quotient(T value, int32_t divisor) {
  if constexpr (std::floating_point<T>) {
    return canonicalNan(value / static_cast<T>(divisor));
  } else if constexpr (sizeof(T) == 8) {
    return value / static_cast<T>(divisor);
  } else {
    using Wide = std::conditional_t<sizeof(T) == 1, float, double>;
    return static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(divisor));
  }
}

// ---- types that accumulate in themselves --------------------------------------------------------

template <typename T, typename Op>
void pairLoop(Bytes out, ConstBytes a, ConstBytes b, size_t count) {
  TUTTI_INDEPENDENT_ITERATIONS
  for (size_t i = 0; i < count; ++i) store(out, i, Op::apply(load<T>(a, i), load<T>(b, i)));
}

template <typename T, typename Op>
void tripleLoop(Bytes out, ConstBytes accumulator, ConstBytes a, ConstBytes b, size_t count) {
  TUTTI_INDEPENDENT_ITERATIONS
  for (size_t i = 0; i < count; ++i) {
    const T first = Op::apply(load<T>(accumulator, i), load<T>(a, i));
    store(out, i, Op::apply(first, load<T>(b, i)));
  }
}

template <typename T>
void scaleLoop(Bytes out, ConstBytes in, const Scalar& scale, size_t count) {
  T factor;
  __builtin_memcpy(&factor, scale.bytes, sizeof(T));
  TUTTI_INDEPENDENT_ITERATIONS
  for (size_t i = 0; i < count; ++i) store(out, i, Prod::apply(load<T>(in, i), factor));
}

template <typename T>
void divideLoop(Bytes out, ConstBytes in, int32_t divisor, size_t count) {
  TUTTI_INDEPENDENT_ITERATIONS
  for (size_t i = 0; i < count; ++i) store(out, i, quotient(load<T>(in, i), divisor));
}

// ---- types that accumulate in fp32 --------------------------------------------------------------

// Codes to the low bits of words and back, and fp16 by the processor. The compiler's own lowering
// of vector conversions goes by halves and shuffles; these are one or two instructions.
#if defined(__AVX512F__)
constexpr bool kConvertsHalves = true;
// The forms that zero masked lanes, with no lane masked: GCC 12 warns inside the unmasked ones.
constexpr __mmask16 kAllLanes = 0xffff;
[[gnu::always_inline]] inline Words wordsOf(Codes16 codes) {
  return __builtin_bit_cast(
      Words, _mm512_maskz_cvtepu16_epi32(kAllLanes, __builtin_bit_cast(__m256i, codes)));
}
[[gnu::always_inline]] inline Words wordsOf(Codes8 codes) {
  return __builtin_bit_cast(
      Words, _mm512_maskz_cvtepu8_epi32(kAllLanes, __builtin_bit_cast(__m128i, codes)));
}
[[gnu::always_inline]] inline void setCodes(Codes16& codes, Words words) {
  codes = __builtin_bit_cast(
      Codes16, _mm512_maskz_cvtepi32_epi16(kAllLanes, __builtin_bit_cast(__m512i, words)));
}
[[gnu::always_inline]] inline void setCodes(Codes8& codes, Words words) {
  codes = __builtin_bit_cast(
      Codes8, _mm512_maskz_cvtepi32_epi8(kAllLanes, __builtin_bit_cast(__m512i, words)));
}
[[gnu::always_inline]] inline Codes16 widerCodes(Codes8 codes) {
  return __builtin_bit_cast(Codes16, _mm256_cvtepu8_epi16(__builtin_bit_cast(__m128i, codes)));
}
[[gnu::always_inline]] inline Floats widenHalves(Codes16 codes) {
  return _mm512_maskz_cvtph_ps(kAllLanes, __builtin_bit_cast(__m256i, codes));
}
[[gnu::always_inline]] inline Codes16 narrowHalves(Floats values) {
  return __builtin_bit_cast(Codes16,
                            _mm512_maskz_cvtps_ph(kAllLanes, values, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__AVX2__)
constexpr bool kConvertsHalves = true;
[[gnu::always_inline]] inline __m128i lowHalf(Codes8 codes) {
  return _mm_cvtsi64_si128(__builtin_bit_cast(int64_t, codes));
}
[[gnu::always_inline]] inline Words wordsOf(Codes16 codes) {
  return __builtin_bit_cast(Words, _mm256_cvtepu16_epi32(__builtin_bit_cast(__m128i, codes)));
}
[[gnu::always_inline]] inline Words wordsOf(Codes8 codes) {
  return __builtin_bit_cast(Words, _mm256_cvtepu8_epi32(lowHalf(codes)));
}
// Every word is a code, so the saturating packs change nothing.
[[gnu::always_inline]] inline void setCodes(Codes16& codes, Words words) {
  const __m256i all = __builtin_bit_cast(__m256i, words);
  codes = __builtin_bit_cast(
      Codes16, _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
}
[[gnu::always_inline]] inline void setCodes(Codes8& codes, Words words) {
  Codes16 wider;
  setCodes(wider, words);
  const __m128i packed = __builtin_bit_cast(__m128i, wider);
  codes = __builtin_bit_cast(Codes8, _mm_cvtsi128_si64(_mm_packus_epi16(packed, packed)));
}
[[gnu::always_inline]] inline Codes16 widerCodes(Codes8 codes) {
  return __builtin_bit_cast(Codes16, _mm_cvtepu8_epi16(lowHalf(codes)));
}
[[gnu::always_inline]] inline Floats widenHalves(Codes16 codes) {
  return _mm256_cvtph_ps(__builtin_bit_cast(__m128i, codes));
}
[[gnu::always_inline]] inline Codes16 narrowHalves(Floats values) {
  return __builtin_bit_cast(Codes16, _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
}
#else
constexpr bool kConvertsHalves = false;
template <typename Vector>
[[gnu::always_inline]] inline Words wordsOf(Vector codes) {
  return __builtin_convertvector(codes, Words);
}
template <typename Vector>
[[gnu::always_inline]] inline void setCodes(Vector& codes, Words words) {
  codes = __builtin_convertvector(words, Vector);
}
[[gnu::always_inline]] inline Codes16 widerCodes(Codes8 codes) {
  return __builtin_convertvector(codes, Codes16);
}
[[gnu::always_inline]] inline Floats widenHalves(Codes16 codes) {
  return widenLanes<Float16, Floats>(wordsOf(codes));
}
[[gnu::always_inline]] inline Codes16 narrowHalves(Floats values) {
  Codes16 codes;
  setCodes(codes, narrowLanes<Float16, Words>(values));
  return codes;
}
#endif

// fp8 widens through fp16: e5m2 is the upper half of one; e4m3, one whose exponent is biased by
// eight more, which pays where the processor converts. Narrowing that way would round twice.
template <typename Format>
[[gnu::always_inline]] inline Floats widenCodes(Codes<Format> codes) {
  if constexpr (std::is_same_v<Format, Float16>) {
    return widenHalves(codes);
  } else if constexpr (std::is_same_v<Format, Float8E5M2>) {
    return widenHalves(widerCodes(codes) << 8);
  } else if constexpr (std::is_same_v<Format, Float8E4M3> && kConvertsHalves) {
    const Codes16 wide = widerCodes(codes);
    const Codes16 magnitude = wide & 0x7f;
    const Codes16 halves = ((wide & 0x80) << 8) | (magnitude << 7);
    const Codes16 nan = Codes16{} + uint16_t{Float16::kNan};
    return widenHalves(choose(magnitude == uint16_t{Format::kNan}, nan, halves)) * 256.0F;
  } else {
    return widenLanes<Format, Floats>(wordsOf(codes));
  }
}

template <typename Format>
[[gnu::always_inline]] inline Codes<Format> narrowFloats(Floats values) {
  if constexpr (std::is_same_v<Format, Float16>) {
    const Codes16 codes = narrowHalves(values);
    const Codes16 nan = Codes16{} + uint16_t{Float16::kNan};
    return choose((codes & 0x7fff) > uint16_t{Float16::kOverflow}, nan, codes);
  } else {
    Codes<Format> codes;
    setCodes(codes, narrowLanes<Format, Words>(values));
    return codes;
  }
}

// Where in its buffers a loop is: at a whole vector of elements, or, for the last one, at fewer.
template <typename Format, bool kShort>
struct Lanes {
  size_t offset;     // elements
  size_t count = 0;  // elements, if short

  [[gnu::always_inline]] Floats widen(ConstBytes in) const {
    return widenCodes<Format>(get<Codes<Format>>(in));
  }
  [[gnu::always_inline]] void narrow(Bytes out, Floats values) const {
    put(out, narrowFloats<Format>(values));
  }
  [[gnu::always_inline]] Floats read(ConstBytes in) const { return get<Floats>(in); }
  [[gnu::always_inline]] void write(Bytes out, Floats values) const { put(out, values); }

 private:
  template <typename Vector>
  [[gnu::always_inline]] Vector get(ConstBytes in) const {
    constexpr size_t kSize = sizeof(Vector) / kLanes;
    Vector vector = {};
    __builtin_memcpy(&vector, in + offset * kSize, kShort ? count * kSize : sizeof(Vector));
    return vector;
  }
  template <typename Vector>
  [[gnu::always_inline]] void put(Bytes out, Vector vector) const {
    constexpr size_t kSize = sizeof(Vector) / kLanes;
    __builtin_memcpy(out + offset * kSize, &vector, kShort ? count * kSize : sizeof(Vector));
  }
};

// Calls body with the lanes of every vector of a buffer.
template <typename Format, typename Body>
[[gnu::always_inline]] inline void forLanes(size_t count, Body body) {
  size_t offset = 0;
  for (; offset + kLanes <= count; offset += kLanes) body(Lanes<Format, false>{.offset = offset});
  if (offset < count) body(Lanes<Format, true>{.offset = offset, .count = count - offset});
}

template <typename Format, typename Op>
void codePairLoop(Bytes out, ConstBytes a, ConstBytes b, size_t count) {
  forLanes<Format>(
      count, [=](auto lanes) __attribute__((always_inline)) {
        lanes.narrow(out, Op::apply(lanes.widen(a), lanes.widen(b)));
      });
}

template <typename Format, typename Op>
void codeExtendLoop(Bytes out, ConstBytes accumulator, ConstBytes a, size_t count) {
  forLanes<Format>(
      count, [=](auto lanes) __attribute__((always_inline)) {
        lanes.write(out, Op::apply(lanes.read(accumulator), lanes.widen(a)));
      });
}

template <typename Format, typename Op>
void codeExtend2Loop(Bytes out, ConstBytes accumulator, ConstBytes a, ConstBytes b, size_t count) {
  forLanes<Format>(
      count, [=](auto lanes) __attribute__((always_inline)) {
        const Floats first = Op::apply(lanes.read(accumulator), lanes.widen(a));
        lanes.write(out, Op::apply(first, lanes.widen(b)));
      });
}

template <typename Format>
void codeWidenLoop(Bytes out, ConstBytes in, size_t count) {
  forLanes<Format>(
      count, [=](auto lanes) __attribute__((always_inline)) { lanes.write(out, lanes.widen(in)); });
}

template <typename Format>
void codeNarrowLoop(Bytes out, ConstBytes in, size_t count) {
  forLanes<Format>(
      count, [=](auto lanes) __attribute__((always_inline)) { lanes.narrow(out, lanes.read(in)); });
}

template <typename Format>
void codeDivideLoop(Bytes out, ConstBytes in, int32_t divisor, size_t count) {
  forLanes<Format>(
      count, [=](auto lanes) __attribute__((always_inline)) {
        lanes.narrow(out, lanes.read(in) / static_cast<float>(divisor));
      });
}

// The scalar is a code as well; the products stay fp32.
template <typename Format>
void codeScaleLoop(Bytes out, ConstBytes in, const Scalar& scale, size_t count) {
  typename Format::Bits code;
  __builtin_memcpy(&code, scale.bytes, sizeof(code));
  const float factor = widen<Format>(code);
  TUTTI_INDEPENDENT_ITERATIONS
  for (size_t i = 0; i < count; ++i) store(out, i, Prod::apply(load<float>(in, i), factor));
}

// ---- past the cache -----------------------------------------------------------------------------

#if defined(__AVX512F__)
void streamLoop(Bytes out, ConstBytes in, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i), _mm512_loadu_si512(in + i));
  }
}
#elif defined(__AVX2__)
void streamLoop(Bytes out, ConstBytes in, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i)));
  }
}
#elif defined(__SSE2__)
void streamLoop(Bytes out, ConstBytes in, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i)));
  }
}
#endif

// ---- the table ----------------------------------------------------------------------------------

// Sums and products of integers wrap alike with and without a sign: one loop serves both.
template <typename T>
constexpr TypeLoops nativeLoops() {
  using Wrapping = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                               std::type_identity<T>>::type;
  constexpr std::array<PairLoop, kCombineCount> kPair = {
      pairLoop<Wrapping, Sum>, pairLoop<Wrapping, Prod>, pairLoop<T, Max>, pairLoop<T, Min>};
  return {.accumulatorSize = sizeof(T),
          .pair = kPair,
          .extend = kPair,
          .extend2 = {tripleLoop<Wrapping, Sum>, tripleLoop<Wrapping, Prod>, tripleLoop<T, Max>,
                      tripleLoop<T, Min>},
          .scale = scaleLoop<Wrapping>,
          .divide = divideLoop<T>};
}

template <typename Format>
constexpr TypeLoops codeLoops() {
  return {.accumulatorSize = sizeof(float),
          .pair = {codePairLoop<Format, Sum>, codePairLoop<Format, Prod>, codePairLoop<Format, Max>,
                   codePairLoop<Format, Min>},
          .extend = {codeExtendLoop<Format, Sum>, codeExtendLoop<Format, Prod>,
                     codeExtendLoop<Format, Max>, codeExtendLoop<Format, Min>},
          .extend2 = {codeExtend2Loop<Format, Sum>, codeExtend2Loop<Format, Prod>,
                      codeExtend2Loop<Format, Max>, codeExtend2Loop<Format, Min>},
          .scale = codeScaleLoop<Format>,
          .divide = codeDivideLoop<Format>,
          .widen = codeWidenLoop<Format>,
          .narrow = codeNarrowLoop<Format>};
}

consteval TypeLoops loopsOf(DataType type) {
  switch (type) {
    case DataType::kInt8: return nativeLoops<int8_t>();
    case DataType::kUint8: return nativeLoops<uint8_t>();
    case DataType::kInt32: return nativeLoops<int32_t>();
    case DataType::kUint32: return nativeLoops<uint32_t>();
    case DataType::kInt64: return nativeLoops<int64_t>();
    case DataType::kUint64: return nativeLoops<uint64_t>();
    case DataType::kFloat16: return codeLoops<Float16>();
    case DataType::kFloat32: return nativeLoops<float>();
    case DataType::kFloat64: return nativeLoops<double>();
    case DataType::kBfloat16: return codeLoops<Bfloat16>();
    case DataType::kFloat8E4M3: return codeLoops<Float8E4M3>();
    case DataType::kFloat8E5M2: return codeLoops<Float8E5M2>();
  }
  return {};
}

consteval FoldTable makeFoldTable(const char* name) {
  FoldTable table{.name = name, .types = {}, .stream = nullptr, .fenceStreams = nullptr};
  for (size_t i = 0; i < table.types.size(); ++i) {
    table.types[i] = loopsOf(static_cast<DataType>(i));
  }
#if defined(__SSE2__)
  table.stream = streamLoop;
  table.fenceStreams = [] { _mm_sfence(); };
#endif
  return table;
}

}  // namespace
}  // namespace tutti::kernels::cpu
