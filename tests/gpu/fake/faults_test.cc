// Each call of the driver's fails in turn, once and for good, under ranks that do a bit of
// everything: by kernels (which do nothing here), or, with NCCL_P2P_DISABLE=1, through host memory.
#include <dirent.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <barrier>
#include <string_view>

#include "base/clock.h"
#include "base/futex.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/gpu/ranks.h"

namespace tutti::gputest {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;

constexpr int kRanks = 3;  // on two GPUs; the second has rank 1 alone
constexpr size_t kCount = 5000;

// The driver's side.
struct Fake {
  int (*fail)(const FakeCudaFault*) = nullptr;
  int (*hasFailed)() = nullptr;
  int (*alive)() = nullptr;

  static Fake& get() {
    static Fake fake = [] {
      Fake made;
      void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
      if (library == nullptr) return made;
      made.fail = reinterpret_cast<int (*)(const FakeCudaFault*)>(::dlsym(library, "fakeCudaFail"));
      made.hasFailed = reinterpret_cast<int (*)()>(::dlsym(library, "fakeCudaHasFailed"));
      made.alive = reinterpret_cast<int (*)()>(::dlsym(library, "fakeCudaAlive"));
      return made;
    }();
    return fake;
  }
};

size_t entriesOf(const char* path) {
  size_t count = 0;
  ::DIR* folder = ::opendir(path);
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

bool isStaged() {
  const char* text = std::getenv("NCCL_P2P_DISABLE");
  return text != nullptr && std::string_view(text) == "1";
}
std::chrono::milliseconds timeout() {
  return std::chrono::milliseconds(std::atoi(std::getenv("TUTTI_TIMEOUT_MS")));
}

// How far a rank came, and what stopped it.
struct Outcome {
  std::string step;  // empty: nothing did
  ncclResult_t result = ncclSuccess;
  std::string text;
};

// One rank's part of the communicator's life.
class Life {
 public:
  Life(int rank, const ncclUniqueId& id, std::barrier<>& barrier)
      : rank_(rank), id_(id), barrier_(barrier) {}

  void run() {
    auto gpu = RankGpu::open(rank_, 0);
    auto second = RankGpu::open(rank_, 0);
    ASSERT_TRUE(gpu.ok() && second.ok());
    {
      Array<int32_t> data(**gpu, kCount, 1), other(**gpu, kCount, rank_);
      barrier_.arrive_and_wait();  // calls fail from here on
      barrier_.arrive_and_wait();
      live(**gpu, **second, data, other);
      // Whoever waits for a rank that has given up hears of it, and abort works while calls fail.
      const Instant start = steadyClock().now();
      const bool isWhole = outcome_.step.empty();
      if (comm_ != nullptr && !isWhole) {
        EXPECT_NCCL(ncclCommAbort(comm_));
      }
      barrier_.arrive_and_wait();  // until here
      barrier_.arrive_and_wait();
      if (comm_ != nullptr && isWhole) {
        EXPECT_NCCL(ncclCommDestroy(comm_));
      }
      EXPECT_STATUS((*gpu)->synchronize());
      EXPECT_STATUS((*second)->synchronize());
      EXPECT_LT(steadyClock().now() - start, 4 * timeout() + std::chrono::seconds(10));
      barrier_.arrive_and_wait();
      if (isWhole) sum_ = data.get();  // which only staged ranks have summed
    }
  }
  const Outcome& outcome() const { return outcome_; }
  const std::vector<int32_t>& sum() const { return sum_; }

 private:
  bool took(const char* step, ncclResult_t result) {
    if (result == ncclSuccess) return true;
    outcome_ = {.step = step, .result = result, .text = ncclGetLastError(nullptr)};
    return false;
  }
  void live(RankGpu& gpu, RankGpu& second, Array<int32_t>& data, Array<int32_t>& other) {
    const auto stream = static_cast<cudaStream_t>(gpu.stream());
    const auto side = static_cast<cudaStream_t>(second.stream());
    void* memory = nullptr;
    void* handle = nullptr;
    if (!took("ncclCommInitRank", ncclCommInitRank(&comm_, kRanks, id_, rank_))) {
      comm_ = nullptr;
      return;
    }
    const auto calls = [&] {
      if (!took("ncclMemAlloc", ncclMemAlloc(&memory, size_t{1} << 20))) return;
      if (!took("ncclCommRegister", ncclCommRegister(comm_, memory, size_t{1} << 20, &handle)))
        return;
      if (!took("ncclAllReduce", ncclAllReduce(data.device(), data.device(), kCount, ncclInt32,
                                               ncclSum, comm_, stream)))
        return;
      ncclGroupStart();
      ncclAllReduce(data.device(), data.device(), kCount, ncclInt32, ncclMax, comm_, side);
      ncclSend(data.device(), 100, ncclInt32, (rank_ + 1) % kRanks, comm_, stream);
      ncclRecv(other.device(), 100, ncclInt32, (rank_ + kRanks - 1) % kRanks, comm_, stream);
      if (!took("ncclGroupEnd", ncclGroupEnd())) return;
      took("ncclBroadcast", ncclBroadcast(memory, memory, 1000, ncclInt8, 2, comm_, side));
    };
    calls();
    if (outcome_.step.empty()) {
      // All that is on the streams; where another rank has failed its part does not end.
      ncclResult_t state = ncclSuccess;
      const Instant deadline = steadyClock().now() + 3 * timeout();
      ncclCommFinalize(comm_);
      do {
        sleepFor(std::chrono::milliseconds(1));
        if (!took("ncclCommGetAsyncError", ncclCommGetAsyncError(comm_, &state))) break;
      } while (state == ncclInProgress && steadyClock().now() < deadline);
      if (outcome_.step.empty()) took("the end", state);
    }
    if (handle != nullptr) ncclCommDeregister(comm_, handle);
    if (memory != nullptr) {
      const ncclResult_t freed = ncclMemFree(memory);
      EXPECT_EQ(freed, ncclSuccess) << ncclGetLastError(nullptr);
    }
  }

  const int rank_;
  const ncclUniqueId id_;
  std::barrier<>& barrier_;
  ncclComm_t comm_ = nullptr;
  Outcome outcome_;
  std::vector<int32_t> sum_;
};

struct Result {
  std::array<Outcome, kRanks> outcomes;
  std::array<std::vector<int32_t>, kRanks> sums;
  bool hasFailed = false;  // the call
};

Result live(const FakeCudaFault* fault) {
  ncclUniqueId id;
  EXPECT_NCCL(ncclGetUniqueId(&id));
  std::barrier<> barrier(kRanks + 1);
  std::vector<std::unique_ptr<Life>> lives;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    lives.push_back(std::make_unique<Life>(rank, id, barrier));
    threads.emplace_back([&barrier, life = lives.back().get()] {
      life->run();
      barrier.arrive_and_drop();
    });
  }
  Result result;
  barrier.arrive_and_wait();
  Fake::get().fail(fault);
  barrier.arrive_and_wait();
  barrier.arrive_and_wait();
  result.hasFailed = Fake::get().hasFailed() != 0;
  Fake::get().fail(nullptr);
  barrier.arrive_and_wait();
  barrier.arrive_and_drop();
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < kRanks; ++rank) {
    result.outcomes[static_cast<size_t>(rank)] = lives[static_cast<size_t>(rank)]->outcome();
    result.sums[static_cast<size_t>(rank)] = lives[static_cast<size_t>(rank)]->sum();
  }
  return result;
}

void expectWhole(const Result& result) {
  for (const Outcome& outcome : result.outcomes)
    EXPECT_EQ(outcome.step, "") << outcome.result << ": " << outcome.text;
  if (!isStaged()) return;
  for (const auto& sum : result.sums) EXPECT_THAT(sum, Each(kRanks));
}

const std::vector<const char*> kCalls = {"cuDeviceGetCount",
                                         "cuDeviceGet",
                                         "cuDeviceGetAttribute",
                                         "cuDeviceGetPCIBusId",
                                         "cuDeviceGetByPCIBusId",
                                         "cuDeviceGetP2PAttribute",
                                         "cuDeviceCanAccessPeer",
                                         "cuDevicePrimaryCtxRetain",
                                         "cuCtxGetCurrent",
                                         "cuCtxGetDevice",
                                         "cuCtxPushCurrent_v2",
                                         "cuModuleLoadData",
                                         "cuModuleGetFunction",
                                         "cuFuncGetAttribute",
                                         "cuLaunchKernelEx",
                                         "cuMemHostAlloc",
                                         "cuMemHostGetDevicePointer_v2",
                                         "cuPointerGetAttribute",
                                         "cuMemGetAllocationGranularity",
                                         "cuMemCreate",
                                         "cuMemAddressReserve",
                                         "cuMemMap",
                                         "cuMemSetAccess",
                                         "cuMemExportToShareableHandle",
                                         "cuMemImportFromShareableHandle",
                                         "cuMemcpyAsync",
                                         "cuMemsetD8Async",
                                         "cuStreamCreate",
                                         "cuStreamCreateWithPriority",
                                         "cuStreamSynchronize",
                                         "cuStreamWaitEvent",
                                         "cuLaunchHostFunc",
                                         "cuStreamWaitValue32_v2",
                                         "cuStreamWriteValue32_v2",
                                         "cuStreamGetCaptureInfo_v2",
                                         "cuStreamGetId",
                                         "cuEventCreate",
                                         "cuEventRecord",
                                         "cuEventQuery"};

// As texts have it: without the version of the call.
std::string nameIn(std::string_view call) { return std::string(call.substr(0, call.find('_'))); }

constexpr int kOutOfMemory = 2, kIllegalAddress = 700;

class DriverFaults : public testing::Test {
 protected:
  // What a process has once it has run ranks, and was the place where not all came. That is cleared
  // away when the next is made, if its thread has ended by then, else by the one after. More lives
  // add nothing.
  static void SetUpTestSuite() {
    for (int i = 0; i < 2; ++i) expectWhole(live(nullptr));
    const FakeCudaFault comesNot{.call = "cuDeviceGetCount",
                                 .number = 1,
                                 .result = kOutOfMemory,
                                 .isSticky = 0,
                                 .device = 1};
    for (int i = 0; i < 2; ++i) EXPECT_EQ(live(&comesNot).outcomes[1].step, "ncclCommInitRank");
    alive_ = Fake::get().alive();
    descriptors_ = entriesOf("/proc/self/fd");
    threads_ = entriesOf("/proc/self/task");
  }
  void SetUp() override { ASSERT_NE(Fake::get().fail, nullptr) << "another driver's here"; }

  static void expectNothingLeft() {
    const Instant deadline = steadyClock().now() + std::chrono::seconds(20);
    const auto isLeft = [] {
      return entriesOf("/proc/self/task") > threads_ || entriesOf("/proc/self/fd") > descriptors_;
    };
    while (isLeft() && steadyClock().now() < deadline) sleepFor(std::chrono::milliseconds(5));
    EXPECT_EQ(Fake::get().alive(), alive_);
    EXPECT_LE(entriesOf("/proc/self/fd"), descriptors_);
    EXPECT_LE(entriesOf("/proc/self/task"), threads_);
  }

  static inline int alive_ = 0;
  static inline size_t descriptors_ = 0, threads_ = 0;
};

class DriverFaultsOf : public DriverFaults, public testing::WithParamInterface<const char*> {};

// Rank 1's GPU alone: it says which call failed, the others that they wait for nothing.
TEST_P(DriverFaultsOf, AreErrorsThatNameTheCallAndLeaveNothing) {
  for (const bool isSticky : {false, true}) {
    for (int number = 1;; number *= 2) {
      SCOPED_TRACE(testing::Message()
                   << GetParam() << " " << number << (isSticky ? " sticky" : ""));
      const FakeCudaFault fault{.call = GetParam(),
                                .number = number,
                                .result = isSticky ? kIllegalAddress : kOutOfMemory,
                                .isSticky = isSticky ? 1 : 0,
                                .device = 1};
      const Result result = live(&fault);
      const Outcome& guilty = result.outcomes[1];
      if (!guilty.step.empty()) {
        EXPECT_THAT(guilty.result, AnyOf(ncclUnhandledCudaError, ncclSystemError))
            << guilty.step << ": " << guilty.text;
        EXPECT_THAT(guilty.text, HasSubstr(isSticky ? "cu" : nameIn(GetParam()))) << guilty.step;
        EXPECT_TRUE(result.hasFailed);
      } else if (!isSticky) {
        expectWhole(result);  // it did without
      }
      // Of a device that is lost it cannot be told what still runs: what that uses stays.
      if (isSticky) alive_ = Fake::get().alive();
      expectNothingLeft();
      if (!result.hasFailed || HasFailure()) break;
    }
  }
  expectWhole(live(nullptr));
}
// Where one rank of several cannot map the others' memory, all go through the host's, right from
// the first call, and it is said why.
TEST_F(DriverFaults, OfOneRanksMappingsSendAllThroughTheHost) {
  if (isStaged()) GTEST_SKIP() << "they go there anyhow";
  for (const char* call : {"cuMemExportToShareableHandle", "cuMemImportFromShareableHandle",
                           "cuMemSetAccess", "cuMemcpyAsync"}) {
    const FakeCudaFault fault{
        .call = call, .number = 1, .result = kOutOfMemory, .isSticky = 0, .device = 1};
    testing::internal::CaptureStdout();
    const Result result = live(&fault);
    const std::string log = testing::internal::GetCapturedStdout();
    EXPECT_TRUE(result.hasFailed);
    for (const Outcome& outcome : result.outcomes) EXPECT_EQ(outcome.step, "") << outcome.text;
    for (const auto& sum : result.sums) EXPECT_THAT(sum, Each(kRanks)) << call;
    EXPECT_THAT(log, testing::AllOf(HasSubstr("3 GPU ranks go through host memory"),
                                    HasSubstr("rank 1 (")));
    expectNothingLeft();
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, DriverFaultsOf, testing::ValuesIn(kCalls));

}  // namespace
}  // namespace tutti::gputest
