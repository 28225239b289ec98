// The CPUs that a thread may run on.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tutti {

// More CPUs than any kernel is built for.
inline constexpr int32_t kMostCpus = 1 << 16;

// Of the calling thread, ascending, by the kernel's numbers. Empty when the kernel does not tell.
std::vector<int32_t> affinityCpus();

// CPUs by number, a bit each. Those beyond count for nothing.
using CpuMask = std::array<uint64_t, 16>;
inline constexpr int32_t kMaskCpus = 64 * 16;
// The same; allocates nothing on machines of so many CPUs.
CpuMask affinityMask();
int32_t countOf(const CpuMask& mask);

// Moves the calling thread there and leaves its affinity as it is. False, and nothing is moved,
// when its affinity leaves that CPU out, a mask does not have it, or the kernel refuses. Allocates
// nothing: a call may be under way.
bool moveThreadTo(int32_t cpu);

// The kernel's way to write a set of CPUs or nodes, "0-3,8".
struct NumberList {
  std::vector<int32_t> numbers;  // up to what is none
  bool isWhole = false;          // there is nothing else
};
NumberList parseNumberList(std::string_view text);
// Of what is none anywhere: empty.
std::vector<int32_t> parseCpuList(std::string_view text);

// While it lives, the thread that made it runs on these CPUs only, as far as its affinity lets it;
// where that leaves none, nothing changes. Threads that it begins meanwhile stay there. Made and
// destroyed by one thread.
class NarrowedAffinity {
 public:
  // `ignoresOwn`: on all of these CPUs, whatever its affinity was.
  NarrowedAffinity(std::span<const int32_t> cpus, bool ignoresOwn);
  ~NarrowedAffinity();
  NarrowedAffinity(const NarrowedAffinity&) = delete;
  NarrowedAffinity& operator=(const NarrowedAffinity&) = delete;

  bool isNarrowed() const { return !before_.empty(); }

 private:
  std::vector<unsigned long> before_;  // the kernel's set; empty: nothing to restore
};

}  // namespace tutti
