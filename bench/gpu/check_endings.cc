#include <atomic>
#include <cinttypes>
#include <cstdio>

#include "check_parts.h"

namespace tutti::bench {
namespace {

// Rank 0 does not come (or calls something else): the others must end, with the right reason.
enum class Misdeed { kAbsent, kOtherCount, kOtherSize, kAborted };

int checkMisdeed(Team& team, Misdeed misdeed, uint64_t count) {
  std::atomic<int> failures{0};
  team.run([&](Member& member) {
    const DeviceBuffer buffer(count * 8);
    TUTTI_CU(cuMemsetD8(buffer.address(), 1, buffer.bytes()));
    member.view().timeoutNs = misdeed == Misdeed::kAborted ? 0 : 300'000'000;
    TUTTI_CU(cuCtxSynchronize());
    team.meet();
    Job job{.collective = Collective::kAllReduce,
            .count = count,
            .input = buffer.at(0),
            .output = buffer.at(0)};
    const bool isBad = member.rank() == 0;
    if (isBad && misdeed == Misdeed::kOtherCount) job.count = count - 1;
    if (isBad && misdeed == Misdeed::kOtherSize) job.count = 1;
    const bool isAbsent = isBad && (misdeed == Misdeed::kAbsent || misdeed == Misdeed::kAborted);
    if (!isAbsent) member.launch(job);
    if (!isBad && misdeed == Misdeed::kAborted) member.abortWord() = 1;
    member.synchronize();
    const auto fault = static_cast<wire::GpuFault>(member.error().fault);
    const bool isRight =
        misdeed == Misdeed::kAborted ? fault == wire::GpuFault::kAborted
        : misdeed == Misdeed::kAbsent
            ? fault == wire::GpuFault::kTimedOut && member.error().peer == 0
            : fault == wire::GpuFault::kMismatch || fault == wire::GpuFault::kTimedOut;
    if (!isAbsent && !isRight && !(isBad && fault == wire::GpuFault::kNone)) {
      std::printf("FAIL rank %d: misdeed %d count %" PRIu64 ": fault %u peer %d\n", member.rank(),
                  static_cast<int>(misdeed), count, member.error().fault, member.error().peer);
      ++failures;
    }
    if (misdeed == Misdeed::kOtherCount && member.rank() == 1) {
      std::printf("  other count of %" PRIu64 ": rank 1 says fault %u, rank %d\n", count,
                  member.error().fault, member.error().peer);
    }
    team.meet();
    member.view().timeoutNs = team.options().timeoutMs * 1'000'000;
  });
  team.reset();
  return failures;
}

}  // namespace

int checkMisdeeds(Team& team) {
  int failures = 0;
  for (const uint64_t count : {uint64_t{100}, uint64_t{1'000'000}}) {
    for (const Misdeed misdeed :
         {Misdeed::kAbsent, Misdeed::kOtherCount, Misdeed::kOtherSize, Misdeed::kAborted}) {
      failures += checkMisdeed(team, misdeed, count);
    }
  }
  return failures;
}

}  // namespace tutti::bench
