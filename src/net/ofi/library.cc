#include "net/ofi/library.h"

#include <dlfcn.h>

#include <cstring>

namespace tutti::net::ofi {

Status Library::check(int64_t result, std::string_view call) const {
  if (result >= 0) return {};
  return Status(Code::kSystemError, fmt::format("libfabric: {}: {} ({})", call,
                                                describe(static_cast<int>(-result)), -result));
}

Result<Library> loadLibrary() {
  void* handle = ::dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return Status(Code::kSystemError,
                  fmt::format("no libfabric: {}", reason == nullptr ? "?" : reason));
  }
  Library library;
  const char* missing = nullptr;
  const auto find = [&](auto& member, const char* symbol) {
    void* address = ::dlsym(handle, symbol);
    if (address == nullptr) missing = symbol;
    static_assert(sizeof member == sizeof address);
    std::memcpy(&member, &address, sizeof member);
  };
  find(library.getInfo, "fi_getinfo");
  find(library.freeInfo, "fi_freeinfo");
  find(library.duplicateInfo, "fi_dupinfo");
  find(library.openFabric, "fi_fabric");
  find(library.describe, "fi_strerror");
  if (missing == nullptr) return library;
  return Status(Code::kSystemError, fmt::format("libfabric.so.1 has no {}", missing));
}

}  // namespace tutti::net::ofi
