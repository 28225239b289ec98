#include "kernels/cpu/float_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/rng.h"
#include "kernels/cpu/float_formats_testing.h"

namespace tutti::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename Format>
class FloatFormats : public testing::Test {
 public:
  static constexpr uint32_t kCodes = 1U << (8 * sizeof(typename Format::Bits));
};

using Formats = testing::Types<Float16, Bfloat16, Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(FloatFormats, Formats);

TYPED_TEST(FloatFormats, WidensEveryCodeToItsExactValue) {
  const Description format = describe<TypeParam>();
  for (uint32_t code = 0; code < this->kCodes; ++code) {
    const float value = widen<TypeParam>(static_cast<typename TypeParam::Bits>(code));
    const double wanted = valueOf(format, code);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(value)) << code;
    } else {
      ASSERT_EQ(static_cast<double>(value), wanted) << code;
      ASSERT_EQ(std::signbit(value), std::signbit(wanted)) << code;
    }
  }
}

TYPED_TEST(FloatFormats, NarrowingAWidenedCodeGivesItBack) {
  const Description format = describe<TypeParam>();
  for (uint32_t code = 0; code < this->kCodes; ++code) {
    const auto bits = static_cast<typename TypeParam::Bits>(code);
    const uint32_t back = narrow<TypeParam>(widen<TypeParam>(bits));
    const double value = valueOf(format, code);
    if (std::isnan(value)) {
      ASSERT_EQ(back, format.narrowedNan) << code;
    } else if (std::isinf(value) && format.saturates) {
      ASSERT_EQ(back, code - 1) << code;  // the largest finite value of the same sign
    } else {
      ASSERT_EQ(back, code);
    }
  }
}

TYPED_TEST(FloatFormats, RoundsToTheNearestCodeAroundEveryBoundary) {
  const Description format = describe<TypeParam>();
  const SlowNarrow reference(format);
  for (uint32_t code = 0; code <= format.largest; ++code) {
    const double value = valueOf(format, code);
    const double next =
        code < format.largest ? valueOf(format, code + 1) : 2 * value - valueOf(format, code - 1);
    const auto middle = static_cast<float>((value + next) / 2);
    const auto exact = static_cast<float>(value);
    for (const float center : {exact, middle}) {
      for (const float around :
           {std::nextafter(center, -kInfinity), center, std::nextafter(center, kInfinity)}) {
        ASSERT_EQ(narrow<TypeParam>(around), reference(around)) << around;
        ASSERT_EQ(narrow<TypeParam>(-around), reference(-around)) << -around;
      }
    }
  }
}

TYPED_TEST(FloatFormats, RoundsAnyFloatLikeASearchForTheNearest) {
  const SlowNarrow reference(describe<TypeParam>());
  SeededRng rng(7);
  for (int i = 0; i < 200'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(rng.next()));
    ASSERT_EQ(narrow<TypeParam>(value), reference(value)) << value;
  }
}

TYPED_TEST(FloatFormats, NarrowsTheExtremesByTheirRule) {
  const Description format = describe<TypeParam>();
  const uint32_t sign = this->kCodes / 2;
  const uint32_t overflow = format.saturates ? format.largest : format.largest + 1;
  for (const float huge : {kInfinity, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(narrow<TypeParam>(huge), overflow);
    EXPECT_EQ(narrow<TypeParam>(-huge), sign | overflow);
  }
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(narrow<TypeParam>(0.0F), 0U);
  EXPECT_EQ(narrow<TypeParam>(-0.0F), sign);
  EXPECT_EQ(narrow<TypeParam>(tiny), 0U);
  EXPECT_EQ(narrow<TypeParam>(-tiny), sign);
  for (const uint32_t nan : {0x7fc00000U, 0xffc00000U, 0x7f800001U, 0xffffffffU}) {
    EXPECT_EQ(narrow<TypeParam>(std::bit_cast<float>(nan)), format.narrowedNan);
  }
}

}  // namespace
}  // namespace tutti::kernels::cpu
