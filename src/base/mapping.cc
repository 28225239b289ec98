#include "base/mapping.h"

#include <cerrno>

namespace tutti {

namespace {

Result<UniqueMapping> mapWith(int flags, size_t bytes, std::string_view what) {
  UniqueMapping memory(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0),
      bytes);
  if (!memory) return systemError("mmap", what, errno);
  return memory;
}

}  // namespace

Result<UniqueMapping> mapPrivate(size_t bytes, std::string_view what) {
  return mapWith(0, bytes, what);
}

Result<UniqueMapping> reserve(size_t bytes, std::string_view what) {
  return mapWith(MAP_NORESERVE, bytes, what);
}

}  // namespace tutti
