#include "base/shared_library.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/settings.h"

namespace tutti {
namespace {

bool mayAnybodyWrite(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && (info.st_mode & S_IWOTH) != 0;
}

}  // namespace

std::string openToAll(std::string_view file, std::string_view folders) {
  if (folders.empty() || file.find('/') != std::string_view::npos) return {};
  for (size_t at = 0; at <= folders.size();) {
    const size_t end = std::min(folders.find_first_of(":;", at), folders.size());
    const std::string folder(end == at ? "." : folders.substr(at, end - at));
    const std::string found = fmt::format("{}/{}", folder, file);
    struct stat info {};
    if (::stat(found.c_str(), &info) == 0)
      return mayAnybodyWrite(found) || mayAnybodyWrite(folder) ? found : std::string();
    at = end + 1;
  }
  return {};
}

std::string openToAll(std::string_view file) {
  return openToAll(file, environmentVariable("LD_LIBRARY_PATH").value_or(""));
}

Result<SharedLibrary> SharedLibrary::open(const std::string& file, std::string_view name) {
  if (const std::string open = openToAll(file); !open.empty()) {
    return Status(Code::kSystemError,
                  fmt::format("no {}: anybody may write to {} or its folder", name, open));
  }
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
