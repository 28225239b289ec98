// Registered buffers of GPU ranks: the same results while peers write to outputs directly, before
// they do, and after they may no longer.
#include "tests/gpu/ranks.h"

namespace tutti::gputest {
namespace {

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

// No two parts of a rank's input, and no two ranks', are alike; sums of 8 are exact.
float valueOf(size_t rank, size_t element) {
  return static_cast<float>(element % 8191 + 10000 * rank);
}
float sumOf(size_t ranks, size_t element) {
  return static_cast<float>(ranks * (element % 8191) + 10000 * (ranks * (ranks - 1) / 2));
}

void fillInput(RankSide& side, Array<float>& in) {
  std::vector<float>& host = in.get();
  for (size_t i = 0; i < host.size(); ++i) host[i] = valueOf(static_cast<size_t>(side.rank), i);
  in.put();
}

// A rank's part of what is gathered. Of the collectives that reach outputs of peers directly, this
// one gains most; an all-reduce never goes so.
size_t blockOf(const RankSide& side) { return kCount / static_cast<size_t>(side.count) / 4 * 4; }

void gather(RankSide& side, const void* input, void* output) {
  EXPECT_NCCL(ncclAllGather(input, output, blockOf(side), ncclFloat32, side.comm, side.stream()));
}

void poison(RankSide& side, Array<float>& out) {
  std::ranges::fill(out.get(), -1.0f);
  out.put();
  side.meet();
}

// The first element that is not wanted(element), if any.
void expectOutput(RankSide& side, Array<float>& out, size_t count, const std::string& what,
                  const std::function<float(size_t)>& wanted) {
  const std::vector<float>& got = out.get();
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(got[i], wanted(i)) << what << ", element " << i << ", rank " << side.rank;
  }
}

void expectGathered(RankSide& side, Array<float>& out, const std::string& what) {
  const size_t block = blockOf(side);
  expectOutput(side, out, static_cast<size_t>(side.count) * block, what,
               [&](size_t i) { return valueOf(i / block, i % block); });
}

// Every collective that peers can write for, out of place, with fresh outputs.
void checkAll(RankSide& side, Array<float>& in, Array<float>& out, const std::string& when) {
  const auto ranks = static_cast<size_t>(side.count);
  const auto self = static_cast<size_t>(side.rank);
  const size_t block = blockOf(side);
  const auto sum = [&](size_t i) { return sumOf(ranks, i); };
  poison(side, out);
  EXPECT_NCCL(ncclAllReduce(in.device(), out.device(), kCount, ncclFloat32, ncclSum, side.comm,
                            side.stream()));
  expectOutput(side, out, kCount, "all-reduce " + when, sum);
  poison(side, out);
  gather(side, in.device(), out.device());
  expectGathered(side, out, "all-gather " + when);
  poison(side, out);
  EXPECT_NCCL(
      ncclAlltoAll(in.device(), out.device(), block, ncclFloat32, side.comm, side.stream()));
  expectOutput(side, out, ranks * block, "all-to-all " + when,
               [&](size_t i) { return valueOf(i / block, self * block + i % block); });
  poison(side, out);
  const int root = side.count - 1;
  EXPECT_NCCL(ncclBroadcast(in.device(), out.device(), kCount, ncclFloat32, root, side.comm,
                            side.stream()));
  expectOutput(side, out, kCount, "broadcast " + when,
               [&](size_t i) { return valueOf(ranks - 1, i); });
  poison(side, out);
  EXPECT_NCCL(ncclReduce(in.device(), out.device(), kCount, ncclFloat32, ncclSum, root, side.comm,
                         side.stream()));
  expectOutput(side, out, kCount, "reduce " + when,
               [&](size_t i) { return side.rank == root ? sum(i) : -1.0f; });
  poison(side, out);
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclSend(in.device(), kCount, ncclFloat32, (side.rank + 1) % side.count, side.comm,
                       side.stream()));
  EXPECT_NCCL(ncclRecv(out.device(), kCount, ncclFloat32, (side.rank + side.count - 1) % side.count,
                       side.comm, side.stream()));
  EXPECT_NCCL(ncclGroupEnd());
  expectOutput(side, out, kCount, "send " + when,
               [&](size_t i) { return valueOf((self + ranks - 1) % ranks, i); });
}

TEST_F(Registration, ResultsAreTheSameBeforeWhileAndAfter) {
  runRanks([](RankSide& side) {
    Array<float> in(side.gpu, kCount, 0.0f);
    fillInput(side, in);
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
    Array<float> in(side.gpu, kCount, 0.0f);
    fillInput(side, in);
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
    Array<float> in(side.gpu, kCount, 0.0f);
    fillInput(side, in);
    side.meet();
    for (int round = 0; round < 3; ++round) {
      Array<float> out(side.gpu, kCount, 0.0f);
      side.meet();
      void* forgotten = nullptr;
      EXPECT_NCCL(ncclCommRegister(side.comm, out.device(), kCount * sizeof(float), &forgotten));
      for (int call = 0; call < kCalls; ++call) {
        poison(side, out);
        gather(side, in.device(), out.device());
        expectGathered(side, out, "round " + std::to_string(round));
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
    auto* own = static_cast<float*>(memory) + static_cast<size_t>(side.rank) * blockOf(side);
    std::vector<float> host(kCount);
    for (int call = 0; call < kCalls; ++call) {
      for (size_t i = 0; i < kCount; ++i)
        host[i] = valueOf(static_cast<size_t>(side.rank + call), i);
      EXPECT_STATUS(side.gpu.copy(memory, host.data(), kCount * sizeof(float)));
      side.meet();
      gather(side, own, memory);
      EXPECT_STATUS(side.gpu.copy(host.data(), memory, kCount * sizeof(float)));
      for (size_t i = 0; i < static_cast<size_t>(side.count) * blockOf(side); ++i)
        ASSERT_EQ(host[i], valueOf(i / blockOf(side) + static_cast<size_t>(call), i)) << call;
      side.meet();
    }
    side.meet();
    if (window != nullptr) {
      EXPECT_NCCL(ncclCommWindowDeregister(side.comm, window));
    }
    EXPECT_NCCL(ncclMemFree(memory));
  });
}

// All blocks of a window, written by the peers' copy engines, and short calls, too.
void exchangeInWindow(RankSide& side, Array<float>& in, float* window, size_t block) {
  const auto ranks = static_cast<size_t>(side.count);
  const auto self = static_cast<size_t>(side.rank);
  std::vector<float> host(ranks * block, -1.0f);
  const size_t bytes = host.size() * sizeof(float);
  EXPECT_STATUS(side.gpu.copy(window, host.data(), bytes));
  side.meet();
  EXPECT_NCCL(ncclAlltoAll(in.device(), window, block, ncclFloat32, side.comm, side.stream()));
  EXPECT_STATUS(side.gpu.copy(host.data(), window, bytes));
  for (size_t i = 0; i < host.size(); ++i)
    ASSERT_EQ(host[i], valueOf(i / block, self * block + i % block)) << block << ", " << i;
  std::ranges::fill(host, -1.0f);
  for (size_t i = 0; i < block; ++i) host[self * block + i] = valueOf(self, i);
  EXPECT_STATUS(side.gpu.copy(window, host.data(), bytes));
  side.meet();
  EXPECT_NCCL(
      ncclAllGather(window + self * block, window, block, ncclFloat32, side.comm, side.stream()));
  EXPECT_STATUS(side.gpu.copy(host.data(), window, bytes));
  for (size_t i = 0; i < host.size(); ++i)
    ASSERT_EQ(host[i], valueOf(i / block, i % block)) << block << ", " << i;
}

TEST_F(Registration, CopyEnginesFillWindowsWhereThePolicyIsZero) {
  const ncclUniqueId id = anotherId();
  runRanks([&id](RankSide& side) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRankConfig(&comm, side.count, id, side.rank, &config), ncclSuccess);
    void* memory = nullptr;
    ASSERT_EQ(ncclMemAlloc(&memory, kCount * sizeof(float)), ncclSuccess);
    RankSide there{side.rank, side.count, comm, side.gpu, side.meeting};
    Array<float> in(side.gpu, kCount, 0.0f);
    fillInput(there, in);
    side.meet();
    ncclWindow_t window = nullptr;
    EXPECT_NCCL(ncclCommWindowRegister(comm, memory, kCount * sizeof(float), &window,
                                       NCCL_WIN_COLL_SYMMETRIC));
    auto* const floats = static_cast<float*>(memory);
    for (int call = 0; call < kCalls; ++call) {
      for (const size_t block : {size_t{1}, size_t{1000}, blockOf(side)})
        exchangeInWindow(there, in, floats, block);
    }
    side.meet();
    if (window != nullptr) {
      EXPECT_NCCL(ncclCommWindowDeregister(comm, window));
    }
    EXPECT_NCCL(ncclCommDestroy(comm));
    EXPECT_NCCL(ncclMemFree(memory));
  });
}

// What the capture registers by itself, with NCCL_GRAPH_REGISTER=1; the program registers nothing.
TEST_F(Registration, ReplaysOfAGraphAreRight) {
  runRanks([](RankSide& side) {
    Array<float> in(side.gpu, kCount, 0.0f);
    fillInput(side, in);
    Array<float> out(side.gpu, kCount, 0.0f);
    side.meet();
    for (int round = 0; round < 2; ++round) {
      EXPECT_STATUS(side.gpu.capture([&]() -> Status {
        gather(side, in.device(), out.device());
        return {};
      }));
      for (int replay = 0; replay < 3; ++replay) {
        poison(side, out);
        EXPECT_STATUS(side.gpu.replay());
        expectGathered(side, out, "replay " + std::to_string(replay));
      }
      side.meet();
    }
  });
}

}  // namespace
}  // namespace tutti::gputest
