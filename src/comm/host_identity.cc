#include "comm/host_identity.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/fd.h"
#include "comm/hash.h"

namespace tutti::comm {
namespace {

// Empty where there is no such file.
Result<std::string> readBootId() {
  constexpr const char* kPath = "/proc/sys/kernel/random/boot_id";
  const UniqueFd file(::open(kPath, O_RDONLY | O_CLOEXEC));
  if (!file && errno != ENOENT && errno != EACCES) return systemError("open", kPath, errno);
  std::array<char, 64> text{};
  const ssize_t length = file ? ::read(file.get(), text.data(), text.size()) : 0;
  return std::string(text.data(), length > 0 ? static_cast<size_t>(length) : 0);
}

// 0 where /proc does not tell.
uint64_t networkNamespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/net", &info) == 0 ? info.st_ino : 0;
}

}  // namespace

uint64_t hashOfHost(std::string_view name, std::string_view bootId, uint64_t networkNamespace) {
  return hashOf(fmt::format("{}\n{}\n{}", name, bootId, networkNamespace));
}

Result<uint64_t> hostHash(std::string_view hostId) {
  const uint64_t network = networkNamespace();
  if (!hostId.empty()) return hashOfHost(hostId, "", network);
  std::array<char, 256> hostName{};
  ::gethostname(hostName.data(), hostName.size() - 1);
  TUTTI_TRY_ASSIGN(const std::string bootId, readBootId());
  return hashOfHost(hostName.data(), bootId, network);
}

uint64_t machineHash() {
  const Result<std::string> bootId = readBootId();
  return bootId.ok() && !bootId.value().empty() ? hashOf(bootId.value()) : 0;
}

}  // namespace tutti::comm
