#include "base/affinity.h"

#include <sched.h>

#include <bit>
#include <charconv>
#include <utility>

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

// These two fail where the kernel's sets are larger.
static_assert(sizeof(unsigned long) == sizeof(CpuMask::value_type));
bool readMask(CpuMask& mask) {
  return ::sched_getaffinity(0, sizeof mask, reinterpret_cast<cpu_set_t*>(mask.data())) == 0;
}
bool writeMask(const CpuMask& mask) {
  return ::sched_setaffinity(0, sizeof mask, reinterpret_cast<const cpu_set_t*>(mask.data())) == 0;
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

CpuMask affinityMask() {
  CpuMask mask{};
  if (readMask(mask)) return mask;
  for (const int32_t cpu : affinityCpus()) {
    const size_t word = static_cast<size_t>(cpu) / 64;
    if (word < mask.size()) mask[word] |= uint64_t{1} << (cpu % 64);
  }
  return mask;
}

int32_t countOf(const CpuMask& mask) {
  int32_t count = 0;
  for (const uint64_t word : mask) count += std::popcount(word);
  return count;
}

bool moveThreadTo(int32_t cpu) {
  CpuMask before{};
  if (cpu < 0 || cpu >= kMaskCpus || !readMask(before)) return false;
  CpuMask there{};
  const auto number = static_cast<size_t>(cpu);
  there[number / 64] = uint64_t{1} << (number % 64) & before[number / 64];
  return countOf(there) == 1 && writeMask(there) && writeMask(before);
}

NumberList parseNumberList(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with(' ')) text.remove_suffix(1);
  NumberList list;
  bool isAscending = true;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int32_t first = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc() || first < 0 || first >= kMostCpus) return list;
    int32_t last = first;
    if (parsed.ptr < end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
      if (parsed.ec != std::errc() || last >= kMostCpus) return list;
    }
    for (int32_t number = first; number <= last; ++number) list.numbers.push_back(number);
    isAscending = isAscending && first <= last;
    if (parsed.ptr < end && *parsed.ptr != ',') return list;
    at = parsed.ptr == end ? end : parsed.ptr + 1;
  }
  list.isWhole = isAscending;
  return list;
}

std::vector<int32_t> parseCpuList(std::string_view text) {
  NumberList list = parseNumberList(text);
  return list.isWhole ? std::move(list.numbers) : std::vector<int32_t>();
}

NarrowedAffinity::NarrowedAffinity(std::span<const int32_t> cpus, bool ignoresOwn) {
  CpuSet before = affinity();
  CpuSet narrow{.count = before.count, .words = std::vector<unsigned long>(before.words.size())};
  bool isEmpty = true;
  for (const int32_t cpu : cpus) {
    const auto number = static_cast<size_t>(cpu);
    if (cpu < 0 || number >= before.count) continue;
    if (!ignoresOwn && !CPU_ISSET_S(number, before.bytes(), before.set())) continue;
    CPU_SET_S(number, narrow.bytes(), narrow.set());
    isEmpty = false;
  }
  if (isEmpty || narrow.words == before.words) return;
  if (::sched_setaffinity(0, narrow.bytes(), narrow.set()) == 0) before_ = std::move(before.words);
}

NarrowedAffinity::~NarrowedAffinity() {
  if (before_.empty()) return;
  ::sched_setaffinity(0, before_.size() * sizeof(unsigned long),
                      reinterpret_cast<const cpu_set_t*>(before_.data()));
}

}  // namespace tutti
