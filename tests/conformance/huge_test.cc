// Counts beyond 32 bits.
#include <sys/sysinfo.h>

#include <cstring>
#include <memory>

#include "ranks.h"

namespace tutti::conformance {
namespace {

constexpr size_t kCount = (size_t{1} << 31) + 1;

bool hasMemoryFor(size_t bytes) {
  struct sysinfo info {};
  return ::sysinfo(&info) == 0 && (info.freeram + info.bufferram) * info.mem_unit > bytes;
}

TEST(Huge, AllReduceOfMoreThanTwoToTheThirtyOneElements) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers multiply the 4 GiB that this takes";
#endif
  if (!hasMemoryFor(2 * kCount + (size_t{2} << 30))) GTEST_SKIP() << "needs 6 GiB of free memory";
  runRanks(2, [](int rank, ncclComm_t comm) {
    // Not zeroed by us: the pattern is.
    std::unique_ptr<uint8_t[]> values(new uint8_t[kCount]);
    std::memset(values.get(), rank + 1, kCount);
    values[kCount - 1] = static_cast<uint8_t>(100 + rank);
    EXPECT_NCCL(
        ncclAllReduce(values.get(), values.get(), kCount, ncclUint8, ncclSum, comm, nullptr));
    size_t wrong = 0;
    for (size_t i = 0; i + 1 < kCount; ++i) wrong += values[i] != 3;
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(values[kCount - 1], 201);
  });
}

}  // namespace
}  // namespace tutti::conformance
