// Adapters that libfabric has a provider of their own for: found without libfabric, which takes
// 0.4 s to load and look around (docs/NETWORK.md).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tutti::net::ofi {

struct KnownAdapter {
  std::string provider;  // libfabric's, of that kind of adapter only
  std::string sign;      // what tells of it: "/sys/class/cxi/cxi0"
};

// One a provider, in the order in which they are to be tried. `root`: of the file system.
std::vector<KnownAdapter> findAdapters(const std::filesystem::path& root = "/");

}  // namespace tutti::net::ofi
