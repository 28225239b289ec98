// Every collective against its definition, over rank counts, sizes, roots, in place and out.
#include <tuple>

#include "ranks.h"

namespace tutti::conformance {
namespace {

// Small enough for one message, odd, around chunk edges, and several slots long.
const std::vector<size_t> kCounts = {0, 1, 5, 127, 1024, 4099, 70001};

class Collectives : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
  size_t n() const { return static_cast<size_t>(GetParam()); }
};

Guarded<int64_t> filled(size_t count, int rank) {
  Guarded<int64_t> buffer(count);
  for (size_t i = 0; i < count; ++i) buffer[i] = valueOf(rank, i);
  return buffer;
}

int64_t sumAt(int rankCount, size_t i) {
  int64_t sum = 0;
  for (int rank = 0; rank < rankCount; ++rank) sum += valueOf(rank, i);
  return sum;
}

TEST_P(Collectives, AllReduceSums) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    for (const size_t count : kCounts) {
      for (const bool inPlace : {false, true}) {
        Guarded<int64_t> input = filled(count, rank);
        Guarded<int64_t> output(count);
        int64_t* result = inPlace ? input.data() : output.data();
        EXPECT_NCCL(ncclAllReduce(input.data(), result, count, ncclInt64, ncclSum, comm, nullptr));
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(result[i], sumAt(ranks(), i)) << "rank " << rank << " place " << i;
        input.check();
        output.check();
      }
    }
  });
}

TEST_P(Collectives, ReduceGivesOnlyTheRootTheSum) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    for (int root = 0; root < ranks(); ++root) {
      for (const size_t count : {size_t{1}, size_t{9001}}) {
        for (const bool inPlace : {false, true}) {
          Guarded<int64_t> input = filled(count, rank);
          Guarded<int64_t> output(count);
          int64_t* result = inPlace && rank == root ? input.data() : output.data();
          EXPECT_NCCL(
              ncclReduce(input.data(), result, count, ncclInt64, ncclSum, root, comm, nullptr));
          for (size_t i = 0; i < count; ++i)
            ASSERT_EQ(result[i], rank == root ? sumAt(ranks(), i) : 77);
          output.check();
        }
      }
    }
  });
}

TEST_P(Collectives, BroadcastCopiesTheRoot) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    for (int root = 0; root < ranks(); ++root) {
      for (const size_t count : {size_t{3}, size_t{70001}}) {
        Guarded<int64_t> input = filled(count, rank);
        Guarded<int64_t> output(count);
        EXPECT_NCCL(
            ncclBroadcast(input.data(), output.data(), count, ncclInt64, root, comm, nullptr));
        EXPECT_NCCL(ncclBcast(input.data(), count, ncclInt64, root, comm, nullptr));
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(output[i], valueOf(root, i));
          ASSERT_EQ(input[i], valueOf(root, i));
        }
        output.check();
        input.check();
      }
    }
  });
}

TEST_P(Collectives, AllGatherPutsRanksInOrder) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    for (const size_t count : kCounts) {
      for (const bool inPlace : {false, true}) {
        Guarded<int64_t> input = filled(count, rank);
        Guarded<int64_t> output(count * n());
        int64_t* own = output.data() + count * static_cast<size_t>(rank);
        if (inPlace) std::copy_n(input.data(), count, own);
        EXPECT_NCCL(ncclAllGather(inPlace ? own : input.data(), output.data(), count, ncclInt64,
                                  comm, nullptr));
        for (size_t i = 0; i < count * n(); ++i)
          ASSERT_EQ(output[i], valueOf(static_cast<int>(i / count), i % count));
        output.check();
      }
    }
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsPiece) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    for (const size_t count : kCounts) {
      for (const bool inPlace : {false, true}) {
        Guarded<int64_t> input = filled(count * n(), rank);
        Guarded<int64_t> output(count);
        const size_t first = count * static_cast<size_t>(rank);
        int64_t* result = inPlace ? input.data() + first : output.data();
        EXPECT_NCCL(
            ncclReduceScatter(input.data(), result, count, ncclInt64, ncclSum, comm, nullptr));
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(result[i], sumAt(ranks(), first + i));
        output.check();
        input.check();
      }
    }
  });
}

TEST_P(Collectives, AllToAllTransposes) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    for (const size_t count : kCounts) {
      for (const bool inPlace : {false, true}) {
        Guarded<int64_t> input = filled(count * n(), rank);
        Guarded<int64_t> output(count * n());
        int64_t* result = inPlace ? input.data() : output.data();
        EXPECT_NCCL(ncclAlltoAll(input.data(), result, count, ncclInt64, comm, nullptr));
        for (size_t i = 0; i < count * n(); ++i) {
          ASSERT_EQ(result[i], valueOf(static_cast<int>(i / count),
                                       count * static_cast<size_t>(rank) + i % count));
        }
        input.check();
        output.check();
      }
    }
  });
}

TEST_P(Collectives, GatherAndScatterAreInverse) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    for (int root = 0; root < ranks(); ++root) {
      const size_t count = 2003;
      Guarded<int64_t> input = filled(count, rank);
      Guarded<int64_t> all(count * n());
      Guarded<int64_t> back(count);
      EXPECT_NCCL(ncclGather(input.data(), all.data(), count, ncclInt64, root, comm, nullptr));
      for (size_t i = 0; i < count * n(); ++i) {
        ASSERT_EQ(all[i], rank == root ? valueOf(static_cast<int>(i / count), i % count) : 77);
      }
      EXPECT_NCCL(ncclScatter(all.data(), back.data(), count, ncclInt64, root, comm, nullptr));
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(back[i], valueOf(rank, i));
      all.check();
      back.check();
    }
  });
}

TEST_P(Collectives, RingOfSendsAndReceivesInAGroup) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    const int next = (rank + 1) % ranks();
    const int previous = (rank + ranks() - 1) % ranks();
    for (const size_t count : {size_t{1}, size_t{300000}}) {
      Guarded<int64_t> input = filled(count, rank);
      Guarded<int64_t> output(count);
      EXPECT_NCCL(ncclGroupStart());
      EXPECT_NCCL(ncclSend(input.data(), count, ncclInt64, next, comm, nullptr));
      EXPECT_NCCL(ncclRecv(output.data(), count, ncclInt64, previous, comm, nullptr));
      EXPECT_NCCL(ncclGroupEnd());
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(output[i], valueOf(previous, i));
      output.check();
    }
  });
}

TEST_P(Collectives, EveryOperationOnFloats) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    const size_t count = 3001;
    const auto valueAt = [](int r, size_t i) {
      return 0.5f + static_cast<float>(valueOf(r, i)) / 128.0f;
    };
    std::vector<float> input(count);
    for (size_t i = 0; i < count; ++i) input[i] = valueAt(rank, i);
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
      Guarded<float> output(count);
      EXPECT_NCCL(ncclAllReduce(input.data(), output.data(), count, ncclFloat, op, comm, nullptr));
      for (size_t i = 0; i < count; ++i) {
        double wanted = valueAt(0, i);
        for (int r = 1; r < ranks(); ++r) {
          const double value = valueAt(r, i);
          if (op == ncclSum || op == ncclAvg) wanted += value;
          if (op == ncclProd) wanted *= value;
          if (op == ncclMax) wanted = std::max(wanted, value);
          if (op == ncclMin) wanted = std::min(wanted, value);
        }
        if (op == ncclAvg) wanted /= ranks();
        ASSERT_NEAR(output[i], wanted, 1e-6 * std::abs(wanted) * ranks())
            << "op " << op << " place " << i;
      }
      output.check();
    }
  });
}

TEST_P(Collectives, PreMultipliedSumScalesEachRanksInput) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    double scalar = rank + 1.0;
    for (const ncclScalarResidence_t residence : {ncclScalarHostImmediate, ncclScalarDevice}) {
      ncclRedOp_t op;
      EXPECT_NCCL(ncclRedOpCreatePreMulSum(&op, &scalar, ncclDouble, residence, comm));
      for (const size_t count : {size_t{10}, size_t{100000}}) {
        std::vector<double> input(count, 3.0);
        Guarded<double> output(count);
        EXPECT_NCCL(
            ncclAllReduce(input.data(), output.data(), count, ncclDouble, op, comm, nullptr));
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(output[i], 3.0 * ranks() * (ranks() + 1) / 2);
        output.check();
      }
      EXPECT_NCCL(ncclRedOpDestroy(op, comm));
      EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclInvalidArgument);
    }
  });
}

// What calls of one shape share is kept from the first on; the rest is each call's own.
TEST_P(Collectives, CallsOfOneShapeHaveTheirOwnBuffersAndScalars) {
  constexpr size_t kCount = 10;
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    double scalars[] = {rank + 1.0, 2.0 * (rank + 1.0)};
    ncclRedOp_t ops[2];
    for (int i = 0; i < 2; ++i) {
      EXPECT_NCCL(ncclRedOpCreatePreMulSum(&ops[i], &scalars[i], ncclDouble,
                                           ncclScalarHostImmediate, comm));
    }
    for (int call = 0; call < 20; ++call) {
      std::vector<double> input(kCount, call + 1.0);
      Guarded<double> output(kCount);
      EXPECT_NCCL(ncclAllReduce(input.data(), output.data(), kCount, ncclDouble, ops[call % 2],
                                comm, nullptr));
      const double wanted = (call + 1.0) * (1 + call % 2) * ranks() * (ranks() + 1) / 2;
      for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(output[i], wanted) << "call " << call;
      output.check();
    }
    for (const ncclRedOp_t op : ops) EXPECT_NCCL(ncclRedOpDestroy(op, comm));
  });
}

TEST_P(Collectives, AllRanksGetTheSameBits) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    for (const size_t count : {size_t{33}, size_t{50000}}) {
      std::vector<float> input(count);
      for (size_t i = 0; i < count; ++i) input[i] = 1.0f / static_cast<float>(valueOf(rank, i));
      std::vector<float> output(count);
      EXPECT_NCCL(
          ncclAllReduce(input.data(), output.data(), count, ncclFloat, ncclSum, comm, nullptr));
      std::vector<float> all(count * n());
      EXPECT_NCCL(ncclAllGather(output.data(), all.data(), count, ncclFloat, comm, nullptr));
      for (size_t i = 0; i < all.size(); ++i)
        ASSERT_EQ(all[i], output[i % count]) << "rank " << i / count << " place " << i % count;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(1, 2, 3, 4, 7, 8),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace tutti::conformance
