#include "tools/perf_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace tutti::tools {
namespace {

const std::vector<DataType> kAllTypes = parseTypes("all").value();
const std::vector<ReduceOp> kAllOps = parseOps("all").value();

// One rank's memory for a call, as the measurement lays it out.
struct Memory {
  explicit Memory(size_t size) : dataBytes(size), bytes(size + 2 * kGuardBytes) {
    fillGuards(bytes, dataBytes);
    poison(data());
  }
  std::span<std::byte> data() { return std::span(bytes).subspan(kGuardBytes, dataBytes); }

  size_t dataBytes;
  std::vector<std::byte> bytes;
};

uint64_t countAll(std::span<const std::byte> data, const std::vector<Segment>& segments,
                  size_t elementBytes) {
  uint64_t wrong = 0;
  for (const Segment& segment : segments) wrong += countWrong(data, segment, elementBytes);
  return wrong;
}

Call callOf(Operation operation, size_t count, int rankCount, int rank, int root = 0) {
  Call call{.operation = operation, .shape = {}, .rank = rank, .root = root};
  call.shape = shapeOf(operation, count, 1, rankCount, rank);
  return call;
}

TEST(PerfCheck, CountsEachCorruptedElementOfEveryType) {
  constexpr size_t kCount = 2 * kPeriod + 100;
  for (DataType type : kAllTypes) {
    for (ReduceOp op : kAllOps) {
      PatternCache patterns({.type = type, .op = op, .rankCount = 4});
      const Call call = callOf(Operation::kAllReduce, kCount, 4, 1);
      const Expectation expectation = expect(call, patterns, 4099);
      const size_t elementBytes = sizeOf(type);
      Memory memory(kCount * elementBytes);
      fillSegment(memory.data(), expectation.received.front());
      ASSERT_EQ(countAll(memory.data(), expectation.received, elementBytes), 0U);
      for (size_t index : {size_t{0}, size_t{777}, kPeriod, kCount - 1}) {
        // The top byte holds sign and exponent, or the most significant bits.
        memory.data()[index * elementBytes + elementBytes - 1] ^= std::byte{0x60};
      }
      EXPECT_EQ(countAll(memory.data(), expectation.received, elementBytes), 4U)
          << name(type) << ' ' << name(op);
    }
  }
}

TEST(PerfCheck, SeesAMissingRank) {
  constexpr size_t kCount = 1000;
  for (DataType type : kAllTypes) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd}) {
      PatternCache right({.type = type, .op = op, .rankCount = 4});
      const Expectation expectation = expect(callOf(Operation::kAllReduce, kCount, 4, 0), right, 0);
      // What comes out if rank 3's contribution is replaced by nothing: the input of rank 0 alone
      // is as good a wrong result as any.
      Memory memory(kCount * sizeOf(type));
      fillSegment(memory.data(), {.offset = 0, .count = kCount, .pattern = &right.input(0)});
      EXPECT_GT(countAll(memory.data(), expectation.received, sizeOf(type)), kCount / 4)
          << name(type) << ' ' << name(op);
    }
  }
}

TEST(PerfCheck, SeesResultsThatNeverArrived) {
  for (Operation operation : {Operation::kAllReduce, Operation::kAllGather, Operation::kAllToAll}) {
    ValueSpec spec{.type = DataType::kFloat32, .op = {}, .rankCount = 2};
    if (isReduction(operation)) spec.op = ReduceOp::kSum;
    PatternCache patterns(spec);
    const Call call = callOf(operation, 100, 2, 0);
    const Expectation expectation = expect(call, patterns, 5);
    Memory memory(100 * 4);
    EXPECT_EQ(countAll(memory.data(), expectation.received, 4), 100U) << name(operation);
  }
}

TEST(PerfCheck, SeesStaleResultsOfAnEarlierCheck) {
  PatternCache patterns({.type = DataType::kFloat32, .op = ReduceOp::kSum, .rankCount = 2});
  const Call call = callOf(Operation::kAllReduce, 1000, 2, 0);
  Memory memory(4000);
  fillSegment(memory.data(), expect(call, patterns, 4099).received.front());
  EXPECT_GT(countAll(memory.data(), expect(call, patterns, 8198).received, 4), 990U);
}

TEST(PerfCheck, SeesBlocksInTheWrongPlace) {
  PatternCache patterns({.type = DataType::kInt32, .op = {}, .rankCount = 3});
  const Expectation expectation = expect(callOf(Operation::kAllToAll, 30, 3, 1), patterns, 0);
  ASSERT_EQ(expectation.received.size(), 3U);
  Memory memory(30 * 4);
  for (Segment segment : expectation.received) {
    segment.offset = (segment.offset + 10) % 30;
    fillSegment(memory.data(), segment);
  }
  EXPECT_EQ(countAll(memory.data(), expectation.received, 4), 30U);
}

TEST(PerfCheck, OnlyTheRootMayBeWritten) {
  PatternCache patterns({.type = DataType::kInt32, .op = ReduceOp::kSum, .rankCount = 2});
  const Call call = callOf(Operation::kReduce, 10, 2, /*rank=*/1, /*root=*/0);
  const Expectation expectation = expect(call, patterns, 0);
  Memory memory(40);
  EXPECT_EQ(countAll(memory.data(), expectation.received, 4), 0U);
  memory.data()[17] = std::byte{0};
  EXPECT_EQ(countAll(memory.data(), expectation.received, 4), 1U);
}

TEST(PerfCheck, InPlaceGatherKeepsTheInputOfTheOthers) {
  PatternCache patterns({.type = DataType::kUint8, .op = {}, .rankCount = 4});
  const Call call = callOf(Operation::kGather, 40, 4, /*rank=*/2, /*root=*/0);
  const Expectation expectation = expectInPlace(call, patterns, 0);
  Memory memory(40);
  fillSegment(memory.data(), expectation.sent.front());
  EXPECT_EQ(expectation.sent.front().offset, 20U);
  EXPECT_EQ(countAll(memory.data(), expectation.received, 1), 0U);
  memory.data()[20] ^= std::byte{1};
  EXPECT_EQ(countAll(memory.data(), expectation.received, 1), 1U);
}

TEST(PerfCheck, SeesWritesBeyondTheBuffer) {
  for (size_t offset : {kGuardBytes - 1, kGuardBytes + 100}) {
    Memory memory(100);
    ASSERT_EQ(countGuardErrors(memory.bytes, 100), 0U);
    memory.bytes[offset] ^= std::byte{0x10};
    EXPECT_EQ(countGuardErrors(memory.bytes, 100), 1U) << offset;
  }
}

TEST(PerfValues, InputsAreNeverZero) {
  for (DataType type : kAllTypes) {
    for (ReduceOp op : kAllOps) {
      const Pattern input = makeInput({.type = type, .op = op, .rankCount = 8}, 3);
      for (size_t i = 0; i < kPeriod; ++i) {
        ASSERT_NE(loadElement(type, input.bits.data() + i * sizeOf(type)), 0.0)
            << name(type) << ' ' << name(op);
      }
    }
  }
}

// The same element folded in three orders, rounding to the type after each step: rings that start
// anywhere, and halves that meet. Exactly the reference, or within the tolerance that is allowed.
double foldInType(const ValueSpec& spec, const std::vector<Pattern>& inputs, int first,
                  size_t index) {
  unsigned char element[8];
  double total = 0;
  for (int i = 0; i < spec.rankCount; ++i) {
    const int rank = (first + i) % spec.rankCount;
    const unsigned char* bits = inputs[static_cast<size_t>(rank)].bits.data();
    const double value = loadElement(spec.type, bits + index * sizeOf(spec.type));
    total = i == 0 ? value : (spec.op == ReduceOp::kProd ? total * value : total + value);
    storeElement(spec.type, total, element);
    total = loadElement(spec.type, element);
  }
  return total;
}

TEST(PerfValues, FloatingSumsAndProductsAreExactInRingOrder) {
  for (DataType type : kAllTypes) {
    if (!isFloating(type)) continue;
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd}) {
      for (int rankCount : {2, 3, 8, 32}) {
        const ValueSpec spec{.type = type, .op = op, .rankCount = rankCount};
        std::vector<Pattern> inputs;
        for (int rank = 0; rank < rankCount; ++rank) inputs.push_back(makeInput(spec, rank));
        const Pattern reduced = makeReduced(spec);
        for (size_t index = 0; index < 500; ++index) {
          ASSERT_EQ(foldInType(spec, inputs, 0, index), reduced.reference[index])
              << name(type) << ' ' << name(op) << ' ' << rankCount;
        }
      }
    }
  }
}

TEST(PerfValues, IntegerAveragesRoundTowardZero) {
  const ValueSpec spec{.type = DataType::kInt8, .op = ReduceOp::kAvg, .rankCount = 3};
  std::vector<Pattern> inputs;
  for (int rank = 0; rank < 3; ++rank) inputs.push_back(makeInput(spec, rank));
  const Pattern reduced = makeReduced(spec);
  for (size_t index = 0; index < kPeriod; ++index) {
    int sum = 0;
    for (const Pattern& input : inputs) sum += static_cast<int8_t>(input.bits[index]);
    ASSERT_EQ(static_cast<int8_t>(reduced.bits[index]), sum / 3);
  }
}

TEST(PerfValues, ScalarsOfTheMultipliedSumDifferBetweenRanks) {
  for (DataType type : kAllTypes) {
    const ValueSpec spec{.type = type, .op = ReduceOp::kPreMulSum, .rankCount = 2};
    EXPECT_EQ(preMulScalar(spec, 0), 1) << name(type);
    EXPECT_EQ(preMulScalar(spec, 1), 2) << name(type);
  }
}

TEST(PerfValues, NarrowFloatsRoundToNearestEvenAndBack) {
  const auto roundTrip = [](DataType type, double value) {
    unsigned char element[8];
    storeElement(type, value, element);
    return loadElement(type, element);
  };
  EXPECT_EQ(roundTrip(DataType::kFloat16, 2049), 2048);
  EXPECT_EQ(roundTrip(DataType::kFloat16, 2051), 2052);
  EXPECT_EQ(roundTrip(DataType::kFloat16, 0x1p-24), 0x1p-24);
  EXPECT_EQ(roundTrip(DataType::kFloat16, 65520), std::numeric_limits<double>::infinity());
  EXPECT_EQ(roundTrip(DataType::kBfloat16, 257), 256);
  EXPECT_EQ(roundTrip(DataType::kBfloat16, -0x1.fep127), -0x1.fep127);
  EXPECT_EQ(roundTrip(DataType::kFloat8E4M3, 17), 16);
  EXPECT_EQ(roundTrip(DataType::kFloat8E4M3, 1000), 448);
  EXPECT_EQ(roundTrip(DataType::kFloat8E4M3, 0x1p-9), 0x1p-9);
  EXPECT_EQ(roundTrip(DataType::kFloat8E5M2, 1e9), 57344);
  EXPECT_TRUE(std::isnan(roundTrip(DataType::kFloat8E4M3, std::nan(""))));
}

// Every bit pattern of the 8- and 16-bit types survives decoding and encoding.
TEST(PerfValues, NarrowFloatsKeepEveryBitPattern) {
  for (DataType type :
       {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    const uint32_t patterns = 1U << (8 * sizeOf(type));
    for (uint32_t bits = 0; bits < patterns; ++bits) {
      unsigned char element[4];
      std::memcpy(element, &bits, sizeof bits);
      const double value = loadElement(type, element);
      if (std::isnan(value) || std::isinf(value)) continue;
      unsigned char stored[8] = {};
      storeElement(type, value, stored);
      ASSERT_EQ(std::memcmp(stored, element, sizeOf(type)), 0) << name(type) << ' ' << bits;
    }
  }
}

}  // namespace
}  // namespace tutti::tools
