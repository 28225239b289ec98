// What a profiler plug-in is told of ranks that go by kernels, which do nothing here but stamps of
// a timer that is far ahead of the host's clock (FAKE_CUDA_TIMER_NS).
#include <string>

#include "base/clock.h"
#include "tests/fakes/profiler_log.h"
#include "tests/gpu/ranks.h"

namespace tutti::gputest {
namespace {

using testing_profiler::read;
using testing_profiler::Told;

enum Kind : int {
  kGroup = 1,
  kCollective = 2,
  kPointToPoint = 4,
  kKernelChannel = 64,
  kGroupApi = 256,
  kCollectiveApi = 512,
  kPointToPointApi = 1024,
  kKernelLaunch = 2048
};

int versionOf(const std::string& plugin) { return plugin[plugin.rfind(".so") - 1] - '0'; }

void callAll(RankSide& side) {
  Array<int32_t> data(side.gpu, 1000, 1), other(side.gpu, 1000, 2);
  side.meet();
  const int peer = 1 - side.rank;
  const auto reduce = [&](ncclRedOp_t op) {
    EXPECT_NCCL(
        ncclAllReduce(data.device(), data.device(), 1000, ncclInt32, op, side.comm, side.stream()));
  };
  reduce(ncclSum);
  ncclGroupStart();
  reduce(ncclSum);
  reduce(ncclMax);
  ncclSend(data.device(), 100, ncclInt32, peer, side.comm, side.stream());
  ncclRecv(other.device(), 100, ncclInt32, peer, side.comm, side.stream());
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_STATUS(side.gpu.synchronize());
}

TEST(Profile, OfKernelsIsToldToPlugInsWithTimesOfTheHostsClock) {
  const char* plugin = std::getenv("NCCL_PROFILER_PLUGIN");
  const char* file = std::getenv("FAKE_PROFILER_FILE");
  if (plugin == nullptr || file == nullptr) GTEST_SKIP() << "no plug-in is named";
  const int version = versionOf(plugin);
  const auto before = static_cast<int64_t>(steadyClock().now());
  runRanks(callAll);
  const auto after = static_cast<int64_t>(steadyClock().now());
  for (const int rank : {0, 1}) {
    const Told told = read(std::string(file) + "." + std::to_string(rank));
    EXPECT_EQ(told.count(kGroup), 2u);
    EXPECT_EQ(told.count(kCollective), 3u);
    EXPECT_EQ(told.count(kPointToPoint), 2u);
    EXPECT_EQ(told.count(kKernelChannel), version < 3 ? 0u : 5u);
    EXPECT_EQ(told.count(kGroupApi), version < 5 ? 0u : 2u);
    EXPECT_EQ(told.count(kCollectiveApi), version < 5 ? 0u : 3u);
    EXPECT_EQ(told.count(kPointToPointApi), version < 5 ? 0u : 2u);
    EXPECT_EQ(told.count(kKernelLaunch), version < 5 ? 0u : 2u);
    EXPECT_EQ(told.strange, 0u);
    EXPECT_EQ(told.finalizes, 1u);
    for (const auto& [number, event] : told.events) {
      EXPECT_EQ(event.stops, 1) << event.line;
      EXPECT_EQ(event.stoppedParents, 0) << event.line;
      if (event.kind != kKernelChannel) continue;
      const int above = told.events.at(event.parent).kind;
      EXPECT_TRUE(above == kCollective || above == kPointToPoint) << event.line;
      if (version < 4) continue;
      EXPECT_GT(event.ended, before) << event.line;
      EXPECT_LT(event.ended, after) << event.line;
    }
  }
}

}  // namespace
}  // namespace tutti::gputest
