#include "bootstrap/key.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "bootstrap/bytes.h"

namespace tutti::bootstrap {
namespace {

constexpr size_t kMinSecretFileBytes = 16;
constexpr size_t kMaxSecretFileBytes = 4096;

const unsigned char* raw(const void* bytes) { return static_cast<const unsigned char*>(bytes); }

Status checkSecretFile(const std::string& path, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) {
    return invalidUsage("TUTTI_SECRET_FILE {} is not a regular file", path);
  }
  if (info.st_uid != geteuid()) {
    return invalidUsage("TUTTI_SECRET_FILE {} belongs to user {}, wanted {} (this process's user)",
                        path, info.st_uid, geteuid());
  }
  if ((info.st_mode & 077) != 0) {
    return invalidUsage("TUTTI_SECRET_FILE {} has mode {:o}: others can use it, wanted 600", path,
                        info.st_mode & 0777);
  }
  const auto bytes = static_cast<size_t>(info.st_size);
  if (bytes < kMinSecretFileBytes || bytes > kMaxSecretFileBytes) {
    return invalidUsage("TUTTI_SECRET_FILE {} has {} bytes, wanted {} to {}", path, bytes,
                        kMinSecretFileBytes, kMaxSecretFileBytes);
  }
  return {};
}

}  // namespace

Key::~Key() { sodium_memzero(bytes_.data(), bytes_.size()); }

void keyedHash(const Key& key, std::string_view label,
               std::initializer_list<std::span<const std::byte>> parts, std::span<std::byte> out) {
  crypto_generichash_state state;
  crypto_generichash_init(&state, key.bytes().data(), key.bytes().size(), out.size());
  crypto_generichash_update(&state, raw(label.data()), label.size());
  for (std::span<const std::byte> part : parts) {
    crypto_generichash_update(&state, raw(part.data()), part.size());
  }
  crypto_generichash_final(&state, raw(out.data()), out.size());
  sodium_memzero(&state, sizeof state);
}

bool equalInConstantTime(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Key deriveJobKey(const UniqueId& id, std::string_view fileSecret) {
  Key secret;
  std::copy(id.secret.begin(), id.secret.end(), secret.bytes().begin());
  Key key;
  keyedHash(secret, "tutti-v1",
            {std::as_bytes(std::span(id.job)), std::as_bytes(std::span(fileSecret))},
            std::as_writable_bytes(key.bytes()));
  return key;
}

Result<std::string> readSecretFile(const std::string& path) {
  if (path.empty()) return std::string();
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return systemError("open", "TUTTI_SECRET_FILE " + path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return systemError("fstat", "TUTTI_SECRET_FILE " + path, errno);
  }
  TUTTI_TRY(checkSecretFile(path, info));
  std::string content(static_cast<size_t>(info.st_size), '\0');
  size_t filled = 0;
  while (filled < content.size()) {
    const ssize_t count = ::read(fd.get(), content.data() + filled, content.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return systemError("read", "TUTTI_SECRET_FILE " + path, errno);
    if (count == 0) break;  // it shrank meanwhile: what was read is the secret
    filled += static_cast<size_t>(count);
  }
  content.resize(filled);
  return content;
}

}  // namespace tutti::bootstrap
