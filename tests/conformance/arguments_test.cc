// Bad arguments are refused with a text, and the communicator goes on working.
#include <nccl_device.h>

#include <cstring>
#include <string>
#include <utility>

#include "ranks.h"

namespace tutti::conformance {
namespace {

using testing::HasSubstr;

std::string lastError() { return ncclGetLastError(nullptr); }

// A communicator of one rank that must still reduce correctly when the test is over.
class Arguments : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ncclCommInitAll(&comm_, 1, nullptr), ncclSuccess) << lastError();
  }
  void TearDown() override {
    float value = 3;
    EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm_, nullptr));
    EXPECT_EQ(value, 3);
    EXPECT_NCCL(ncclCommDestroy(comm_));
  }
  ncclResult_t reduce(const void* in, void* out, size_t count, int type, int op, int root) {
    return ncclReduce(in, out, count, static_cast<ncclDataType_t>(type),
                      static_cast<ncclRedOp_t>(op), root, comm_, nullptr);
  }
  ncclComm_t comm_ = nullptr;
  float buffer_[8] = {};
};

TEST_F(Arguments, RefusesAnUnknownType) {
  for (const int type : {-1, 12, 1000}) {
    EXPECT_EQ(reduce(buffer_, buffer_, 1, type, 0, 0), ncclInvalidArgument);
    EXPECT_THAT(lastError(), HasSubstr("datatype is " + std::to_string(type)));
  }
}

TEST_F(Arguments, RefusesAnUnknownOperation) {
  for (const int op : {-1, 5, 0x7fffffff}) {
    EXPECT_EQ(reduce(buffer_, buffer_, 1, ncclFloat, op, 0), ncclInvalidArgument);
    EXPECT_THAT(lastError(), HasSubstr("operation " + std::to_string(op)));
  }
}

TEST_F(Arguments, RefusesARootOutOfRange) {
  for (const int root : {-1, 1}) {
    EXPECT_EQ(reduce(buffer_, buffer_, 1, ncclFloat, 0, root), ncclInvalidArgument);
    EXPECT_THAT(lastError(), HasSubstr("root is " + std::to_string(root)));
  }
  EXPECT_EQ(ncclSend(buffer_, 1, ncclFloat, 7, comm_, nullptr), ncclInvalidArgument);
  EXPECT_THAT(lastError(), HasSubstr("peer is 7"));
}

TEST_F(Arguments, RefusesACountThatOverflows) {
  EXPECT_EQ(reduce(buffer_, buffer_, SIZE_MAX, ncclFloat, 0, 0), ncclInvalidArgument);
  EXPECT_EQ(reduce(buffer_, buffer_, SIZE_MAX / 2 + 1, ncclInt8, 0, 0), ncclInvalidArgument);
  EXPECT_THAT(lastError(), HasSubstr("exceed 2^63 bytes"));
}

TEST_F(Arguments, RefusesNullBuffersUnlessTheCountIsZero) {
  EXPECT_EQ(reduce(nullptr, buffer_, 1, ncclFloat, 0, 0), ncclInvalidArgument);
  EXPECT_THAT(lastError(), HasSubstr("sendbuff is NULL"));
  EXPECT_EQ(reduce(buffer_, nullptr, 1, ncclFloat, 0, 0), ncclInvalidArgument);
  EXPECT_THAT(lastError(), HasSubstr("recvbuff is NULL"));
  EXPECT_EQ(reduce(nullptr, nullptr, 0, ncclFloat, 0, 0), ncclSuccess);
}

// A shape that has run is not checked again; what only looks like it is.
TEST_F(Arguments, RefusesWhatIsLikeACallBefore) {
  const auto call = [this](const void* in, void* out, int type, int op) {
    return ncclAllReduce(in, out, 1, static_cast<ncclDataType_t>(type),
                         static_cast<ncclRedOp_t>(op), comm_, nullptr);
  };
  for (int times = 0; times < 3; ++times)
    ASSERT_EQ(call(buffer_, buffer_, ncclFloat, ncclSum), ncclSuccess);
  for (const int other : {256, 1 << 16, 1 << 24}) {
    EXPECT_EQ(call(buffer_, buffer_, ncclFloat + other, ncclSum), ncclInvalidArgument);
    EXPECT_EQ(call(buffer_, buffer_, ncclFloat, ncclSum + other), ncclInvalidArgument);
    EXPECT_EQ(call(buffer_, buffer_, ncclFloat - other, ncclSum), ncclInvalidArgument);
    EXPECT_EQ(call(buffer_, buffer_, ncclFloat, ncclSum - other), ncclInvalidArgument);
    EXPECT_EQ(reduce(buffer_, buffer_, 1, ncclFloat, ncclSum, other), ncclInvalidArgument);
  }
  EXPECT_EQ(call(nullptr, buffer_, ncclFloat, ncclSum), ncclInvalidArgument);
  EXPECT_EQ(call(buffer_, nullptr, ncclFloat, ncclSum), ncclInvalidArgument);
}

TEST_F(Arguments, RefusesAForeignStream) {
  int notAStream = 0;
  EXPECT_EQ(ncclAllReduce(buffer_, buffer_, 1, ncclFloat, ncclSum, comm_,
                          reinterpret_cast<cudaStream_t>(&notAStream)),
            ncclInvalidArgument);
}

TEST_F(Arguments, AnErrorInsideAGroupIsReturnedAtItsEndAndLeavesNothingBehind) {
  float value = 5;
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclFloat, ncclAvg, comm_, nullptr));
  EXPECT_EQ(reduce(nullptr, buffer_, 1, ncclFloat, 0, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
}

TEST_F(Arguments, AnOperationOfAnotherTypeIsRefused) {
  ncclRedOp_t op;
  double scalar = 2;
  EXPECT_NCCL(ncclRedOpCreatePreMulSum(&op, &scalar, ncclDouble, ncclScalarHostImmediate, comm_));
  EXPECT_EQ(reduce(buffer_, buffer_, 1, ncclFloat, op, 0), ncclInvalidArgument);
  EXPECT_THAT(lastError(), HasSubstr("was made for double"));
  EXPECT_NCCL(ncclRedOpDestroy(op, comm_));
}

TEST_F(Arguments, UnsupportedCallsSayWhichAndWhy) {
  EXPECT_EQ(pncclDevCommCreate(comm_, nullptr, nullptr), ncclInvalidUsage);
  EXPECT_THAT(lastError(), HasSubstr("ncclDevCommCreate: "));
  EXPECT_THAT(lastError(), HasSubstr("device API"));
}

TEST(Handles, NullIsAnInvalidArgument) {
  int value = 0;
  ncclResult_t result;
  EXPECT_EQ(ncclCommCount(nullptr, &value), ncclInvalidArgument);
  EXPECT_EQ(ncclCommUserRank(nullptr, &value), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGetAsyncError(nullptr, &result), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, nullptr, nullptr),
            ncclInvalidArgument);
}

TEST(Handles, DestroyedCorruptedAndForeignOnesAreInvalidArguments) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  int count = 0;
  std::vector<uint64_t> notAComm(4096, 0xdeadbeef);
  for (const uintptr_t wrong :
       {reinterpret_cast<uintptr_t>(comm) ^ 0x10, reinterpret_cast<uintptr_t>(comm) + 1,
        reinterpret_cast<uintptr_t>(comm) ^ (uintptr_t{1} << 21),
        reinterpret_cast<uintptr_t>(notAComm.data()), uintptr_t{1}, UINTPTR_MAX}) {
    EXPECT_EQ(ncclCommCount(reinterpret_cast<ncclComm_t>(wrong), &count), ncclInvalidArgument);
    EXPECT_EQ(ncclCommDestroy(reinterpret_cast<ncclComm_t>(wrong)), ncclInvalidArgument);
  }
  EXPECT_NCCL(ncclCommDestroy(comm));
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
  EXPECT_EQ(ncclCommAbort(comm), ncclInvalidArgument);
  EXPECT_EQ(ncclCommCount(comm, &count), ncclInvalidArgument);
  EXPECT_THAT(lastError(), HasSubstr("destroyed"));
}

TEST(Handles, FinalizeTwiceAndUseAfterItAreInvalidUsage) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  EXPECT_NCCL(ncclCommFinalize(comm));
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
  float value = 1;
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr), ncclInvalidUsage);
  EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Init, RefusesRanksOutOfRangeAtOnce) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, -1), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
  EXPECT_EQ(comm, nullptr);
}

TEST(Init, RefusesAnIdThatIsEmptyGarbledOrTruncated) {
  ncclUniqueId id;
  std::memset(&id, 0, sizeof id);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidArgument);
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclUniqueId broken = id;
  broken.internal[50] = static_cast<char>(broken.internal[50] ^ 1);
  EXPECT_EQ(ncclCommInitRank(&comm, 1, broken, 0), ncclInvalidArgument);
  broken = id;
  std::memset(broken.internal + 64, 0, 64);
  EXPECT_EQ(ncclCommInitRank(&comm, 1, broken, 0), ncclInvalidArgument);
}

TEST(Init, RefusesAnIdThatWasUsed) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t first = nullptr;
  ncclComm_t second = nullptr;
  ASSERT_EQ(ncclCommInitRank(&first, 1, id, 0), ncclSuccess) << lastError();
  EXPECT_EQ(ncclCommInitRank(&second, 1, id, 0), ncclInvalidUsage);
  EXPECT_THAT(lastError(), HasSubstr("already used"));
  EXPECT_NCCL(ncclCommDestroy(first));
}

TEST(Init, RanksThatDisagreeAboutTheirNumberAreToldBothValues) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      EXPECT_EQ(ncclCommInitRank(&comm, 2 + rank, id, rank), ncclInvalidUsage);
      EXPECT_THAT(lastError(), testing::AllOf(HasSubstr("2"), HasSubstr("3")));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Init, TwoRanksWithOneNumberAreBothTold) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      ncclComm_t comm = nullptr;
      EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 1), ncclInvalidUsage);
      EXPECT_THAT(lastError(), HasSubstr("rank 1"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Config, RefusesAWrongMagicAndValuesOutOfRange) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.magic = 0;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 2;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  EXPECT_THAT(lastError(), HasSubstr("config.blocking is 2"));
  config = NCCL_CONFIG_INITIALIZER;
  config.minCTAs = 4;
  config.maxCTAs = 2;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  EXPECT_THAT(lastError(), HasSubstr("config.minCTAs 4 is more than config.maxCTAs 2"));
  for (const auto& [field, value] :
       {std::pair{&ncclConfig_t::minCTAs, 0}, std::pair{&ncclConfig_t::maxCTAs, -1},
        std::pair{&ncclConfig_t::CTAPolicy, 4}}) {
    config = NCCL_CONFIG_INITIALIZER;
    config.*field = value;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
    EXPECT_THAT(lastError(), HasSubstr("; it must be "));
  }
}

// As programs have it that were compiled for NCCL 2.29.
TEST(Config, KnowsAFieldThatALaterVersionAppends) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  struct {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int graphUsageMode = 0;
    int numRmaCtx = 1;
  } later;
  static_assert(offsetof(decltype(later), graphUsageMode) == sizeof(ncclConfig_t));
  later.config.size = sizeof later;
  later.config.version = NCCL_VERSION(2, 29, 0);
  ncclComm_t comm = nullptr;
  for (const int wrong : {-1, 3}) {
    later.graphUsageMode = wrong;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &later.config), ncclInvalidArgument);
    EXPECT_THAT(lastError(), HasSubstr("config.graphUsageMode is " + std::to_string(wrong)));
  }
  for (const int right : {0, 1, 2, NCCL_CONFIG_UNDEF_INT}) {
    later.graphUsageMode = right;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &later.config), ncclSuccess) << right;
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  // Nobody set it: what lies behind the config is not the config's.
  later.config.version = NCCL_VERSION_CODE;
  later.graphUsageMode = 77;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &later.config), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace
}  // namespace tutti::conformance
