#include "base/affinity.h"

#include <sched.h>

namespace tutti {
namespace {

// A set of CPUs as large as the kernel's.
struct CpuSet {
  size_t count = 0;  // CPUs
  std::vector<unsigned long> words;

  size_t bytes() const { return words.size() * sizeof(unsigned long); }
  cpu_set_t* set() { return reinterpret_cast<cpu_set_t*>(words.data()); }
};

// Of the calling thread; empty when the kernel does not tell.
CpuSet affinity() {
  // A mask too small for the kernel's is an error: double it until it fits.
  for (size_t count = 1024; count <= size_t{kMostCpus}; count *= 2) {
    CpuSet cpus{.count = count, .words = std::vector<unsigned long>(count / (8 * sizeof(long)))};
    if (::sched_getaffinity(0, cpus.bytes(), cpus.set()) == 0) return cpus;
  }
  return {};
}

}  // namespace

std::vector<int32_t> affinityCpus() {
  std::vector<int32_t> numbers;
  CpuSet cpus = affinity();
  for (size_t cpu = 0; cpu < cpus.count; ++cpu) {
    if (CPU_ISSET_S(cpu, cpus.bytes(), cpus.set())) numbers.push_back(static_cast<int32_t>(cpu));
  }
  return numbers;
}

bool moveThreadTo(int32_t cpu) {
  CpuSet before = affinity();
  const auto number = static_cast<size_t>(cpu);
  if (cpu < 0 || number >= before.count) return false;
  if (!CPU_ISSET_S(number, before.bytes(), before.set())) return false;
  CpuSet there{.count = before.count, .words = std::vector<unsigned long>(before.words.size())};
  CPU_SET_S(number, there.bytes(), there.set());
  if (::sched_setaffinity(0, there.bytes(), there.set()) != 0) return false;
  return ::sched_setaffinity(0, before.bytes(), before.set()) == 0;
}

}  // namespace tutti
