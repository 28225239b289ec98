#include "base/mapping.h"

#include <cerrno>

namespace tutti {

Result<UniqueMapping> mapPrivate(size_t bytes, std::string_view what) {
  UniqueMapping memory(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), bytes);
  if (!memory) return systemError("mmap", what, errno);
  return memory;
}

}  // namespace tutti
