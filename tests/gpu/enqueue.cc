// gpu_enqueue: what the host pays for calls of GPU ranks, a thread each, through the API of one
// libnccl.so.2 after another: a call put on a stream, and a group of small calls up to their end.
//
//   gpu_enqueue RANKS path/to/libnccl.so.2...
//
// A line of JSON a library: the slowest rank's microseconds, the best of the rounds.
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "tools/perf_gpu.h"
#include "tools/perf_library.h"

namespace tutti::tools {
namespace {

constexpr int kRounds = 20;
constexpr int kCalls = 200;
constexpr int kGroup = 50;
constexpr size_t kCount = 256;  // floats

struct Round {
  double enqueue = 0;
  double group = 0;
};

struct Shared {
  const Library& library;
  int ranks;
  ncclUniqueId id;
  std::barrier<> barrier;
  std::mutex mutex;
  std::vector<Round> worst;  // guarded by mutex
};

double microseconds(Nanoseconds span) { return static_cast<double>(span.count()) / 1e3; }

Status measure(Shared& shared, int rank) {
  const Library& library = shared.library;
  TUTTI_TRY_ASSIGN(std::unique_ptr<RankGpu> gpu, RankGpu::open(rank, 0));
  TUTTI_TRY_ASSIGN(void* memory, gpu->allocate(kCount * sizeof(float)));
  ncclComm_t comm = nullptr;
  TUTTI_TRY(library.check("ncclCommInitRank",
                          library.commInitRank(&comm, shared.ranks, shared.id, rank), nullptr));
  const auto stream = static_cast<cudaStream_t>(gpu->stream());
  const auto call = [&]() -> Status {
    return library.check(
        "ncclAllReduce",
        library.allReduce(memory, memory, kCount, ncclFloat32, ncclSum, comm, stream), comm);
  };
  for (int round = -1; round < kRounds; ++round) {  // the first counts for nothing
    shared.barrier.arrive_and_wait();
    const Instant start = steadyClock().now();
    for (int i = 0; i < kCalls; ++i) TUTTI_TRY(call());
    const double enqueue = microseconds(steadyClock().now() - start) / kCalls;
    TUTTI_TRY(gpu->synchronize());
    shared.barrier.arrive_and_wait();
    const Instant first = steadyClock().now();
    TUTTI_TRY(library.check("ncclGroupStart", library.groupStart(), comm));
    for (int i = 0; i < kGroup; ++i) TUTTI_TRY(call());
    TUTTI_TRY(library.check("ncclGroupEnd", library.groupEnd(), comm));
    TUTTI_TRY(gpu->synchronize());
    const double group = microseconds(steadyClock().now() - first);
    if (round < 0) continue;
    const std::scoped_lock lock(shared.mutex);
    Round& worst = shared.worst[static_cast<size_t>(round)];
    worst = {.enqueue = std::max(worst.enqueue, enqueue), .group = std::max(worst.group, group)};
  }
  TUTTI_TRY(library.check("ncclCommDestroy", library.commDestroy(comm), nullptr));
  gpu->free(memory);
  return {};
}

int run(const std::string& path, int ranks) {
  const Result<Library> library = Library::open(path);
  if (!library.ok()) {
    std::fprintf(stderr, "%s\n", std::string(library.status().message()).c_str());
    return 1;
  }
  Shared shared{.library = library.value(),
                .ranks = ranks,
                .id = {},
                .barrier = std::barrier<>(ranks),
                .mutex = {},
                .worst = std::vector<Round>(kRounds)};
  if (library.value().getUniqueId(&shared.id) != ncclSuccess) return 1;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&shared, rank] {
      const Status status = measure(shared, rank);
      if (status.ok()) return;
      // The others wait for this rank at the barrier or in the library.
      std::fprintf(stderr, "rank %d: %s\n", rank, std::string(status.message()).c_str());
      std::_Exit(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto best = [&shared](double Round::*figure) {
    return std::ranges::min(shared.worst, {}, figure).*figure;
  };
  std::printf("{\"enqueue_cpp_us\": %.3f, \"group_of_50_cpp_us\": %.1f}\n", best(&Round::enqueue),
              best(&Round::group));
  return 0;
}

}  // namespace
}  // namespace tutti::tools

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "gpu_enqueue RANKS path/to/libnccl.so.2...\n");
    return 2;
  }
  for (int i = 2; i < argc; ++i) {
    if (tutti::tools::run(argv[i], std::atoi(argv[1])) != 0) return 1;
  }
  return 0;
}
