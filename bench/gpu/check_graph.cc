#include <atomic>
#include <cinttypes>
#include <cstdio>

#include "check_parts.h"

namespace tutti::bench {

// One captured graph, replayed between calls of other sizes.
int checkGraph(Team& team) {
  std::atomic<int> failures{0};
  team.run([&](Member& member) {
    constexpr uint64_t kCounts[] = {100, 200'000};
    const DeviceBuffer buffer(1 << 20);
    const auto fill = [&](uint32_t value) {
      TUTTI_CU(cuMemsetD32(buffer.address(), value, (1 << 20) / 4));
    };
    CUgraph graph;
    CUgraphExec exec;
    TUTTI_CU(cuStreamBeginCapture(member.stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
    for (const uint64_t count : kCounts) {
      member.launch(Job{.collective = Collective::kAllReduce,
                        .type = DataType::kInt32,
                        .count = count,
                        .input = buffer.at(0),
                        .output = buffer.at(0)});
    }
    TUTTI_CU(cuStreamEndCapture(member.stream(), &graph));
    TUTTI_CU(cuGraphInstantiate(&exec, graph, 0));
    uint64_t wanted = 1;
    const auto n = static_cast<uint64_t>(team.ranks());
    fill(1);
    TUTTI_CU(cuCtxSynchronize());
    team.meet();
    for (int round = 0; round < 5; ++round) {
      TUTTI_CU(cuGraphLaunch(exec, member.stream()));
      member.launch(Job{.collective = Collective::kAllReduce,
                        .type = DataType::kInt32,
                        .count = 100u + 5000u * static_cast<unsigned>(round),
                        .input = buffer.at(0),
                        .output = buffer.at(0)});
      wanted = static_cast<uint32_t>(wanted * n * n * n);
    }
    member.synchronize();
    uint32_t got = 0;
    TUTTI_CU(cuMemcpyDtoH(&got, buffer.address() + 4 * 99, 4));
    if (got != wanted || member.error().fault != 0) {
      std::printf("FAIL rank %d: graph replay gives %u, wanted %" PRIu64 ", fault %u\n",
                  member.rank(), got, wanted, member.error().fault);
      ++failures;
    }
    team.meet();
    cuGraphExecDestroy(exec);
    cuGraphDestroy(graph);
  });
  return failures;
}

}  // namespace tutti::bench
