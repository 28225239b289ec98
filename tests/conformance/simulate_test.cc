// ncclGroupSimulateEnd: an estimate instead of the group's run.

#include <nccl.h>

#include "ranks.h"

namespace tutti::conformance {
namespace {

class SimulateEnd : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ncclCommInitAll(comms_.data(), static_cast<int>(comms_.size()), nullptr),
              ncclSuccess);
  }
  void TearDown() override {
    for (ncclComm_t comm : comms_) EXPECT_NCCL(ncclCommDestroy(comm));
  }

  float allReduces(int count, size_t elements) {
    std::vector<float> values(elements, 1);
    EXPECT_NCCL(ncclGroupStart());
    for (int i = 0; i < count; ++i) {
      for (ncclComm_t comm : comms_)
        EXPECT_NCCL(ncclAllReduce(values.data(), values.data(), elements, ncclFloat32, ncclSum,
                                  comm, nullptr));
    }
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    EXPECT_NCCL(ncclGroupSimulateEnd(&info));
    for (const float value : values) EXPECT_EQ(value, 1);  // nothing ran
    return info.estimatedTime;
  }

  std::vector<ncclComm_t> comms_ = std::vector<ncclComm_t>(3);
};

TEST_F(SimulateEnd, SumsTheWholeGroup) {
  const float one = allReduces(1, 1000);
  EXPECT_GT(one, 0);
  EXPECT_NEAR(allReduces(4, 1000), 4 * one, 0.01 * one);
  EXPECT_GT(allReduces(1, 10'000'000), one);
}

TEST_F(SimulateEnd, CoversSendAndReceive) {
  std::vector<float> values(1000);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclSend(values.data(), values.size(), ncclFloat32, 1, comms_[0], nullptr));
  EXPECT_NCCL(ncclRecv(values.data(), values.size(), ncclFloat32, 0, comms_[1], nullptr));
  EXPECT_NCCL(ncclGroupSimulateEnd(&info));
  EXPECT_GT(info.estimatedTime, 0);
}

TEST_F(SimulateEnd, GroupsRunAsUsualAfterwards) {
  allReduces(1, 10);
  int values[] = {1, 2, 3};
  EXPECT_NCCL(ncclGroupStart());
  for (size_t i = 0; i < comms_.size(); ++i)
    EXPECT_NCCL(ncclAllReduce(&values[i], &values[i], 1, ncclInt32, ncclSum, comms_[i], nullptr));
  EXPECT_NCCL(ncclGroupEnd());
  for (const int value : values) EXPECT_EQ(value, 6);
}

TEST_F(SimulateEnd, OnlyTheOutermostEndEstimates) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclGroupSimulateEnd(&info));
  EXPECT_EQ(info.estimatedTime, NCCL_UNDEF_FLOAT);
  EXPECT_NCCL(ncclGroupSimulateEnd(&info));
  EXPECT_EQ(info.estimatedTime, 0);  // nothing was called
}

TEST_F(SimulateEnd, RefusesAnInfoThatNobodyInitialised) {
  ncclSimInfo_t info{};
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
  EXPECT_NCCL(ncclGroupStart());  // the group had ended
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_EQ(ncclGroupSimulateEnd(nullptr), ncclInvalidUsage);
}

}  // namespace
}  // namespace tutti::conformance
