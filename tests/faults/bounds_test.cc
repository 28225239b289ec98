// Buffers that end where memory ends: a read or a write one byte beyond either end is a fault of
// the processor, in every collective, type of message and algorithm.
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "../conformance/ranks.h"

namespace tutti::faults {
namespace {

// Pages that may be used, between two that may not.
class Pages {
 public:
  explicit Pages(size_t bytes)
      : page_(static_cast<size_t>(::sysconf(_SC_PAGESIZE))),
        inner_((bytes + page_ - 1) / page_ * page_) {
    void* all = ::mmap(nullptr, inner_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    begin_ = static_cast<char*>(all) + page_;
    if (all == MAP_FAILED || ::mprotect(begin_, inner_, PROT_READ | PROT_WRITE) != 0) std::abort();
    std::memset(begin_, 0x55, inner_);
  }
  ~Pages() { ::munmap(begin_ - page_, inner_ + 2 * page_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  enum class Side { kFront, kBack };
  // `bytes` that touch a forbidden page in front or behind.
  char* at(Side side, size_t bytes) {
    return side == Side::kFront ? begin_ : begin_ + inner_ - bytes;
  }

 private:
  size_t page_;
  size_t inner_;
  char* begin_ = nullptr;
};

constexpr int kRanks = 3;

struct Buffers {
  char* input;
  char* output;
};
struct Call {
  const char* name;
  size_t inputs;  // how many times `count` the input is, and the output
  size_t outputs;
  std::function<ncclResult_t(const Buffers&, size_t count, ncclComm_t)> run;
};

const std::vector<Call>& calls() {
  static const std::vector<Call> all = {
      {"AllReduce", 1, 1,
       [](const Buffers& b, size_t n, ncclComm_t comm) {
         return ncclAllReduce(b.input, b.output, n, ncclInt8, ncclSum, comm, nullptr);
       }},
      {"AllReduce in place", 0, 1,
       [](const Buffers& b, size_t n, ncclComm_t comm) {
         return ncclAllReduce(b.output, b.output, n, ncclInt8, ncclMax, comm, nullptr);
       }},
      {"Broadcast", 1, 1,
       [](const Buffers& b, size_t n, ncclComm_t comm) {
         return ncclBroadcast(b.input, b.output, n, ncclInt8, 1, comm, nullptr);
       }},
      {"Reduce", 1, 1,
       [](const Buffers& b, size_t n, ncclComm_t comm) {
         return ncclReduce(b.input, b.output, n, ncclInt8, ncclSum, 2, comm, nullptr);
       }},
      {"AllGather", 1, kRanks,
       [](const Buffers& b, size_t n, ncclComm_t comm) {
         return ncclAllGather(b.input, b.output, n, ncclInt8, comm, nullptr);
       }},
      {"ReduceScatter", kRanks, 1,
       [](const Buffers& b, size_t n, ncclComm_t comm) {
         return ncclReduceScatter(b.input, b.output, n, ncclInt8, ncclSum, comm, nullptr);
       }},
      {"AlltoAll", kRanks, kRanks,
       [](const Buffers& b, size_t n, ncclComm_t comm) {
         return ncclAlltoAll(b.input, b.output, n, ncclInt8, comm, nullptr);
       }},
  };
  return all;
}

// Lengths around everything that has a size of its own: inline messages, vectors, cache lines,
// slots, several slots.
const std::vector<size_t>& counts() {
  static const std::vector<size_t> all = {1,    7,    39,   40,    41,    63,     64,     65,
                                          4095, 4096, 4097, 65535, 65537, 524289, 1200007};
  return all;
}

TEST(Bounds, NoCollectiveTouchesAByteBeyondItsBuffers) {
  Pages::Side sides[] = {Pages::Side::kFront, Pages::Side::kBack};
  conformance::runRanks(kRanks, [&](int, ncclComm_t comm) {
    const size_t most = counts().back();
    Pages input(most * kRanks), output(most * kRanks);
    for (const Call& call : calls()) {
      for (const size_t count : counts()) {
        for (const Pages::Side side : sides) {
          const Buffers buffers{input.at(side, std::max<size_t>(1, count * call.inputs)),
                                output.at(side, count * call.outputs)};
          ASSERT_EQ(call.run(buffers, count, comm), ncclSuccess)
              << call.name << " " << count << ": " << ncclGetLastError(comm);
        }
      }
    }
  });
}

TEST(Bounds, NoSendOrReceiveTouchesAByteBeyondItsBuffer) {
  conformance::runRanks(2, [&](int rank, ncclComm_t comm) {
    Pages input(counts().back()), output(counts().back());
    for (const size_t count : counts()) {
      for (const Pages::Side side : {Pages::Side::kFront, Pages::Side::kBack}) {
        EXPECT_NCCL(ncclGroupStart());
        EXPECT_NCCL(ncclSend(input.at(side, count), count, ncclInt8, 1 - rank, comm, nullptr));
        EXPECT_NCCL(ncclRecv(output.at(side, count), count, ncclInt8, 1 - rank, comm, nullptr));
        ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(comm);
      }
    }
  });
}

}  // namespace
}  // namespace tutti::faults
