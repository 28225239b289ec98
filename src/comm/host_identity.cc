#include "comm/host_identity.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/fd.h"
#include "comm/hash.h"

namespace tutti::comm {
namespace {

std::string readBootId() {
  const UniqueFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 64> text{};
  const ssize_t length = file ? ::read(file.get(), text.data(), text.size()) : 0;
  return std::string(text.data(), length > 0 ? static_cast<size_t>(length) : 0);
}

}  // namespace

uint64_t hostHash(std::string_view hostId) {
  std::string identity(hostId);
  if (identity.empty()) {
    std::array<char, 256> hostName{};
    ::gethostname(hostName.data(), hostName.size() - 1);
    identity = std::string(hostName.data()) + '\n' + readBootId();
  }
  return hashOf(identity);
}

}  // namespace tutti::comm
