// The C++ interface: communicators that free themselves, operations on any contiguous range, and a
// host stream that works while the rank does something else.
//
//   ./cpp_raii [rank count]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

// In place, on a stream: the call returns at once, and the values are there after synchronize().
long countWrongSums(const tutti::Communicator& comm) {
  std::vector<float> values(50000);
  std::iota(values.begin(), values.end(), static_cast<float>(comm.rank()));
  tutti::HostStream stream;
  comm.allReduce(values, ncclSum, stream);
  stream.synchronize();
  const long ranks = comm.count();
  long wanted = ranks * (ranks - 1) / 2;  // of element 0; the next ones are `ranks` higher each
  long wrongCount = 0;
  for (const float value : values) {
    wrongCount += value == static_cast<float>(wanted) ? 0 : 1;
    wanted += ranks;
  }
  return wrongCount;
}

// Each rank's contribution counts as many times as the rank is high.
long countWrongWeights(const tutti::Communicator& comm) {
  const tutti::ScaledSum weighted = comm.scaledSum(static_cast<double>(comm.rank()));
  const std::vector<double> ones(10, 1.0);
  std::vector<double> sums(10);
  comm.allReduce(ones, sums, weighted);
  const int wanted = comm.count() * (comm.count() - 1) / 2;
  return static_cast<long>(sums.size()) -
         std::count(sums.begin(), sums.end(), static_cast<double>(wanted));
}

// Memory from the library goes wherever a vector goes.
long countWrongPieces(const tutti::Communicator& comm) {
  tutti::Buffer<int> mine(100);
  tutti::Buffer<int> everyones(mine.size() * static_cast<size_t>(comm.count()));
  std::fill(mine.begin(), mine.end(), comm.rank());
  comm.allGather(mine, everyones);
  long wrongCount = 0;
  for (size_t i = 0; i < everyones.size(); ++i) {
    wrongCount += everyones[i] == static_cast<int>(i / mine.size()) ? 0 : 1;
  }
  return wrongCount;
}

// One group: sends and receives in any order cannot block each other.
long countWrongNeighbours(const tutti::Communicator& comm) {
  const int next = (comm.rank() + 1) % comm.count();
  const int previous = (comm.rank() + comm.count() - 1) % comm.count();
  const int mine = comm.rank();
  int theirs = -1;
  tutti::Group group;
  comm.send(std::span(&mine, 1), next);
  comm.recv(std::span(&theirs, 1), previous);
  group.end();
  return theirs == previous ? 0 : 1;
}

long runRank(int rank, int rankCount, const tutti::UniqueId& id) {
  const tutti::Communicator comm = tutti::Communicator::init(rank, rankCount, id);
  return countWrongSums(comm) + countWrongWeights(comm) + countWrongPieces(comm) +
         countWrongNeighbours(comm);
}

}  // namespace

int main(int argc, char** argv) {
  const int rankCount = argc > 1 ? std::atoi(argv[1]) : 4;
  if (rankCount < 1 || rankCount > 64) {
    std::fprintf(stderr, "usage: %s [rank count, 1 to 64]\n", argv[0]);
    return 2;
  }
  const tutti::UniqueId id = tutti::UniqueId::create();
  std::vector<long> wrong(static_cast<size_t>(rankCount));
  std::vector<std::thread> threads;
  threads.reserve(wrong.size());
  for (int rank = 0; rank < rankCount; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        wrong[static_cast<size_t>(rank)] = runRank(rank, rankCount, id);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        std::_Exit(1);  // the other ranks would wait for this one
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const long wrongCount = std::accumulate(wrong.begin(), wrong.end(), 0L);
  std::printf("%d thread ranks in C++: sums, weights, pieces and neighbours, %ld wrong\n",
              rankCount, wrongCount);
  return wrongCount == 0 ? 0 : 1;
}
