// The C++ interface of tutti/tutti.hpp over the real library: CPU ranks as threads.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tutti/tutti.hpp"

// A tool's interposition: this program's definition stands before the library's weak one.
namespace {
std::atomic<int> interposedCalls{0};
}  // namespace
extern "C" ncclResult_t ncclGetVersion(int* version) {
  interposedCalls.fetch_add(1, std::memory_order_relaxed);
  return pncclGetVersion(version);
}

namespace tutti {
namespace {

constexpr int kRanks = 3;
constexpr size_t kCount = 1000;

// Runs `body` for each rank of a new communicator, each on a thread of its own; rethrows the first
// exception. A rank that throws aborts, so that the others' calls return.
void onRanks(int ranks, const std::function<void(Communicator&)>& body) {
  const UniqueId id = UniqueId::create();
  std::vector<std::exception_ptr> failures(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  threads.reserve(failures.size());
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator comm;
      try {
        Communicator::initInto(comm, rank, ranks, id);
        body(comm);
        comm.destroy();
      } catch (...) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
        if (comm) comm.abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

// Element i of rank r's input: whole and small, so sums are exact in every type and order.
float valueOf(int rank, size_t index) {
  return static_cast<float>(rank * 1000 + static_cast<int>(index % 777));
}

std::vector<float> makeInput(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = valueOf(rank, i);
  return values;
}

float sumOf(int ranks, size_t index) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += valueOf(rank, index);
  return sum;
}

// The code of the Error that `call` throws, ncclSuccess when it throws none; the text through
// `text`.
template <typename Call>
ncclResult_t codeOf(const Call& call, std::string* text = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
  return ncclSuccess;
}

static_assert(DataTypeOf<char>::value == ncclInt8 || DataTypeOf<char>::value == ncclUint8);
static_assert(DataTypeOf<unsigned char>::value == ncclUint8);
static_assert(DataTypeOf<int>::value == ncclInt32);
static_assert(DataTypeOf<unsigned>::value == ncclUint32);
static_assert(DataTypeOf<long>::value == ncclInt64);
static_assert(DataTypeOf<long long>::value == ncclInt64);
static_assert(DataTypeOf<size_t>::value == ncclUint64);
static_assert(DataTypeOf<float>::value == ncclFloat32);
static_assert(DataTypeOf<double>::value == ncclFloat64);
static_assert(!Input<std::vector<short>> && !Input<std::vector<bool>>);
static_assert(Output<std::vector<int>&> && Output<std::span<int>> && !Output<std::span<const int>>);
static_assert(!Output<const std::vector<int>&> && Input<const std::vector<int>&>);
static_assert(!std::is_copy_constructible_v<Communicator> && !std::is_copy_constructible_v<Group>);
static_assert(!std::is_copy_constructible_v<HostStream> &&
              !std::is_copy_constructible_v<Buffer<int>>);

TEST(CInterface, InitialisersCarrySizeMagicAndVersion) {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(config.size, sizeof(config));
  EXPECT_EQ(config.magic, 0xcafebeefU);
  EXPECT_EQ(config.version, 22809U);
  EXPECT_EQ(config.blocking, NCCL_CONFIG_UNDEF_INT);
  EXPECT_EQ(config.netName, nullptr);
  EXPECT_EQ(config.nvlinkCentricSched, NCCL_CONFIG_UNDEF_INT);
  const ncclSimInfo_t simInfo = NCCL_SIM_INFO_INITIALIZER;
  EXPECT_EQ(simInfo.size, sizeof(simInfo));
  EXPECT_EQ(simInfo.magic, 0x74685283U);
  EXPECT_EQ(simInfo.version, 22809U);
}

TEST(CInterface, AToolMayDefineACallAndPassItOn) {
  const int before = interposedCalls.load(std::memory_order_relaxed);
  int version = 0;
  ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, 22809);
  EXPECT_EQ(interposedCalls.load(std::memory_order_relaxed), before + 1);
}

TEST(CppInterface, AnIdTravelsAsBytes) {
  const UniqueId id = UniqueId::create();
  const UniqueId copy = UniqueId::fromBytes(id.bytes());
  EXPECT_TRUE(std::ranges::equal(id.bytes(), copy.bytes()));
}

TEST(CppInterface, TellsRankAndCount) {
  std::array<std::atomic<int>, kRanks> seen{};
  onRanks(kRanks, [&](Communicator& comm) {
    EXPECT_EQ(comm.count(), kRanks);
    seen.at(static_cast<size_t>(comm.rank())).fetch_add(1, std::memory_order_relaxed);
    EXPECT_TRUE(comm.isReady());
  });
  for (const std::atomic<int>& times : seen) EXPECT_EQ(times.load(), 1);
}

TEST(CppInterface, AllReducesOutOfPlaceAndInPlace) {
  onRanks(kRanks, [](Communicator& comm) {
    std::vector<float> values = makeInput(comm.rank(), kCount);
    std::vector<float> sums(kCount);
    EXPECT_TRUE(comm.allReduce(std::as_const(values), sums, ncclSum));
    EXPECT_TRUE(comm.allReduce(std::span(values), ncclSum));
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(sums[i], sumOf(kRanks, i)) << i;
    EXPECT_EQ(values, sums);
  });
}

TEST(CppInterface, ReducesAndBroadcastsWithUnusedSidesEmpty) {
  onRanks(kRanks, [](Communicator& comm) {
    const int root = 1;
    const bool isRoot = comm.rank() == root;
    std::vector<float> sums(isRoot ? kCount : 0);
    comm.reduce(makeInput(comm.rank(), kCount), sums, ncclSum, root);
    std::vector<float> everywhere(kCount);
    comm.broadcast(sums, everywhere, root);
    std::vector<float> inPlace = isRoot ? sums : std::vector<float>(kCount);
    comm.broadcast(inPlace, root);
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(everywhere[i], sumOf(kRanks, i)) << i;
    EXPECT_EQ(inPlace, everywhere);
  });
}

TEST(CppInterface, GathersAndScattersPieces) {
  onRanks(kRanks, [](Communicator& comm) {
    const size_t all = kCount * kRanks;
    const auto mine = makeInput(comm.rank(), kCount);
    std::vector<float> gathered(all), atRoot(comm.rank() == 2 ? all : 0), back(kCount);
    comm.allGather(mine, gathered);
    comm.gather(mine, atRoot, 2);
    comm.scatter(atRoot, back, 2);
    for (size_t i = 0; i < all; ++i) {
      ASSERT_EQ(gathered[i], valueOf(static_cast<int>(i / kCount), i % kCount)) << i;
    }
    if (comm.rank() == 2) {
      EXPECT_EQ(atRoot, gathered);
    }
    EXPECT_EQ(back, mine);
  });
}

TEST(CppInterface, ReduceScattersAndExchangesAllToAll) {
  onRanks(kRanks, [](Communicator& comm) {
    const size_t all = kCount * kRanks;
    const auto input = makeInput(comm.rank(), all);
    const size_t first = static_cast<size_t>(comm.rank()) * kCount;
    std::vector<float> piece(kCount), exchanged(all);
    comm.reduceScatter(input, piece, ncclSum);
    comm.allToAll(input, exchanged);
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(piece[i], sumOf(kRanks, first + i)) << i;
    for (size_t i = 0; i < all; ++i) {
      ASSERT_EQ(exchanged[i], valueOf(static_cast<int>(i / kCount), first + i % kCount)) << i;
    }
  });
}

TEST(CppInterface, SendsAndReceivesInsideAGroup) {
  onRanks(kRanks, [](Communicator& comm) {
    const int next = (comm.rank() + 1) % kRanks;
    const int previous = (comm.rank() + kRanks - 1) % kRanks;
    std::vector<float> received(kCount);
    const auto sent = makeInput(comm.rank(), kCount);
    Group group;
    comm.recv(received, previous);
    comm.send(sent, next);
    EXPECT_TRUE(group.end());
    EXPECT_EQ(received, makeInput(previous, kCount));
  });
}

TEST(CppInterface, OneThreadMakesAndDrivesAllRanks) {
  std::vector<Communicator> comms = Communicator::initAll(kRanks);
  ASSERT_EQ(comms.size(), static_cast<size_t>(kRanks));
  std::vector<std::vector<int>> values(kRanks, std::vector<int>{1, 2});
  Group group;
  for (size_t i = 0; i < comms.size(); ++i) comms[i].allReduce(values[i], ncclProd);
  group.end();
  for (const auto& value : values) EXPECT_EQ(value, (std::vector<int>{1, 8}));
  Group ending;
  for (Communicator& comm : comms) comm.destroy();
  ending.end();
}

TEST(CppInterface, ScalesEachRanksInput) {
  onRanks(kRanks, [](Communicator& comm) {
    const ScaledSum weighted = comm.scaledSum(static_cast<float>(comm.rank() + 1));
    std::vector<float> values(kCount, 2.0F);
    comm.allReduce(values, weighted);
    EXPECT_EQ(values, std::vector<float>(kCount, 2.0F * (1 + 2 + 3)));
  });
}

TEST(CppInterface, SplitsByColour) {
  std::string refusal;
  const ncclResult_t code = codeOf(
      [] {
        onRanks(4, [](Communicator& comm) {
          const bool joins = comm.rank() != 3;
          const Communicator part = comm.split(joins ? 0 : NCCL_SPLIT_NOCOLOR, -comm.rank());
          EXPECT_EQ(static_cast<bool>(part), joins);
          if (joins) {
            EXPECT_EQ(part.count(), 3);
            EXPECT_EQ(part.rank(), 2 - comm.rank());
          }
        });
      },
      &refusal);
  if (code == ncclInvalidUsage) GTEST_SKIP() << "this build does not split: " << refusal;
  EXPECT_EQ(code, ncclSuccess) << refusal;
}

TEST(CppInterface, RefusesSizesThatDoNotFit) {
  onRanks(2, [](Communicator& comm) {
    std::vector<int> three(3), four(4);
    std::string text;
    EXPECT_EQ(codeOf([&] { comm.allReduce(three, four, ncclSum); }, &text), ncclInvalidArgument);
    EXPECT_NE(text.find("has 4 elements, wanted 3"), std::string::npos) << text;
    EXPECT_EQ(codeOf([&] { comm.allGather(three, four); }), ncclInvalidArgument);
    EXPECT_EQ(codeOf([&] { comm.reduceScatter(four, three, ncclSum); }), ncclInvalidArgument);
    EXPECT_EQ(codeOf([&] { comm.allToAll(three, three); }), ncclInvalidArgument);
    EXPECT_TRUE(comm.isReady());  // nothing was sent, so nothing is broken
  });
}

TEST(CppInterface, ErrorsCarryTheLibrarysCodeAndText) {
  const Communicator none;
  std::string text;
  std::vector<int> values(4);
  EXPECT_EQ(codeOf([&] { none.allReduce(values, ncclSum); }, &text), ncclInvalidArgument);
  EXPECT_NE(text.find("ncclAllReduce: "), std::string::npos) << text;
  EXPECT_NE(text.find(ncclGetErrorString(ncclInvalidArgument)), std::string::npos) << text;
}

TEST(CppInterface, AMovedFromOwnerIsEmpty) {
  onRanks(1, [](Communicator& comm) {
    ncclComm_t handle = comm.get();
    Communicator taken = std::move(comm);
    EXPECT_FALSE(static_cast<bool>(comm));  // NOLINT(bugprone-use-after-move): the point
    EXPECT_EQ(taken.get(), handle);
    comm = std::move(taken);
    EXPECT_EQ(comm.get(), handle);
  });
}

TEST(CppInterface, AGroupLeftByAnExceptionLetsTheThreadGoOn) {
  onRanks(1, [](Communicator& comm) {
    try {
      Group group;
      throw std::runtime_error("on the way out");
    } catch (const std::runtime_error&) {
    }
    std::vector<int> values{7};
    EXPECT_TRUE(comm.allReduce(values, ncclSum));  // runs at once: no group is open
    EXPECT_EQ(values.front(), 7);
  });
}

TEST(CppInterface, StreamsAndEventsOrderTheWork) {
  onRanks(2, [](Communicator& comm) {
    HostStream producer, consumer;
    HostEvent start, produced;
    std::vector<float> sums = makeInput(comm.rank(), kCount);
    std::vector<float> all(2 * kCount);
    start.record(producer);
    comm.allReduce(sums, ncclSum, producer);
    produced.record(producer);
    produced.hold(consumer);
    comm.allGather(sums, all, consumer);
    consumer.synchronize();
    EXPECT_TRUE(consumer.isDone());
    EXPECT_TRUE(produced.isReached());
    EXPECT_GE(produced.millisecondsSince(start), 0.0F);
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], sumOf(2, i % kCount)) << i;
  });
}

TEST(CppInterface, OperatesOnMemoryFromTheLibrary) {
  onRanks(2, [](Communicator& comm) {
    Buffer<double> values(kCount);
    std::iota(values.begin(), values.end(), comm.rank());
    comm.allReduce(values, ncclMax);
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(values[i], static_cast<double>(i + 1)) << i;
  });
}

}  // namespace
}  // namespace tutti
