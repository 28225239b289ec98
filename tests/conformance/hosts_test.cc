// Every collective over ranks of several hosts: processes that NCCL_HOSTID puts on hosts of their
// own, so that only sockets connect them.
#include <algorithm>
#include <string>
#include <vector>

#include "processes.h"
#include "ranks.h"

namespace tutti::conformance {
namespace {

// One that fits a message's line, an odd one, and one of many slots.
const std::vector<size_t> kCounts = {1, 4099, 200'003};

template <typename T>
struct Typed {
  ncclDataType_t type;
  int modulus;  // keeps sums of all ranks exact
};
template <typename T>
T valueAs(int rank, size_t i, int modulus) {
  return static_cast<T>(valueOf(rank, i) % modulus + 1);
}

// What a started process does, rank by rank: one function a collective.
class HostRank {
 public:
  HostRank() {
    EXPECT_EQ(ncclCommInitRank(&comm_, self_.count, self_.id, self_.rank), ncclSuccess)
        << ncclGetLastError(nullptr);
  }
  ~HostRank() { EXPECT_NCCL(ncclCommDestroy(comm_)); }

  template <typename T>
  void allReduce(const Typed<T>& as) {
    for (const size_t count : kCounts) {
      for (const bool inPlace : {false, true}) {
        Guarded<T> input = filled<T>(count, as.modulus);
        Guarded<T> output(count);
        T* result = inPlace ? input.data() : output.data();
        EXPECT_NCCL(ncclAllReduce(input.data(), result, count, as.type, ncclSum, comm_, nullptr));
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(result[i], sumAt<T>(i, as.modulus)) << i;
        input.check();
        output.check();
      }
    }
  }

  void reduceAndBroadcast() {
    for (int root = 0; root < self_.count; ++root) {
      for (const size_t count : kCounts) {
        Guarded<int64_t> input = filled<int64_t>(count);
        Guarded<int64_t> output(count);
        EXPECT_NCCL(ncclReduce(input.data(), output.data(), count, ncclInt64, ncclSum, root, comm_,
                               nullptr));
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(output[i], self_.rank == root ? sumAt<int64_t>(i) : 77);
        EXPECT_NCCL(
            ncclBroadcast(input.data(), output.data(), count, ncclInt64, root, comm_, nullptr));
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(output[i], valueAs<int64_t>(root, i, 101));
        output.check();
      }
    }
  }

  void gatherToAllAndScatterSums() {
    for (const size_t count : kCounts) {
      Guarded<int64_t> input = filled<int64_t>(count * n());
      Guarded<int64_t> all(count * n());
      EXPECT_NCCL(ncclAllGather(input.data(), all.data(), count, ncclInt64, comm_, nullptr));
      for (size_t i = 0; i < count * n(); ++i)
        ASSERT_EQ(all[i], valueAs<int64_t>(static_cast<int>(i / count), i % count, 101));
      Guarded<int64_t> own(count);
      EXPECT_NCCL(
          ncclReduceScatter(input.data(), own.data(), count, ncclInt64, ncclSum, comm_, nullptr));
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(own[i], sumAt<int64_t>(at() * count + i));
      all.check();
      own.check();
    }
  }

  void exchange() {
    for (const size_t count : kCounts) {
      Guarded<int64_t> input = filled<int64_t>(count * n());
      Guarded<int64_t> output(count * n());
      EXPECT_NCCL(ncclAlltoAll(input.data(), output.data(), count, ncclInt64, comm_, nullptr));
      const auto check = [&] {
        for (size_t i = 0; i < count * n(); ++i) {
          ASSERT_EQ(output[i],
                    valueAs<int64_t>(static_cast<int>(i / count), at() * count + i % count, 101));
        }
        output.check();
      };
      check();
      std::fill_n(output.data(), count * n(), 77);
      EXPECT_NCCL(ncclGroupStart());
      for (int peer = 0; peer < self_.count; ++peer) {
        const size_t first = static_cast<size_t>(peer) * count;
        EXPECT_NCCL(ncclSend(input.data() + first, count, ncclInt64, peer, comm_, nullptr));
        EXPECT_NCCL(ncclRecv(output.data() + first, count, ncclInt64, peer, comm_, nullptr));
      }
      EXPECT_NCCL(ncclGroupEnd());
      check();
    }
  }

  void gatherAndScatter() {
    for (int root = 0; root < self_.count; ++root) {
      const size_t count = 4099;
      Guarded<int64_t> input = filled<int64_t>(count * n());
      Guarded<int64_t> output(count * n());
      EXPECT_NCCL(ncclGather(input.data(), output.data(), count, ncclInt64, root, comm_, nullptr));
      if (self_.rank == root) {
        for (size_t i = 0; i < count * n(); ++i)
          ASSERT_EQ(output[i], valueAs<int64_t>(static_cast<int>(i / count), i % count, 101));
      }
      EXPECT_NCCL(ncclScatter(input.data(), output.data(), count, ncclInt64, root, comm_, nullptr));
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(output[i], valueAs<int64_t>(root, at() * count + i, 101));
      output.check();
    }
  }

  // Senders run ahead of receivers by as much as slots and sockets hold, and no further.
  void manyInARow() {
    for (int i = 0; i < 2000; ++i) {
      int64_t value = self_.rank + i;
      EXPECT_NCCL(ncclBroadcast(&value, &value, 1, ncclInt64, 0, comm_, nullptr));
      ASSERT_EQ(value, i);
    }
  }

  // A child has links of its own; the parent's stay.
  void split() {
    ncclComm_t child = nullptr;
    EXPECT_NCCL(ncclCommSplit(comm_, 0, -self_.rank, &child, nullptr));
    int64_t value = self_.rank + 1;
    EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, child, nullptr));
    EXPECT_EQ(value, self_.count * (self_.count + 1) / 2);
    EXPECT_NCCL(ncclCommDestroy(child));
  }

 private:
  size_t n() const { return static_cast<size_t>(self_.count); }
  size_t at() const { return static_cast<size_t>(self_.rank); }

  template <typename T>
  Guarded<T> filled(size_t count, int modulus = 101) {
    Guarded<T> buffer(count);
    for (size_t i = 0; i < count; ++i) buffer[i] = valueAs<T>(self_.rank, i, modulus);
    return buffer;
  }

  template <typename T>
  T sumAt(size_t i, int modulus = 101) const {
    T sum{};
    for (int rank = 0; rank < self_.count; ++rank)
      sum = static_cast<T>(sum + valueAs<T>(rank, i, modulus));
    return sum;
  }

  const ProcessRank self_ = thisProcess();
  ncclComm_t comm_ = nullptr;
};

TEST(HostRanks, DISABLED_AllCollectives) {
  HostRank rank;
  rank.allReduce(Typed<int64_t>{ncclInt64, 101});
  rank.allReduce(Typed<float>{ncclFloat, 101});
  rank.allReduce(Typed<double>{ncclDouble, 101});
  rank.allReduce(Typed<uint8_t>{ncclUint8, 30});
  rank.reduceAndBroadcast();
  rank.gatherToAllAndScatterSums();
  rank.exchange();
  rank.gatherAndScatter();
  rank.manyInARow();
  rank.split();
}

// Which host each rank is on: "0010" puts rank 2 on another one.
class Hosts : public testing::TestWithParam<std::string> {
 protected:
  void expectAllCollectives(const std::vector<std::string>& more) {
    const std::string hosts = GetParam();
    const auto settings = [&](int rank) {
      std::vector<std::string> all = {
          "NCCL_SOCKET_IFNAME=lo",
          std::string("NCCL_HOSTID=test-host-") + hosts[static_cast<size_t>(rank)]};
      all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    const int count = static_cast<int>(hosts.size());
    EXPECT_EQ(runProcesses("HostRanks.DISABLED_AllCollectives", count, settings),
              std::vector<int>(hosts.size(), 0));
  }
};

TEST_P(Hosts, AllCollectivesAreRight) { expectAllCollectives({}); }

INSTANTIATE_TEST_SUITE_P(Layouts, Hosts, testing::Values("01", "001", "0110", "0123"),
                         [](const auto& layout) { return "h" + layout.param; });

// All algorithms over links that hold two small messages: each waits for the other all the time.
TEST_P(Hosts, SmallBuffersAreRightToo) { expectAllCollectives({"NCCL_BUFFSIZE=8192"}); }

// Where hosts hold as many ranks each, they fold inside first; else it is two-shot by that name.
TEST_P(Hosts, AllReduceThatFoldsInsideHostsFirstIsRight) {
  expectAllCollectives({"NCCL_ALGO=allreduce:hierarchical;ring"});
}

// Over the rank of the own host in the receiver's seat; on uneven hosts as ever.
TEST_P(Hosts, AllToAllThatIsRelayedInsideHostsIsRight) {
  expectAllCollectives({"NCCL_P2P_PXN_LEVEL=2"});
}

// Ranks dealt out to hosts in turn: neighbours are brought together, by each algorithm.
class DealtOut : public testing::TestWithParam<std::string> {};

TEST_P(DealtOut, AllCollectivesAreRight) {
  const auto settings = [](int rank) {
    return std::vector<std::string>{
        "NCCL_SOCKET_IFNAME=lo",
        std::string("NCCL_HOSTID=test-host-") + (rank % 2 == 0 ? "a" : "b"),
        "NCCL_ALGO=" + GetParam()};
  };
  EXPECT_EQ(runProcesses("HostRanks.DISABLED_AllCollectives", 5, settings), std::vector<int>(5, 0));
}

INSTANTIATE_TEST_SUITE_P(Algorithms, DealtOut,
                         testing::Values("ring", "allreduce:tree;broadcast:tree;reduce:tree;ring",
                                         "allreduce:pat;allgather:pat;reducescatter:pat;twoshot",
                                         "allreduce:doubling;direct"),
                         [](const auto& algorithms) {
                           const std::string& text = algorithms.param;
                           return text.substr(text.find(':') + 1,
                                              text.find(';') - text.find(':') - 1);
                         });

}  // namespace
}  // namespace tutti::conformance
