// Every type with every operation, between guard bands, from buffers that begin anywhere.
#include <cmath>
#include <cstring>
#include <string_view>

#include "ranks.h"

namespace tutti::conformance {
namespace {

// What a type's bits mean.
struct Form {
  std::string_view name;
  ncclDataType_t type;
  size_t bytes;
  int exponentBits = 0;  // 0: a whole number
};
constexpr Form kForms[] = {
    {"Int8", ncclInt8, 1},          {"Uint8", ncclUint8, 1},
    {"Int32", ncclInt32, 4},        {"Uint32", ncclUint32, 4},
    {"Int64", ncclInt64, 8},        {"Uint64", ncclUint64, 8},
    {"Half", ncclFloat16, 2, 5},    {"Float", ncclFloat32, 4, 8},
    {"Double", ncclFloat64, 8, 11}, {"Bfloat16", ncclBfloat16, 2, 8},
    {"E4m3", ncclFloat8e4m3, 1, 4}, {"E5m2", ncclFloat8e5m2, 1, 5},
};
static_assert(std::size(kForms) == ncclNumTypes);

// Of a value that the type can hold, zero or normal; whole numbers are cut to be whole.
uint64_t encode(const Form& form, double value) {
  if (form.exponentBits == 0) return static_cast<uint64_t>(value);
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = 2 * std::frexp(value, &exponent) - 1;
  const int mantissaBits = static_cast<int>(8 * form.bytes) - 1 - form.exponentBits;
  const int bias = (1 << (form.exponentBits - 1)) - 1;
  return (static_cast<uint64_t>(exponent - 1 + bias) << mantissaBits) |
         static_cast<uint64_t>(std::ldexp(fraction, mantissaBits));
}

// Elements of any type, the first of which lies `offset` elements behind a 64-byte line.
class Elements {
 public:
  Elements(const Form& form, size_t count, size_t offset)
      : form_(form), bytes_(128 + (count + offset) * form.bytes + kBand, kGuard), count_(count) {
    const auto begin = reinterpret_cast<uintptr_t>(bytes_.data()) + kBand;
    data_ = bytes_.data() + kBand + (64 - begin % 64) % 64 + offset * form.bytes;
  }
  void* data() { return data_; }
  void set(size_t at, double value) {
    const uint64_t bits = encode(form_, value);
    std::memcpy(data_ + at * form_.bytes, &bits, form_.bytes);
  }
  bool holds(size_t at, double value) const {
    const uint64_t bits = encode(form_, value);
    return std::memcmp(data_ + at * form_.bytes, &bits, form_.bytes) == 0;
  }
  void check() const {
    const unsigned char* end = bytes_.data() + bytes_.size();
    for (const unsigned char* at = bytes_.data(); at < data_; ++at) ASSERT_EQ(*at, kGuard);
    for (const unsigned char* at = data_ + count_ * form_.bytes; at < end; ++at)
      ASSERT_EQ(*at, kGuard);
  }

 private:
  static constexpr unsigned char kGuard = 113;
  static constexpr size_t kBand = 64;
  const Form form_;
  std::vector<unsigned char> bytes_;
  const size_t count_;
  unsigned char* data_;
};

// 1 or 2: sums, products and averages of four ranks are held by every type.
double inputOf(int rank, size_t i) { return 1 + static_cast<double>(valueOf(rank, i) % 2); }

double resultOf(ncclRedOp_t op, int rankCount, size_t i) {
  double sum = 0, product = 1, most = 0, least = 2;
  for (int rank = 0; rank < rankCount; ++rank) {
    const double value = inputOf(rank, i);
    sum += value;
    product *= value;
    most = std::max(most, value);
    least = std::min(least, value);
  }
  switch (op) {
    case ncclSum: return sum;
    case ncclProd: return product;
    case ncclMax: return most;
    case ncclMin: return least;
    default: return sum / rankCount;
  }
}

class Types : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
  size_t n() const { return static_cast<size_t>(ranks()); }

  static Elements filled(const Form& form, size_t count, size_t offset, int rank) {
    Elements elements(form, count, offset);
    for (size_t i = 0; i < count; ++i) elements.set(i, inputOf(rank, i));
    return elements;
  }

  void expectReduced(const Form& form, ncclRedOp_t op, int rank, ncclComm_t comm) const {
    for (const auto& [count, offset] :
         {std::pair<size_t, size_t>{1, 0}, {7, 1}, {1031, 3}, {20'011, 5}}) {
      Elements input = filled(form, count, offset, rank);
      Elements output(form, count, 2 * offset);
      EXPECT_NCCL(ncclAllReduce(input.data(), output.data(), count, form.type, op, comm, nullptr));
      for (size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(output.holds(i, resultOf(op, ranks(), i)))
            << form.name << " op " << op << " place " << i << " of " << count;
      }
      input.check();
      output.check();
    }
  }

  void expectPieces(const Form& form, size_t count, int rank, ncclComm_t comm) const {
    const auto own = static_cast<size_t>(rank);
    Elements input = filled(form, count * n(), 3, rank);
    Elements all(form, count * n(), 1);
    EXPECT_NCCL(ncclAllGather(input.data(), all.data(), count, form.type, comm, nullptr));
    const auto expectAll = [&](size_t first) {
      for (size_t i = 0; i < count * n(); ++i) {
        ASSERT_TRUE(all.holds(i, inputOf(static_cast<int>(i / count), first + i % count)))
            << form.name << " place " << i;
      }
      all.check();
    };
    expectAll(0);
    EXPECT_NCCL(ncclAlltoAll(input.data(), all.data(), count, form.type, comm, nullptr));
    expectAll(own * count);
    Elements piece(form, count, 5);
    EXPECT_NCCL(
        ncclReduceScatter(input.data(), piece.data(), count, form.type, ncclSum, comm, nullptr));
    for (size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(piece.holds(i, resultOf(ncclSum, ranks(), own * count + i)))
          << form.name << " place " << i;
    }
    input.check();
    piece.check();
  }
};

TEST_P(Types, ReducedByEveryOperationFromAnyPlace) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    for (const Form& form : kForms) {
      for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg})
        expectReduced(form, op, rank, comm);
    }
  });
}

TEST_P(Types, InPiecesToEachRankFromAnyPlace) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    for (const Form& form : kForms) {
      for (const size_t count : {size_t{5}, size_t{20'011}}) expectPieces(form, count, rank, comm);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Types, testing::Values(2, 4), testing::PrintToStringParamName());

}  // namespace
}  // namespace tutti::conformance
