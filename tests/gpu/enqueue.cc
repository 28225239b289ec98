// gpu_enqueue: what the host pays for calls of GPU ranks through the API of one libnccl.so.2 after
// another: a call put on a stream, and a group of small calls up to their end. Ranks are processes,
// then threads of one, which take turns in the driver.
//
//   gpu_enqueue RANKS path/to/libnccl.so.2...
//
// A line of JSON a library: the slowest rank's microseconds, the best of the rounds.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
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
constexpr int kMostRanks = 64;

struct Round {
  double enqueue = 0;
  double group = 0;
};

// Of all ranks, in memory that processes share.
struct Shared {
  explicit Shared(int rankCount) : ranks(rankCount) {
    pthread_barrierattr_t kind;
    pthread_barrierattr_init(&kind);
    pthread_barrierattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&barrier, &kind, static_cast<unsigned>(ranks));
  }

  const int ranks;
  pthread_barrier_t barrier;
  ncclUniqueId id{};                                          // the first rank's
  std::array<std::array<Round, kRounds>, kMostRanks> seen{};  // by rank
};

double microseconds(Nanoseconds span) { return static_cast<double>(span.count()) / 1e3; }

Status measure(Shared& shared, const Library& library, int rank) {
  const auto meet = [&shared] { pthread_barrier_wait(&shared.barrier); };
  TUTTI_TRY_ASSIGN(std::unique_ptr<RankGpu> gpu, RankGpu::open(rank, 0));
  TUTTI_TRY_ASSIGN(void* memory, gpu->allocate(kCount * sizeof(float)));
  if (rank == 0)
    TUTTI_TRY(library.check("ncclGetUniqueId", library.getUniqueId(&shared.id), nullptr));
  meet();
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
    meet();
    const Instant start = steadyClock().now();
    for (int i = 0; i < kCalls; ++i) TUTTI_TRY(call());
    const double enqueue = microseconds(steadyClock().now() - start) / kCalls;
    TUTTI_TRY(gpu->synchronize());
    meet();
    const Instant first = steadyClock().now();
    TUTTI_TRY(library.check("ncclGroupStart", library.groupStart(), comm));
    for (int i = 0; i < kGroup; ++i) TUTTI_TRY(call());
    TUTTI_TRY(library.check("ncclGroupEnd", library.groupEnd(), comm));
    TUTTI_TRY(gpu->synchronize());
    const double group = microseconds(steadyClock().now() - first);
    if (round < 0) continue;
    shared.seen[static_cast<size_t>(rank)][static_cast<size_t>(round)] = {.enqueue = enqueue,
                                                                          .group = group};
  }
  TUTTI_TRY(library.check("ncclCommDestroy", library.commDestroy(comm), nullptr));
  gpu->free(memory);
  return {};
}

// The others wait for a rank that fails at the barrier or in the library, so its process ends.
void runRank(Shared& shared, const std::string& path, int rank) {
  const auto fulfil = [&]() -> Status {
    TUTTI_TRY_ASSIGN(const Library library, Library::open(path));
    return measure(shared, library, rank);
  };
  const Status status = fulfil();
  if (status.ok()) return;
  std::fprintf(stderr, "rank %d: %s\n", rank, std::string(status.message()).c_str());
  std::_Exit(1);
}

bool runProcesses(Shared& shared, const std::string& path) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < shared.ranks; ++rank) {
    children.push_back(::fork());
    if (children.back() == 0) {
      runRank(shared, path, rank);
      std::_Exit(0);
    }
    if (children.back() < 0) return false;
  }
  bool isFine = true;
  for (size_t ended = 0; ended < children.size(); ++ended) {
    int state = 0;
    const pid_t child = ::waitpid(-1, &state, 0);
    if (state == 0 && child > 0) continue;
    isFine = false;
    for (const pid_t other : children) {
      if (other != child) ::kill(other, SIGKILL);
    }
  }
  return isFine;
}

void runThreads(Shared& shared, const std::string& path) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shared.ranks; ++rank)
    threads.emplace_back([&shared, &path, rank] { runRank(shared, path, rank); });
  for (std::thread& thread : threads) thread.join();
}

// The least, over the rounds, of the slowest rank's.
double leastOf(const Shared& shared, double Round::*figure) {
  double least = 1e30;
  for (size_t round = 0; round < kRounds; ++round) {
    double worst = 0;
    for (const auto& rounds : std::span(shared.seen).first(static_cast<size_t>(shared.ranks)))
      worst = std::max(worst, rounds[round].*figure);
    least = std::min(least, worst);
  }
  return least;
}

Shared* share(int ranks) {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) Shared(ranks);
}

// All processes before the first thread: a driver that is in use does not outlive a fork.
int run(int ranks, std::span<char* const> paths) {
  std::vector<const Shared*> byProcesses;
  for (const char* path : paths) {
    Shared* shared = share(ranks);
    if (shared == nullptr || !runProcesses(*shared, path)) return 1;
    byProcesses.push_back(shared);
  }
  for (size_t i = 0; i < paths.size(); ++i) {
    Shared* shared = share(ranks);
    if (shared == nullptr) return 1;
    runThreads(*shared, paths[i]);
    const Shared& processes = *byProcesses[i];
    std::printf(
        "{\"enqueue_cpp_us\": %.3f, \"group_of_50_cpp_us\": %.1f, "
        "\"enqueue_threads_us\": %.3f, \"group_of_50_threads_us\": %.1f}\n",
        leastOf(processes, &Round::enqueue), leastOf(processes, &Round::group),
        leastOf(*shared, &Round::enqueue), leastOf(*shared, &Round::group));
  }
  return 0;
}

}  // namespace
}  // namespace tutti::tools

int main(int argc, char** argv) {
  const int ranks = argc < 3 ? 0 : std::atoi(argv[1]);
  if (ranks < 1 || ranks > tutti::tools::kMostRanks) {
    std::fprintf(stderr, "gpu_enqueue RANKS path/to/libnccl.so.2...\n");
    return 2;
  }
  return tutti::tools::run(ranks, {argv + 2, static_cast<size_t>(argc - 2)});
}
