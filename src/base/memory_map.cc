#include "base/memory_map.h"

#include <algorithm>

#include "base/proc_files.h"
#include "base/read_file.h"
#include "base/units.h"

namespace tutti {
namespace {

constexpr size_t kMostText = 64_MiB;  // half a million mappings; a system allows 65530

struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool canRead = false;
  bool canWrite = false;
};

// "7f0c5c000000-7f0c5c021000 rw-p 00000000 00:00 0  [heap]"
std::optional<Range> rangeOf(std::string_view line) {
  const size_t dash = line.find('-');
  const size_t space = line.find(' ');
  if (dash == line.npos || space == line.npos || space < dash || line.size() < space + 3)
    return std::nullopt;
  const auto begin = numberOf<uintptr_t>(line.substr(0, dash), 16);
  const auto end = numberOf<uintptr_t>(line.substr(dash + 1, space - dash - 1), 16);
  if (!begin || !end) return std::nullopt;
  return Range{*begin, *end, line[space + 1] == 'r', line[space + 2] == 'w'};
}

}  // namespace

std::string readMemoryMap() { return readFile("/proc/self/maps", kMostText); }

std::optional<MemoryFault> findFault(std::string_view map, uintptr_t from, size_t bytes,
                                     MemoryUse use) {
  using Reason = MemoryFault::Reason;
  if (bytes == 0) return std::nullopt;
  const uintptr_t last = bytes - 1 > UINTPTR_MAX - from ? UINTPTR_MAX : from + (bytes - 1);
  while (!map.empty()) {
    const std::string_view line = map.substr(0, map.find('\n'));
    map.remove_prefix(std::min(line.size() + 1, map.size()));
    const std::optional<Range> range = rangeOf(line);
    if (!range || range->end <= from) continue;
    if (range->begin > from) break;
    if (!range->canRead) return MemoryFault{from, Reason::kUnreadable};
    if (use == MemoryUse::kWrite && !range->canWrite) return MemoryFault{from, Reason::kReadOnly};
    if (last < range->end) return std::nullopt;
    from = range->end;
  }
  return MemoryFault{from, Reason::kUnmapped};
}

}  // namespace tutti
