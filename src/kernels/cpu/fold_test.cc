#include "kernels/cpu/fold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "kernels/cpu/fold_testing.h"
#include "kernels/kernels.h"

namespace tutti::kernels::cpu {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};

// ---- inputs and buffers -------------------------------------------------------------------------

// Any bits at all with many zeros of both signs, or ordinary numbers: sums of many of the former
// are mostly NaN or infinite.
enum class Values { kAny, kOrdinary };

uint64_t anyBits(DataType type, SeededRng& rng) {
  const uint64_t bits = rng.next();
  return rng.below(4) != 0 ? bits : bits & (uint64_t{1} << (8 * sizeOf(type) - 1));
}

uint64_t ordinaryBits(DataType type, SeededRng& rng) {
  const auto eighths = static_cast<float>(rng.below(257)) / 8.0F - 16.0F;
  switch (type) {
    case DataType::kFloat16: return narrow<Float16>(eighths);
    case DataType::kBfloat16: return narrow<Bfloat16>(eighths);
    case DataType::kFloat8E4M3: return narrow<Float8E4M3>(eighths);
    case DataType::kFloat8E5M2: return narrow<Float8E5M2>(eighths);
    case DataType::kFloat32: return std::bit_cast<uint32_t>(eighths / 3.0F);
    case DataType::kFloat64: return std::bit_cast<uint64_t>(double{eighths} / 3.0);
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kInt64:
    case DataType::kUint64: return rng.below(7);
  }
  return 0;
}

class Buffer {
 public:
  // Misalignment: bytes past a 64-byte boundary.
  Buffer(size_t bytes, size_t misalignment)
      : memory_(bytes + 2 * kGuardBytes + 64 + misalignment, kGuard), bytes_(bytes) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    start_ = (64 - address % 64) % 64 + kGuardBytes + misalignment;
  }

  std::byte* data() { return memory_.data() + start_; }
  const std::byte* data() const { return memory_.data() + start_; }
  size_t size() const { return bytes_; }

  void fill(DataType type, Values values, SeededRng& rng) {
    for (size_t at = 0; at < bytes_; at += sizeOf(type)) {
      const uint64_t bits = values == Values::kAny ? anyBits(type, rng) : ordinaryBits(type, rng);
      std::memcpy(data() + at, &bits, sizeOf(type));
    }
  }

  bool guardsAreIntact() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const bool outside = i < start_ || i >= start_ + bytes_;
      if (outside && memory_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  std::vector<std::byte> memory_;
  size_t bytes_;
  size_t start_ = 0;
};

std::string describeWork(const Work& work, size_t sources, size_t count) {
  return std::string(name(work.spec.type)) + " " + std::string(name(work.spec.op)) + ", " +
         std::to_string(sources) + " sources of " + std::to_string(count) + ", scaled " +
         std::to_string(work.scaledSource) + ", post " + std::to_string(work.post) + ", ranks " +
         std::to_string(work.spec.rankCount);
}

// The buffers of one fold, and where the destinations are: in buffers of their own unless a test
// points them at sources.
class Trial {
 public:
  Trial(const Work& what, size_t sourceCount, size_t count, SeededRng& rng)
      : work(what), elementCount(count), streamed(rng.below(4)) {
    const Values values = rng.below(2) == 0 ? Values::kAny : Values::kOrdinary;
    for (size_t i = 0; i < sourceCount; ++i) {
      buffers.emplace_back(count * sizeOf(work.spec.type), rng.below(9));
      buffers.back().fill(work.spec.type, values, rng);
      before.emplace_back(buffers.back().data(), buffers.back().data() + buffers.back().size());
    }
  }

  void addDestinations(size_t destinationCount, SeededRng& rng) {
    for (size_t i = 0; i < destinationCount; ++i) {
      buffers.emplace_back(elementCount * sizeOf(work.spec.type), rng.below(9));
      targets.push_back(buffers.size() - 1);
    }
  }

  void run(const FoldTable& table, size_t from, size_t count) {
    std::vector<const void*> sources;
    std::vector<void*> destinations;
    const size_t offset = from * sizeOf(work.spec.type);
    for (size_t i = 0; i < before.size(); ++i) sources.push_back(buffers[i].data() + offset);
    for (const size_t i : targets) destinations.push_back(buffers[i].data() + offset);
    foldWith(table, work.spec,
             {.sources = sources,
              .destinations = destinations,
              .elementCount = count,
              .scaledSource = work.scaledSource,
              .post = work.post,
              .streamedCount = std::min(streamed, destinations.size())});
  }
  void run(const FoldTable& table) { run(table, 0, elementCount); }

  void check() const {
    SCOPED_TRACE(describeWork(work, before.size(), elementCount));
    for (const Buffer& buffer : buffers) ASSERT_TRUE(buffer.guardsAreIntact());
    for (size_t i = 0; i < before.size(); ++i) {
      if (std::find(targets.begin(), targets.end(), i) != targets.end()) continue;
      ASSERT_TRUE(before[i].empty() ||
                  std::memcmp(before[i].data(), buffers[i].data(), before[i].size()) == 0)
          << "source " << i << " was written";
    }
    std::vector<uint64_t> elements(before.size());
    for (size_t i = 0; i < elementCount; ++i) {
      for (size_t source = 0; source < before.size(); ++source) {
        elements[source] = bitsAt(work.spec.type, before[source].data(), i);
      }
      const uint64_t wanted = reference(work, elements);
      for (const size_t target : targets) {
        ASSERT_EQ(bitsAt(work.spec.type, buffers[target].data(), i), wanted) << "element " << i;
      }
    }
  }

  Work work;
  size_t elementCount;
  size_t streamed;                             // changes nothing but where the stores go
  std::vector<Buffer> buffers;                 // the sources, then the destinations' own
  std::vector<std::vector<std::byte>> before;  // what the sources held
  std::vector<size_t> targets;                 // which buffers are destinations
};

Work randomWork(DataType type, ReduceOp op, size_t sources, SeededRng& rng) {
  constexpr std::array<int32_t, 7> kRankCounts = {1, 2, 3, 7, 64, 300, 100'003};
  Work work{.spec = {.type = type, .op = op, .rankCount = 1, .preScale = {}}};
  work.spec.rankCount = kRankCounts[rng.below(kRankCounts.size())];
  const uint64_t scale = rng.below(4) == 0 ? rng.next() : ordinaryBits(type, rng);
  std::memcpy(work.spec.preScale.bytes, &scale, sizeOf(type));
  work.scaledSource = static_cast<int32_t>(rng.below(sources + 1)) - 1;
  work.post = rng.below(4) != 0;
  return work;
}

constexpr std::array<ReduceOp, kReduceOpCount> kOps = {ReduceOp::kSum, ReduceOp::kProd,
                                                       ReduceOp::kMax, ReduceOp::kMin,
                                                       ReduceOp::kAvg, ReduceOp::kPreMulSum};

// ---- every table, every type --------------------------------------------------------------------

class Fold : public testing::TestWithParam<std::tuple<const FoldTable*, int>> {
 protected:
  const FoldTable& table() const { return *std::get<0>(GetParam()); }
  DataType type() const { return static_cast<DataType>(std::get<1>(GetParam())); }
};

TEST_P(Fold, GivesTheReferenceBitForBitAndTouchesNothingElse) {
  SeededRng rng(1);
  for (const ReduceOp op : kOps) {
    for (const size_t sources : {1UL, 2UL, 3UL, 4UL, 5UL, 6UL, 7UL, 8UL, 9UL, 64UL}) {
      for (const size_t count : {0UL, 1UL, 2UL, 61UL, 1023UL, 1024UL, 1025UL, 4099UL}) {
        if (sources == 64 && count > 1025) continue;
        Trial trial(randomWork(type(), op, sources, rng), sources, count, rng);
        trial.addDestinations(1 + rng.below(3), rng);
        trial.run(table());
        ASSERT_NO_FATAL_FAILURE(trial.check());
      }
    }
  }
}

TEST_P(Fold, FoldsShortBuffersOfEveryLength) {
  SeededRng rng(2);
  for (size_t count = 1; count <= 70; ++count) {
    for (const ReduceOp op : kOps) {
      Trial trial(randomWork(type(), op, 2, rng), 2, count, rng);
      trial.addDestinations(1, rng);
      trial.run(table());
      ASSERT_NO_FATAL_FAILURE(trial.check());
    }
  }
}

TEST_P(Fold, MayWriteOverAnyOfItsSources) {
  SeededRng rng(3);
  for (const ReduceOp op : kOps) {
    for (size_t sources = 1; sources <= 6; ++sources) {
      for (size_t target = 0; target < sources; ++target) {
        for (const size_t count : {5UL, 1031UL, 2050UL}) {
          Trial trial(randomWork(type(), op, sources, rng), sources, count, rng);
          trial.targets.push_back(target);
          if (rng.below(2) == 0 && sources > 1) trial.targets.push_back((target + 1) % sources);
          if (rng.below(2) == 0) trial.addDestinations(1, rng);
          trial.run(table());
          ASSERT_NO_FATAL_FAILURE(trial.check());
        }
      }
    }
  }
}

TEST_P(Fold, DoesNotDependOnHowABufferIsCut) {
  SeededRng rng(4);
  constexpr size_t kCount = 3001;
  for (const ReduceOp op : kOps) {
    for (const size_t sources : {1UL, 2UL, 3UL, 5UL}) {
      Trial whole(randomWork(type(), op, sources, rng), sources, kCount, rng);
      whole.addDestinations(2, rng);
      Trial cut = whole;
      whole.run(table());
      for (size_t from = 0; from < kCount;) {
        const size_t piece = std::min<size_t>(1 + rng.below(700), kCount - from);
        cut.run(table(), from, piece);
        from += piece;
      }
      for (const size_t target : whole.targets) {
        ASSERT_EQ(std::memcmp(whole.buffers[target].data(), cut.buffers[target].data(),
                              whole.buffers[target].size()),
                  0)
            << describeWork(whole.work, sources, kCount);
      }
    }
  }
}

TEST_P(Fold, GivesTheSameBitsAsTheBaseline) {
  SeededRng rng(5);
  for (const ReduceOp op : kOps) {
    Trial trial(randomWork(type(), op, 3, rng), 3, 20'000, rng);
    for (size_t i = 0; i < 3; ++i) trial.buffers[i].fill(type(), Values::kAny, rng);
    trial.addDestinations(2, rng);
    const size_t own = trial.targets[0];
    const size_t baseline = trial.targets[1];
    trial.targets = {own};
    trial.run(table());
    trial.targets = {baseline};
    trial.run(baselineFoldTable());
    ASSERT_EQ(std::memcmp(trial.buffers[own].data(), trial.buffers[baseline].data(),
                          trial.buffers[own].size()),
              0)
        << name(op);
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Fold,
    testing::Combine(testing::ValuesIn(supportedFoldTables().begin(), supportedFoldTables().end()),
                     testing::Range(0, kDataTypeCount)),
    [](const auto& instance) {
      return std::string(std::get<0>(instance.param)->name) + "_" +
             std::string(name(static_cast<DataType>(std::get<1>(instance.param))));
    });

// ---- rules a caller may rely on, through kernels::fold ------------------------------------------

template <typename T>
T foldOne(const FoldSpec& spec, std::initializer_list<T> sources, bool post = false,
          int32_t scaledSource = -1) {
  std::vector<const void*> pointers;
  for (const T& source : sources) pointers.push_back(&source);
  T result = {};
  std::array<void*, 1> destinations = {&result};
  fold(spec, {.sources = pointers,
              .destinations = destinations,
              .elementCount = 1,
              .scaledSource = scaledSource,
              .post = post});
  return result;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(FoldRules, MaxAndMinPropagateNanFromEitherSide) {
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
    const FoldSpec single{.type = DataType::kFloat32, .op = op, .rankCount = 1, .preScale = {}};
    EXPECT_TRUE(std::isnan(foldOne<float>(single, {kNan, 1})));
    EXPECT_TRUE(std::isnan(foldOne<float>(single, {1, kNan})));
    EXPECT_TRUE(std::isnan(foldOne<float>(single, {1, kNan, 2, 3})));
    const FoldSpec half{.type = DataType::kFloat16, .op = op, .rankCount = 1, .preScale = {}};
    EXPECT_EQ(foldOne<uint16_t>(half, {0xfe01, 0x3c00}), 0x7fff);
    EXPECT_EQ(foldOne<uint16_t>(half, {0x3c00, 0x7c01}), 0x7fff);
  }
}

TEST(FoldRules, MinusZeroIsLessThanPlusZero) {
  const FoldSpec max{.type = DataType::kFloat64, .op = ReduceOp::kMax, .preScale = {}};
  EXPECT_FALSE(std::signbit(foldOne<double>(max, {-0.0, 0.0})));
  EXPECT_FALSE(std::signbit(foldOne<double>(max, {0.0, -0.0})));
  const FoldSpec min{.type = DataType::kBfloat16, .op = ReduceOp::kMin, .preScale = {}};
  EXPECT_EQ(foldOne<uint16_t>(min, {0x8000, 0x0000}), 0x8000);
  EXPECT_EQ(foldOne<uint16_t>(min, {0x0000, 0x8000}), 0x8000);
}

TEST(FoldRules, OneSourceIsCopiedBitForBit) {
  const FoldSpec sum{.type = DataType::kFloat32, .op = ReduceOp::kSum, .preScale = {}};
  EXPECT_EQ(foldOne<uint32_t>(sum, {0xff812345}), 0xff812345);  // a signalling NaN with a payload
  const FoldSpec average{
      .type = DataType::kFloat16, .op = ReduceOp::kAvg, .rankCount = 4, .preScale = {}};
  EXPECT_EQ(foldOne<uint16_t>(average, {0xfe01}), 0xfe01);
  EXPECT_EQ(foldOne<uint16_t>(average, {0x4000}, true), 0x3800);  // 2 / 4
}

TEST(FoldRules, IntegersWrapAndAveragesRoundTowardZero) {
  FoldSpec spec{.type = DataType::kInt32, .op = ReduceOp::kSum, .rankCount = 2, .preScale = {}};
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(foldOne<int32_t>(spec, {kMax, 1}), kMin);
  spec.op = ReduceOp::kAvg;
  EXPECT_EQ(foldOne<int32_t>(spec, {kMax, 1}, true), kMin / 2);
  EXPECT_EQ(foldOne<int32_t>(spec, {-4, 1}, true), -1);
  EXPECT_EQ(foldOne<int32_t>(spec, {kMax - 1, 0}, true), kMax / 2);
  spec.type = DataType::kInt64;
  EXPECT_EQ(foldOne<int64_t>(spec, {-4, 1}, true), -1);
  spec.type = DataType::kInt8;
  spec.rankCount = 300;  // more ranks than the type can count
  EXPECT_EQ(foldOne<int8_t>(spec, {-100, -20}, true), 0);
}

TEST(FoldRules, LowPrecisionRoundsOnceAfterAllSources) {
  // 2048 + 1 + 1 in fp16: each 1 alone would be rounded away, both together are one step.
  const FoldSpec half{.type = DataType::kFloat16, .op = ReduceOp::kSum, .preScale = {}};
  EXPECT_EQ(foldOne<uint16_t>(half, {0x6800, 0x3c00, 0x3c00}), 0x6801);
  // 240 + 240 in e4m3 saturates only at the end: minus 240 it is 240 again.
  const FoldSpec fp8{.type = DataType::kFloat8E4M3, .op = ReduceOp::kSum, .preScale = {}};
  EXPECT_EQ(foldOne<uint8_t>(fp8, {0x77, 0x77, 0xf7}), 0x77);
  EXPECT_EQ(foldOne<uint8_t>(fp8, {0x77, 0x7e}), 0x7e);
}

TEST(FoldRules, OnlyTheNamedSourceIsScaled) {
  FoldSpec spec{.type = DataType::kFloat32, .op = ReduceOp::kPreMulSum, .preScale = {}};
  const float scale = 0.5F;
  std::memcpy(spec.preScale.bytes, &scale, sizeof(scale));
  EXPECT_EQ(foldOne<float>(spec, {8, 3}, false, 0), 7.0F);
  EXPECT_EQ(foldOne<float>(spec, {8, 3}, false, 1), 9.5F);
  EXPECT_EQ(foldOne<float>(spec, {8, 3}, false, -1), 11.0F);
  EXPECT_EQ(foldOne<float>(spec, {8}, false, 0), 4.0F);
  spec.op = ReduceOp::kSum;
  EXPECT_EQ(foldOne<float>(spec, {8, 3}, false, 0), 11.0F);
}

TEST(FoldRules, NothingIsReadOrWrittenWhenThereIsNothingToFold) {
  const std::array<const void*, 2> sources = {nullptr, nullptr};
  const std::array<void*, 1> destinations = {nullptr};
  fold({}, {.sources = sources, .destinations = destinations, .elementCount = 0});
}

TEST(FoldRules, TheThreadsRoundingModeNeitherCountsNorChanges) {
  const FoldSpec sum{.type = DataType::kFloat32, .op = ReduceOp::kSum, .preScale = {}};
  // Volatile: added at run time. fegetround() may look at another register than sums obey.
  const volatile float one = 1.0F;
  const volatile float little = 0x1p-30F;
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const float folded = foldOne<float>(sum, {1.0F, 0x1p-30F});
  const volatile float added = one + little;
  ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
  EXPECT_EQ(folded, 1.0F);
  EXPECT_GT(added, 1.0F);
}

TEST(FoldRules, SumsStayWithinTheirRoundingErrorOfAFloat64Reference) {
  SeededRng rng(6);
  constexpr size_t kCount = 1000;
  constexpr size_t kSources = 8;
  std::vector<std::vector<float>> inputs(kSources, std::vector<float>(kCount));
  std::vector<const void*> sources;
  for (auto& input : inputs) {
    for (float& value : input) value = std::ldexp(static_cast<float>(rng.below(1U << 24)), -24);
    sources.push_back(input.data());
  }
  std::vector<float> result(kCount);
  const std::array<void*, 1> destinations = {result.data()};
  fold({.type = DataType::kFloat32, .op = ReduceOp::kSum, .preScale = {}},
       {.sources = sources, .destinations = destinations, .elementCount = kCount});
  for (size_t i = 0; i < kCount; ++i) {
    double exact = 0;
    for (const auto& input : inputs) exact += input[i];
    // Seven additions of positive numbers, each off by half a unit in the last place at most.
    EXPECT_NEAR(result[i], exact, exact * 7 * 0x1p-24);
  }
}

}  // namespace
}  // namespace tutti::kernels::cpu
