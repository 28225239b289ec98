#include "base/plugin_file.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/log.h"
#include "base/shared_library.h"

namespace tutti {
namespace {

constexpr int kInfo = 3;  // of a logger's levels: NONE, VERSION, WARN, INFO, ABORT, TRACE
constexpr int kWarn = 2;

std::string fileFor(const PluginWish& wish) {
  const std::string_view value = wish.value;
  if (value.empty()) return fmt::format("libnccl-{}.so", wish.kind);
  const bool isFile = value.find('/') != std::string_view::npos ||
                      (value.starts_with("lib") && value.find(".so") != std::string_view::npos);
  return isFile ? std::string(value) : fmt::format("libnccl-{}-{}.so", wish.kind, value);
}

}  // namespace

Result<PluginLibrary> findPlugin(const PluginWish& wish) {
  if (wish.value == "none") return PluginLibrary{};
  const bool isStatic = wish.value == "STATIC_PLUGIN";
  const std::string file = isStatic ? "the program" : fileFor(wish);
  if (const std::string open = isStatic ? "" : openToAll(file); !open.empty()) {
    const std::string reason =
        fmt::format("anybody may write to {} or its folder: name it by a path to use it", open);
    if (!wish.value.empty()) return invalidUsage("{}={}: {}", wish.setting, wish.value, reason);
    log::warn("no {} plug-in: {}", wish.kind, reason);
    return PluginLibrary{};
  }
  void* handle = ::dlopen(isStatic ? nullptr : file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    if (wish.value.empty()) return PluginLibrary{};
    return invalidUsage("{}={}: {}", wish.setting, wish.value, reason != nullptr ? reason : file);
  }
  for (size_t which = 0; which < wish.symbolsNewestFirst.size(); ++which) {
    const void* functions = ::dlsym(handle, wish.symbolsNewestFirst[which]);
    if (functions == nullptr) continue;
    const auto* entries = static_cast<void* const*>(functions) + 1;
    const auto* end = entries + wish.functionCount;
    if (const auto* missing = std::find(entries, end, nullptr); missing != end) {
      return invalidUsage("{}={}: {} of {} lacks function {} of {}", wish.setting, wish.value,
                          wish.symbolsNewestFirst[which], file, missing - entries + 1,
                          wish.functionCount);
    }
    return PluginLibrary{
        .version = wish.newest - static_cast<int>(which), .functions = functions, .source = file};
  }
  return invalidUsage("{}={}: {} has no {} plug-in of a version that is known here ({} to {})",
                      wish.setting, wish.value, file, wish.kind, wish.symbolsNewestFirst.back(),
                      wish.symbolsNewestFirst.front());
}

std::string nameOf(const PluginLibrary& library) {
  const char* name = *static_cast<const char* const*>(library.functions);
  return name == nullptr ? "(no name)" : name;
}

void logForPlugin(std::string_view kind, int level, unsigned long subsystems, const char* format,
                  va_list arguments) {
  std::array<char, 1024> text{};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  if (level <= kWarn) {
    log::warn("{} plug-in: {}", kind, text.data());
  } else if (level == kInfo) {
    log::info(static_cast<log::Subsystem>(subsystems), "{} plug-in: {}", kind, text.data());
  }
}

}  // namespace tutti
