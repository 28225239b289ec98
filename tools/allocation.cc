#include "tools/allocation.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "base/units.h"
#include "base/whole_file.h"

namespace tutti::tools {
namespace {

constexpr size_t kMostHosts = 4096;  // as tutti run starts no more ranks
constexpr size_t kMostDigits = 9;    // of a host's number
constexpr size_t kMostFileBytes = 16_MiB;

// From here on a step's number stands for what is none: a shell of salloc's, a batch script.
constexpr uint64_t kFirstSpecialStep = 0xffff'fffa;

std::optional<uint64_t> numberOf(std::string_view digits) {
  uint64_t number = 0;
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || rest != digits.data() + digits.size()) return std::nullopt;
  return number;
}

// The parts between commas that no bracket encloses.
Result<std::vector<std::string_view>> splitList(std::string_view list) {
  std::vector<std::string_view> entries;
  bool isInside = false;
  size_t begin = 0;
  for (size_t at = 0; at <= list.size(); ++at) {
    const char letter = at == list.size() ? ',' : list[at];
    if (letter == '[' || letter == ']') {
      if (isInside == (letter == '[')) return invalidArgument("a '{}' too many", letter);
      isInside = letter == '[';
    }
    if (letter != ',' || (isInside && at < list.size())) continue;
    if (at == begin) return invalidArgument("an entry is empty");
    entries.push_back(list.substr(begin, at - begin));
    begin = at + 1;
  }
  if (isInside) return invalidArgument("a ']' is missing");
  return entries;
}

struct Range {
  uint64_t first = 0;
  uint64_t last = 0;
  size_t width = 1;  // digits, with zeros in front
};

// "7", "01-03"
Result<Range> parseRange(std::string_view text) {
  const size_t dash = text.find('-');
  const std::string_view low = text.substr(0, dash);
  const std::string_view high = dash == std::string_view::npos ? low : text.substr(dash + 1);
  const std::optional<uint64_t> first = numberOf(low), last = numberOf(high);
  if (!first || !last || *last < *first || low.size() > kMostDigits || high.size() > kMostDigits)
    return invalidArgument("'{}' is no range of hosts", text.substr(0, 80));
  return Range{.first = *first, .last = *last, .width = low.size()};
}

Status tooMany() { return invalidArgument("more than {} hosts", kMostHosts); }

// Each name with each number of "01-03,7" behind it.
Result<std::vector<std::string>> withNumbers(const std::vector<std::string>& names,
                                             std::string_view ranges) {
  std::vector<std::string> longer;
  for (size_t at = 0; at <= ranges.size();) {
    const size_t end = std::min(ranges.find(',', at), ranges.size());
    TUTTI_TRY_ASSIGN(const Range range, parseRange(ranges.substr(at, end - at)));
    if ((range.last - range.first + 1) * names.size() > kMostHosts - longer.size())
      return tooMany();
    for (const std::string& name : names) {
      for (uint64_t number = range.first; number <= range.last; ++number)
        longer.push_back(fmt::format("{}{:0{}}", name, number, range.width));
    }
    at = end + 1;
  }
  return longer;
}

// "node[01-03,7]", "rack[0-1]node[0-3]-ib". REQUIRES: its brackets are balanced.
Result<std::vector<std::string>> namesOf(std::string_view entry) {
  std::vector<std::string> names = {""};
  while (!entry.empty()) {
    const size_t open = std::min(entry.find('['), entry.size());
    for (std::string& name : names) name += entry.substr(0, open);
    entry.remove_prefix(open);
    if (entry.empty()) break;
    const size_t close = entry.find(']');
    TUTTI_TRY_ASSIGN(names, withNumbers(names, entry.substr(1, close - 1)));
    entry.remove_prefix(close + 1);
  }
  return names;
}

// "2(x3),1": 2, 2, 2, 1.
Result<std::vector<int>> parseTasks(std::string_view text) {
  constexpr uint64_t kMostTasks = 4096;
  std::vector<int> tasks;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    std::string_view count = text.substr(at, end - at);
    const std::string_view entry = count;
    std::optional<uint64_t> times = 1;
    if (const size_t open = count.find("(x");
        open != std::string_view::npos && count.back() == ')') {
      times = numberOf(count.substr(open + 2, count.size() - open - 3));
      count = count.substr(0, open);
    }
    const std::optional<uint64_t> each = numberOf(count);
    if (!each || *each < 1 || *each > kMostTasks || !times || *times < 1)
      return invalidArgument("'{}' is no number of tasks", entry.substr(0, 80));
    if (*times > kMostHosts - tasks.size()) return tooMany();
    tasks.insert(tasks.end(), *times, static_cast<int>(*each));
    at = end + 1;
  }
  return tasks;
}

const char* valueOf(const Lookup& lookup, const char* variable) {
  const char* value = lookup(variable);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

// Also one whose numbers make no sense: somebody has set them.
bool isRank(const Lookup& lookup) {
  const Result<std::optional<LauncherPlace>> place = detectLauncher(lookup);
  if (!place.ok()) return true;
  if (!place.value()) return false;
  const char* step = valueOf(lookup, "SLURM_STEP_ID");
  const std::string& launcher = place.value()->launcher;
  const bool isOfStep = launcher == "Slurm" || launcher == "PMIx";
  return !isOfStep || step == nullptr || numberOf(step).value_or(0) < kFirstSpecialStep;
}

// "node1" and "node1.cluster" are one host, "node1.a" and "node1.b" are two.
bool isSameHost(std::string_view one, std::string_view other) {
  if (one.find('.') != std::string_view::npos && other.find('.') != std::string_view::npos)
    return one == other;
  return one.substr(0, one.find('.')) == other.substr(0, other.find('.'));
}

Status named(const char* variable, std::string_view value, const Status& wrong) {
  return invalidArgument("{}={}: {}", variable, value.substr(0, 200), wrong.message());
}

Result<Allocation> readSlurm(const Lookup& lookup) {
  constexpr const char* kList = "SLURM_JOB_NODELIST";
  const char* list = valueOf(lookup, kList);
  if (list == nullptr) return Allocation{};
  const char* tasks = valueOf(lookup, "SLURM_TASKS_PER_NODE");
  auto hosts = parseSlurmHosts(list, tasks == nullptr ? "" : tasks);
  if (!hosts.ok()) return named(kList, list, hosts.status());
  return Allocation{.source = kList, .hosts = std::move(hosts).value()};
}

Result<Allocation> readPbs(const Lookup& lookup) {
  constexpr const char* kFile = "PBS_NODEFILE";
  const char* path = valueOf(lookup, kFile);
  if (path == nullptr) return Allocation{};
  const Result<std::string> text = readFileOrPipe(path, kMostFileBytes);
  if (!text.ok()) return named(kFile, path, text.status());
  auto hosts = parseHostFile(text.value(), path);
  if (!hosts.ok()) return named(kFile, path, hosts.status());
  return Allocation{.source = kFile, .hosts = std::move(hosts).value()};
}

}  // namespace

Result<std::vector<HostSlots>> parseSlurmHosts(std::string_view list, std::string_view tasks) {
  TUTTI_TRY_ASSIGN(const std::vector<std::string_view> entries, splitList(list));
  std::vector<std::string> names;
  for (const std::string_view entry : entries) {
    TUTTI_TRY_ASSIGN(const std::vector<std::string> more, namesOf(entry));
    if (more.size() > kMostHosts - names.size()) return tooMany();
    names.insert(names.end(), more.begin(), more.end());
  }
  std::vector<int> slots(names.size(), 1);
  if (!tasks.empty()) {
    TUTTI_TRY_ASSIGN(slots, parseTasks(tasks));
  }
  if (slots.size() != names.size()) {
    return invalidArgument("{} hosts, and tasks for {} (SLURM_TASKS_PER_NODE={})", names.size(),
                           slots.size(), tasks.substr(0, 80));
  }
  std::string all;  // in the form of --hosts, whose parser knows what names a host
  for (size_t i = 0; i < names.size(); ++i)
    all += fmt::format("{}{}:{}", i == 0 ? "" : ",", names[i], slots[i]);
  return parseHosts(all);
}

Result<Allocation> readAllocation(const Lookup& lookup, std::string_view ownHost) {
  if (isRank(lookup)) return Allocation{};
  TUTTI_TRY_ASSIGN(Allocation found, readSlurm(lookup));
  if (found.hosts.empty()) {
    TUTTI_TRY_ASSIGN(found, readPbs(lookup));
  }
  if (found.hosts.size() == 1 && isSameHost(found.hosts.front().name, ownHost)) return Allocation{};
  return found;
}

}  // namespace tutti::tools
