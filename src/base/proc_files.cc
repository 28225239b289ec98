#include "base/proc_files.h"

#include <dirent.h>

#include <algorithm>
#include <memory>

namespace tutti {

std::vector<std::string> namesIn(const std::string& folder) {
  std::vector<std::string> names;
  const auto close = [](DIR* stream) { ::closedir(stream); };
  const std::unique_ptr<DIR, decltype(close)> stream(::opendir(folder.c_str()));
  if (stream == nullptr) return names;
  while (const dirent* entry = ::readdir(stream.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  std::ranges::sort(names, [](const std::string& a, const std::string& b) {
    const auto first = numberOf<int64_t>(a), second = numberOf<int64_t>(b);
    if (first && second) return *first < *second;
    return first.has_value() != second.has_value() ? first.has_value() : a < b;
  });
  return names;
}

}  // namespace tutti
