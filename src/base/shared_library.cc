#include "base/shared_library.h"

#include <dlfcn.h>

namespace tutti {

Result<SharedLibrary> SharedLibrary::open(const std::string& file, std::string_view name) {
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return SharedLibrary(handle);
  const char* reason = ::dlerror();
  return Status(Code::kSystemError,
                fmt::format("no {}: {}", name, reason == nullptr ? "?" : reason));
}

void* SharedLibrary::addressOf(const char* symbol) {
  void* address = ::dlsym(handle_, symbol);
  if (address == nullptr) missing_ = symbol;
  return address;
}

}  // namespace tutti
