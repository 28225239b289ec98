#include "observe/proc_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/fd.h"
#include "base/units.h"

namespace tutti::observe {
namespace {

constexpr size_t kMaxBytes = 4_MiB;

}  // namespace

std::string readProcFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  std::string text;
  std::array<char, 4096> buffer;
  while (text.size() < kMaxBytes) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  return text;
}

std::vector<std::string> namesIn(const std::string& folder) {
  std::vector<std::string> names;
  DIR* stream = ::opendir(folder.c_str());
  if (stream == nullptr) return names;
  while (const dirent* entry = ::readdir(stream)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(stream);
  std::ranges::sort(names, [](const std::string& a, const std::string& b) {
    const auto first = numberOf<int64_t>(a), second = numberOf<int64_t>(b);
    if (first && second) return *first < *second;
    return first.has_value() != second.has_value() ? first.has_value() : a < b;
  });
  return names;
}

}  // namespace tutti::observe
