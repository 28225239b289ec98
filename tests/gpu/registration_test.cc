// Registered buffers of GPU ranks: the same results while peers write to outputs directly, before
// they do, and after they may no longer.
#include "tests/gpu/ranks.h"

namespace tutti::gputest {
namespace {

using testing::Each;

constexpr size_t kCount = size_t{4} << 20;  // floats: long enough for kernels that gain
constexpr int kCalls = 4;                   // so many until all ranks have all others' buffers
constexpr int kRanksWithWindows = 8;        // calls of more go as programs, which use none

class Registration : public GpuTest {};

// A buffer under a registration.
class Registered {
 public:
  Registered(RankSide& side, float* memory, size_t count) : comm_(side.comm) {
    EXPECT_NCCL(ncclCommRegister(comm_, memory, count * sizeof(float), &handle_));
  }
  ~Registered() { EXPECT_NCCL(ncclCommDeregister(comm_, handle_)); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  ncclComm_t comm_;
  void* handle_ = nullptr;
};

float sumOfRanks(int count) { return static_cast<float>(count * (count + 1) / 2); }

// Every collective that peers can write for, out of place, with fresh outputs.
void checkAll(RankSide& side, Array<float>& in, Array<float>& out, const std::string& when) {
  const auto ranks = static_cast<size_t>(side.count);
  const size_t block = kCount / ranks / 4 * 4;
  const auto mine = static_cast<float>(side.rank + 1);
  const auto expect = [&](size_t first, size_t count, float value, const char* what) {
    const std::vector<float>& got = out.get();
    for (size_t i = first; i < first + count; ++i) {
      ASSERT_EQ(got[i], value) << what << " " << when << ", element " << i << ", rank "
                               << side.rank;
    }
  };
  const auto poison = [&] {
    std::ranges::fill(out.get(), -1.0f);
    out.put();
    side.meet();
  };
  poison();
  EXPECT_NCCL(ncclAllReduce(in.device(), out.device(), kCount, ncclFloat32, ncclSum, side.comm,
                            side.stream()));
  expect(0, kCount, sumOfRanks(side.count), "all-reduce");
  poison();
  EXPECT_NCCL(
      ncclAllGather(in.device(), out.device(), block, ncclFloat32, side.comm, side.stream()));
  for (size_t peer = 0; peer < ranks; ++peer)
    expect(peer * block, block, static_cast<float>(peer + 1), "all-gather");
  poison();
  EXPECT_NCCL(
      ncclAlltoAll(in.device(), out.device(), block, ncclFloat32, side.comm, side.stream()));
  for (size_t peer = 0; peer < ranks; ++peer)
    expect(peer * block, block, static_cast<float>(peer + 1), "all-to-all");
  poison();
  const int root = side.count - 1;
  EXPECT_NCCL(ncclBroadcast(in.device(), out.device(), kCount, ncclFloat32, root, side.comm,
                            side.stream()));
  expect(0, kCount, static_cast<float>(side.count), "broadcast");
  poison();
  EXPECT_NCCL(ncclReduce(in.device(), out.device(), kCount, ncclFloat32, ncclSum, root, side.comm,
                         side.stream()));
  expect(0, kCount, side.rank == root ? sumOfRanks(side.count) : -1.0f, "reduce");
  poison();
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclSend(in.device(), kCount, ncclFloat32, (side.rank + 1) % side.count, side.comm,
                       side.stream()));
  EXPECT_NCCL(ncclRecv(out.device(), kCount, ncclFloat32, (side.rank + side.count - 1) % side.count,
                       side.comm, side.stream()));
  EXPECT_NCCL(ncclGroupEnd());
  expect(0, kCount, side.rank == 0 ? static_cast<float>(side.count) : mine - 1.0f, "send");
}

TEST_F(Registration, ResultsAreTheSameBeforeWhileAndAfter) {
  runRanks([](RankSide& side) {
    Array<float> in(side.gpu, kCount, static_cast<float>(side.rank + 1));
    Array<float> out(side.gpu, kCount, 0.0f);
    side.meet();
    {
      const Registered input(side, in.device(), kCount);
      const Registered output(side, out.device(), kCount);
      for (int call = 0; call < kCalls; ++call) checkAll(side, in, out, "while registered");
    }
    checkAll(side, in, out, "afterwards");
  });
}

TEST_F(Registration, OneRankWithoutOneGoesTheOldWayWithAll) {
  runRanks([](RankSide& side) {
    Array<float> in(side.gpu, kCount, static_cast<float>(side.rank + 1));
    Array<float> out(side.gpu, kCount, 0.0f);
    side.meet();
    std::unique_ptr<Registered> input;
    std::unique_ptr<Registered> output;
    if (side.rank != 0) {
      input = std::make_unique<Registered>(side, in.device(), kCount);
      output = std::make_unique<Registered>(side, out.device(), kCount);
    }
    for (int call = 0; call < kCalls; ++call) checkAll(side, in, out, "half registered");
  });
}

// The new memory has the address of the old, as a rule: then peers' mappings of the old one must
// not be used.
TEST_F(Registration, FreedAndAllocatedAgainIsAnotherBuffer) {
  runRanks([](RankSide& side) {
    Array<float> in(side.gpu, kCount, static_cast<float>(side.rank + 1));
    side.meet();
    for (int round = 0; round < 3; ++round) {
      Array<float> out(side.gpu, kCount, 0.0f);
      side.meet();
      void* forgotten = nullptr;
      EXPECT_NCCL(ncclCommRegister(side.comm, out.device(), kCount * sizeof(float), &forgotten));
      for (int call = 0; call < kCalls; ++call) {
        std::ranges::fill(out.get(), -1.0f);
        out.put();
        side.meet();
        EXPECT_NCCL(ncclAllReduce(in.device(), out.device(), kCount, ncclFloat32, ncclSum,
                                  side.comm, side.stream()));
        EXPECT_THAT(out.get(), Each(sumOfRanks(side.count))) << "round " << round;
      }
      side.meet();
    }
  });
}

TEST_F(Registration, WindowsOfTheLibrarysMemoryServe) {
  runRanks([](RankSide& side) {
    void* memory = nullptr;
    ASSERT_EQ(ncclMemAlloc(&memory, kCount * sizeof(float)), ncclSuccess);
    side.meet();
    ncclWindow_t window = nullptr;
    EXPECT_NCCL(ncclCommWindowRegister(side.comm, memory, kCount * sizeof(float), &window,
                                       NCCL_WIN_COLL_SYMMETRIC));
    EXPECT_EQ(window != nullptr, side.count <= kRanksWithWindows);
    float expected = 1.0f;
    std::vector<float> host(kCount, expected);
    EXPECT_STATUS(side.gpu.copy(memory, host.data(), kCount * sizeof(float)));
    side.meet();
    for (int call = 0; call < kCalls; ++call) {
      EXPECT_NCCL(
          ncclAllReduce(memory, memory, kCount, ncclFloat32, ncclSum, side.comm, side.stream()));
      expected *= static_cast<float>(side.count);
    }
    EXPECT_STATUS(side.gpu.copy(host.data(), memory, kCount * sizeof(float)));
    EXPECT_THAT(host, Each(expected));
    side.meet();
    if (window != nullptr) {
      EXPECT_NCCL(ncclCommWindowDeregister(side.comm, window));
    }
    EXPECT_NCCL(ncclMemFree(memory));
  });
}

// What the capture registers by itself, with NCCL_GRAPH_REGISTER=1; the program registers nothing.
TEST_F(Registration, ReplaysOfAGraphAreRight) {
  runRanks([](RankSide& side) {
    Array<float> in(side.gpu, kCount, static_cast<float>(side.rank + 1));
    Array<float> out(side.gpu, kCount, 0.0f);
    side.meet();
    for (int round = 0; round < 2; ++round) {
      EXPECT_STATUS(side.gpu.capture([&]() -> Status {
        EXPECT_NCCL(ncclAllReduce(in.device(), out.device(), kCount, ncclFloat32, ncclSum,
                                  side.comm, side.stream()));
        return {};
      }));
      for (int replay = 0; replay < 3; ++replay) {
        std::ranges::fill(out.get(), -1.0f);
        out.put();
        side.meet();
        EXPECT_STATUS(side.gpu.replay());
        EXPECT_THAT(out.get(), Each(sumOfRanks(side.count)));
      }
      side.meet();
    }
  });
}

}  // namespace
}  // namespace tutti::gputest
