// Buffers that cannot be right. With NCCL_CHECK_POINTERS=1 CPU ranks refuse them, name the argument
// and the reason, and work on. The setting is read once, so these tests are a process of their own.
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "processes.h"
#include "ranks.h"

namespace tutti::conformance {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string lastError() { return ncclGetLastError(nullptr); }

// Four pages: one to use as wanted, one to read only, one that nobody may touch, and one that is
// not there.
class Pages {
 public:
  Pages() {
    memory_ = static_cast<char*>(
        ::mmap(nullptr, 4 * bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(memory_, MAP_FAILED);
    EXPECT_EQ(::mprotect(memory_ + bytes_, bytes_, PROT_READ), 0);
    EXPECT_EQ(::mprotect(memory_ + 2 * bytes_, bytes_, PROT_NONE), 0);
    EXPECT_EQ(::munmap(memory_ + 3 * bytes_, bytes_), 0);
  }
  ~Pages() { ::munmap(memory_, 3 * bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  size_t count() const { return bytes_ / sizeof(float); }
  char* usable() const { return memory_; }
  char* readOnly() const { return memory_ + bytes_; }
  char* forbidden() const { return memory_ + 2 * bytes_; }
  char* absent() const { return memory_ + 3 * bytes_; }

 private:
  const size_t bytes_ = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  char* memory_ = nullptr;
};

// Rank 1 of two. What is refused is refused before the peer hears of it, so it needs none.
class CheckedBuffers : public testing::Test {
 protected:
  static constexpr int kRank = 1;
  void SetUp() override {
    comms_.resize(2);
    ASSERT_EQ(ncclCommInitAll(comms_.data(), 2, nullptr), ncclSuccess) << lastError();
  }
  void TearDown() override {
    std::vector<float> values(2, 1);
    EXPECT_NCCL(ncclGroupStart());
    for (size_t rank = 0; rank < 2; ++rank)
      EXPECT_NCCL(ncclAllReduce(&values[rank], &values[rank], 1, ncclFloat, ncclSum, comms_[rank],
                                nullptr));
    EXPECT_NCCL(ncclGroupEnd());
    EXPECT_EQ(values, std::vector<float>(2, 2));
    for (ncclComm_t comm : comms_) EXPECT_NCCL(ncclCommDestroy(comm));
  }
  ncclComm_t comm() const { return comms_[kRank]; }
  ncclResult_t reduceAll(const void* in, void* out, size_t count, ncclComm_t comm) const {
    return ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm, nullptr);
  }
  void expectRefused(ncclResult_t result, const std::string& buffer, const std::string& why) const {
    EXPECT_EQ(result, ncclInvalidArgument) << why;
    EXPECT_THAT(lastError(), AllOf(HasSubstr(buffer), HasSubstr(why)));
  }
  std::vector<ncclComm_t> comms_;
  Pages pages_;
  float values_[64] = {};
};

TEST_F(CheckedBuffers, DISABLED_MustBeAlignedToTheType) {
  char* const odd = pages_.usable() + 2;
  expectRefused(reduceAll(odd, values_, 1, comm()), "sendbuff", "not aligned to the 4 bytes");
  expectRefused(reduceAll(values_, odd, 1, comm()), "recvbuff", "of an element of float");
  expectRefused(ncclRecv(pages_.usable() + 4, 1, ncclDouble, 0, comm(), nullptr), "recvbuff",
                "the 8 bytes");
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclSend(odd, 1, ncclFloat16, kRank, comm(), nullptr));
  EXPECT_NCCL(ncclRecv(odd + 2, 1, ncclFloat16, kRank, comm(), nullptr));
  EXPECT_NCCL(ncclGroupEnd());
}

TEST_F(CheckedBuffers, DISABLED_MustBeMapped) {
  expectRefused(reduceAll(pages_.absent(), values_, 1, comm()), "sendbuff",
                "at byte 0 there is no memory");
  expectRefused(ncclSend(pages_.absent() - 4, 1, ncclFloat, 0, comm(), nullptr), "sendbuff",
                "at byte 0 memory cannot be read (does it belong to a GPU");
  expectRefused(reduceAll(values_, pages_.forbidden(), 1, comm()), "recvbuff", "cannot be written");
  // What begins well.
  const size_t count = pages_.count();
  expectRefused(ncclBroadcast(nullptr, pages_.usable(), count + 1, ncclFloat, 0, comm(), nullptr),
                "recvbuff", "at byte " + std::to_string(count * 4) + " memory can only be read");
  expectRefused(ncclSend(pages_.readOnly(), count + 1, ncclFloat, 0, comm(), nullptr), "sendbuff",
                "at byte " + std::to_string(count * 4));
  // A call that uses as many blocks as there are ranks needs so much.
  expectRefused(ncclReduceScatter(pages_.readOnly(), values_, count / 2 + 1, ncclFloat, ncclSum,
                                  comm(), nullptr),
                "sendbuff", "of " + std::to_string((count + 2) * 4) + " bytes cannot be read");
}

TEST_F(CheckedBuffers, DISABLED_MustBeWritableWhereTheyAreWritten) {
  expectRefused(reduceAll(values_, pages_.readOnly(), 1, comm()), "recvbuff",
                "cannot be written: at byte 0 memory can only be read");
  // What is only read may be so.
  EXPECT_NCCL(ncclGroupStart());
  for (ncclComm_t each : comms_)
    EXPECT_NCCL(reduceAll(pages_.readOnly(), &values_[each == comm() ? 1 : 0], 1, each));
  EXPECT_NCCL(ncclGroupEnd());
}

TEST_F(CheckedBuffers, DISABLED_MayOverlapOnlyInPlace) {
  float* const at = values_ + 16;
  expectRefused(reduceAll(at, at + 1, 4, comm()), "sendbuff",
                "overlap; in place on rank 1 recvbuff is sendbuff +0 bytes");
  expectRefused(ncclAllGather(at, at, 4, ncclFloat, comm(), nullptr), "recvbuff",
                "recvbuff is sendbuff -16 bytes");
  expectRefused(ncclReduceScatter(at, at, 4, ncclFloat, ncclSum, comm(), nullptr), "recvbuff",
                "recvbuff is sendbuff +16 bytes");
  expectRefused(ncclGather(at, at, 4, ncclFloat, kRank, comm(), nullptr), "recvbuff", "-16 bytes");
  expectRefused(ncclScatter(at, at, 4, ncclFloat, kRank, comm(), nullptr), "recvbuff", "+16 bytes");
  expectRefused(ncclBroadcast(at, at + 1, 4, ncclFloat, kRank, comm(), nullptr), "recvbuff",
                "+0 bytes");
  expectRefused(ncclReduce(at, at - 1, 4, ncclFloat, ncclSum, kRank, comm(), nullptr), "recvbuff",
                "+0 bytes");
  expectRefused(ncclAlltoAll(at, at, 4, ncclFloat, comm(), nullptr), "sendbuff", "never in place");
}

// In place, side by side, or of a buffer that the rank's part does not use.
TEST_F(CheckedBuffers, DISABLED_AreTakenWhereNcclTakesThem) {
  std::vector<float> other(64);
  EXPECT_NCCL(ncclGroupStart());
  for (size_t rank = 0; rank < 2; ++rank) {
    float* const at = rank == kRank ? values_ : other.data();
    ncclComm_t comm = comms_[rank];
    EXPECT_NCCL(ncclAllGather(at + 4 * rank, at, 4, ncclFloat, comm, nullptr));
    EXPECT_NCCL(ncclReduceScatter(at, at + 4 * rank, 4, ncclFloat, ncclSum, comm, nullptr));
    EXPECT_NCCL(ncclGather(at + 4 * rank, at, 4, ncclFloat, kRank, comm, nullptr));
    EXPECT_NCCL(ncclScatter(at, at + 4 * rank, 4, ncclFloat, kRank, comm, nullptr));
    EXPECT_NCCL(ncclBcast(at, 4, ncclFloat, kRank, comm, nullptr));
    EXPECT_NCCL(reduceAll(at, at + 4, 4, comm));
    EXPECT_NCCL(ncclAlltoAll(at, at + 8, 4, ncclFloat, comm, nullptr));
    EXPECT_NCCL(
        ncclReduce(at, rank == kRank ? at : at + 1, 4, ncclFloat, ncclSum, kRank, comm, nullptr));
    EXPECT_NCCL(ncclBroadcast(rank == kRank ? at : at + 1, at, 4, ncclFloat, kRank, comm, nullptr));
    EXPECT_NCCL(reduceAll(nullptr, nullptr, 0, comm));
    EXPECT_NCCL(reduceAll(pages_.absent(), pages_.absent() + 1, 0, comm));
  }
  EXPECT_NCCL(ncclGroupEnd());
}

TEST_F(CheckedBuffers, DISABLED_AreRefusedInGroupsToo) {
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclBcast(values_, 4, ncclFloat, 0, comm(), nullptr));
  EXPECT_EQ(reduceAll(values_, pages_.absent(), 1, comm()), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
}

TEST(Buffers, ThatCannotBeRightAreRefusedWhenThatIsAsked) {
  const std::vector<int> codes = runProcesses("CheckedBuffers.DISABLED_*", 1, [](int /*rank*/) {
    return std::vector<std::string>{"NCCL_CHECK_POINTERS=1"};
  });
  EXPECT_EQ(codes, std::vector<int>(1, 0));
}

TEST(Buffers, AreNotLookedAtUnlessThatIsAsked) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  float values[4] = {1, 2, 3, 4};
  EXPECT_NCCL(ncclAlltoAll(values, values, 4, ncclFloat, comm, nullptr));
  EXPECT_NCCL(ncclCommDestroy(comm));
}

}  // namespace
}  // namespace tutti::conformance
