// Plug-ins: shared objects that export a struct of functions under a versioned name. Found and
// loaded here, and never unloaded: a plug-in's threads and exit handlers may live as long as the
// process.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tutti {

// What a setting asks for.
struct PluginWish {
  std::string_view setting;  // "NCCL_TUNER_PLUGIN"
  std::string_view kind;     // "tuner": libnccl-tuner.so, libnccl-tuner-NAME.so
  std::string_view value;    // unset (empty): the plain file, where there is one; "none": nothing;
                             // "STATIC_PLUGIN": in the program itself; a path or lib*.so: that
                             // file; a word: libnccl-KIND-WORD.so
  std::span<const char* const> symbolsNewestFirst;  // of versions that follow each other
  int newest = 0;                                   // the first one's
  size_t functionCount = 0;  // behind the name, in the struct of each version; 0: not looked at
};

// A plug-in in this process's memory, where it stays. Immutable, any thread.
struct PluginLibrary {
  int version = 0;
  const void* functions = nullptr;  // its struct of that version; null: there is none, and none was
                                    // asked for by name
  std::string source{};             // the file, or what else it came from
  bool exists() const { return functions != nullptr; }
};

// kInvalidUsage where something was asked for by name and is not there, exports none of the
// symbols, or lacks one of its functions.
Result<PluginLibrary> findPlugin(const PluginWish& wish);

// What a plug-in prints goes where ours does: "tuner plug-in: ...". Levels and subsystems are those
// of NCCL_DEBUG and NCCL_DEBUG_SUBSYS.
void logForPlugin(std::string_view kind, int level, unsigned long subsystems, const char* format,
                  va_list arguments) __attribute__((format(printf, 4, 0)));

// What the plug-in calls itself, which is the first word of its struct in every version of all
// interfaces.
std::string nameOf(const PluginLibrary& library);

// The same as plug-ins call it. `kKind` has static storage.
template <const char* kKind>
__attribute__((format(printf, 5, 6))) void logAsPlugin(int level, unsigned long subsystems,
                                                       const char* /*file*/, int /*line*/,
                                                       const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  logForPlugin(kKind, level, subsystems, format, arguments);
  va_end(arguments);
}

}  // namespace tutti
