#include "device/host/cpus.h"

#include <algorithm>
#include <charconv>

#include "base/affinity.h"
#include "base/read_file.h"

namespace tutti::device::host {
namespace {

constexpr size_t kMostBytes = 64_KiB;  // of a file

int64_t leadingNumber(std::string_view text) {
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() ? value : 0;
}

// The smallest quota of the group at `path` below `base` and of all groups above it; 0 for none. A
// limit on an outer group holds for the inner ones.
template <typename QuotaOf>
int32_t smallestQuota(const std::string& base, std::string path, QuotaOf quotaOf) {
  int32_t smallest = 0;
  for (;;) {
    const int32_t quota = quotaOf(base + path);
    if (quota > 0) smallest = smallest == 0 ? quota : std::min(smallest, quota);
    const size_t slash = path.find_last_of('/');
    if (slash == std::string::npos) return smallest;
    path.resize(slash);
  }
}

int32_t unifiedQuota(const std::string& group) {
  return quotaCpus(readFile(group + "/cpu.max", kMostBytes));
}

int32_t legacyQuota(const std::string& group) {
  const std::string quota = readFile(group + "/cpu.cfs_quota_us", kMostBytes);
  const std::string period = readFile(group + "/cpu.cfs_period_us", kMostBytes);
  return quota.empty() || period.empty() ? 0 : quotaCpus(quota + " " + period);
}

bool namesCpuController(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "cpu") return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
  return false;
}

// The quota for one line of /proc/self/cgroup, "id:controllers:path"; 0 for none.
int32_t lineQuota(const std::string& root, std::string_view line) {
  const size_t first = line.find(':');
  const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
  if (second == std::string_view::npos) return 0;
  const std::string_view controllers = line.substr(first + 1, second - first - 1);
  const std::string path =
      line.substr(second + 1) == "/" ? "" : std::string(line.substr(second + 1));
  if (controllers.empty()) return smallestQuota(root + "sys/fs/cgroup", path, unifiedQuota);
  if (!namesCpuController(controllers)) return 0;
  return smallestQuota(root + "sys/fs/cgroup/cpu", path, legacyQuota);
}

}  // namespace

int32_t quotaCpus(std::string_view text) {
  const size_t gap = text.find_first_of(" \n");
  const size_t second = text.find_first_not_of(" \n", gap);
  if (second == std::string_view::npos) return 0;
  const int64_t quota = leadingNumber(text);  // "max" and -1 mean none
  const int64_t period = leadingNumber(text.substr(second));
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<int32_t>(std::min<int64_t>((quota - 1) / period + 1, kMostCpus));
}

int32_t usableCpus(const std::string& root) {
  auto cpus = static_cast<int32_t>(affinityCpus().size());
  const std::string groups = readFile(root + "proc/self/cgroup", kMostBytes);
  for (std::string_view rest = groups; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (const int32_t quota = lineQuota(root, line); quota > 0) cpus = std::min(cpus, quota);
  }
  return std::max(cpus, 1);
}

}  // namespace tutti::device::host
