#include "net/ofi/adapters.h"

#include <array>
#include <string_view>

#include "base/proc_files.h"

namespace tutti::net::ofi {
namespace {

namespace fs = std::filesystem;

// A folder's first entry that begins so and, where a driver is named, is driven by that.
struct Sign {
  std::string_view provider;
  std::string_view folder;
  std::string_view beginning;
  std::string_view driver;
};
// None of the providers that run over internet addresses or other providers. psm3 is for Intel's
// adapters that do RDMA; it would also take any other interface, over sockets of its own.
constexpr std::array<Sign, 5> kSigns = {
    Sign{.provider = "cxi", .folder = "sys/class/cxi", .beginning = "cxi", .driver = ""},
    Sign{.provider = "efa", .folder = "sys/class/infiniband", .beginning = "", .driver = "efa"},
    Sign{.provider = "opx", .folder = "dev", .beginning = "hfi1_", .driver = ""},
    Sign{.provider = "psm2", .folder = "dev", .beginning = "hfi1_", .driver = ""},
    Sign{.provider = "psm3", .folder = "sys/class/infiniband", .beginning = "", .driver = "irdma"}};

std::string driverOf(const fs::path& device) {
  std::error_code none;
  return fs::read_symlink(device / "device" / "driver", none).filename().string();
}

std::string look(const fs::path& root, const Sign& sign) {
  const fs::path folder = root / sign.folder;
  for (const std::string& name : namesIn(folder.string())) {
    if (!name.starts_with(sign.beginning)) continue;
    if (sign.driver.empty() || driverOf(folder / name) == sign.driver)
      return (folder / name).string();
  }
  return "";
}

}  // namespace

std::vector<KnownAdapter> findAdapters(const fs::path& root) {
  std::vector<KnownAdapter> adapters;
  for (const Sign& sign : kSigns) {
    if (std::string file = look(root, sign); !file.empty())
      adapters.push_back({.provider = std::string(sign.provider), .sign = std::move(file)});
  }
  return adapters;
}

}  // namespace tutti::net::ofi
