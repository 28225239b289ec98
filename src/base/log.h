// Log lines in the form NCCL's users grep for: "host:pid:tid [dev] NCCL INFO text".
// One line is one write(2), so lines of several threads and processes never mix.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <source_location>
#include <string_view>

#include "base/located_format.h"

namespace tutti::log {

// kVersion prints the banner only. A line is printed when its level is at most the configured one.
enum class Level : uint8_t { kNone, kVersion, kWarn, kInfo, kAbort, kTrace };

// Bits of NCCL_DEBUG_SUBSYS; the values are NCCL's.
enum class Subsystem : uint32_t {
  kInit = 0x1,
  kColl = 0x2,
  kP2p = 0x4,
  kShm = 0x8,
  kNet = 0x10,
  kGraph = 0x20,
  kTuning = 0x40,
  kEnv = 0x80,
  kAlloc = 0x100,
  kCall = 0x200,
  kProxy = 0x400,
  kNvls = 0x800,
  kBootstrap = 0x1000,
  kReg = 0x2000,
  kProfile = 0x4000,
  kRas = 0x8000,
  kDestroy = 0x10000,
  kAllocHost = 0x20000,
  kAll = 0xffffffff,
};

inline constexpr uint32_t kDefaultSubsystems = 0x1081;  // INIT | ENV | BOOTSTRAP

constexpr uint32_t levelBit(Level level) { return 1u << static_cast<uint32_t>(level); }

struct Config {
  Level level = Level::kNone;
  uint32_t subsystems = kDefaultSubsystems;       // of INFO and TRACE lines; warnings always pass
  std::string_view file = "";                     // empty: stdout. %h: host name, %p: pid, %%: a %
  std::string_view timestampFormat = "[%F %T] ";  // strftime's
  uint32_t timestampLevels = levelBit(Level::kWarn);  // which levels carry a time
  bool infoAfterWarning = false;                      // level becomes kInfo at the first warning
};

// Replaces the sink; `config` is copied. Any thread; lines in flight go to the old or the new one.
// A file that cannot be opened, or later not be written, costs one WARN and leaves stdout.
void configure(const Config& config);

// True when a line of this level and subsystem would be printed: one relaxed load.
bool isEnabled(Level level, Subsystem subsystem);

// Prints one line if enabled, cut at kMaxLineBytes. Any thread; never fails, never throws. Line
// feeds in `text` start further lines (a table), in the same write and at most kMaxWriteBytes
// altogether; other control characters become '?', so that what peers and users send cannot drive a
// terminal.
void write(Level level, Subsystem subsystem, std::string_view text,
           std::source_location where = std::source_location::current()) noexcept;

inline constexpr size_t kMaxLineBytes = 1024;   // with the line feed
inline constexpr size_t kMaxWriteBytes = 4096;  // PIPE_BUF: a pipe takes this much in one piece

// Prints "NCCL version ..." at kVersion and above: the first time after each configure().
void banner() noexcept;

// The device shown in brackets on this thread's lines: a CUDA device, or the rank of a CPU rank;
// -1: none.
void setThreadDevice(int device);

template <typename... Args>
void info(Subsystem subsystem, fmt::format_string<Args...> format, Args&&... args) {
  if (!isEnabled(Level::kInfo, subsystem)) return;
  write(Level::kInfo, subsystem, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(LocatedFormat<Args...> format, Args&&... args) {
  if (!isEnabled(Level::kWarn, Subsystem::kAll)) return;
  write(Level::kWarn, Subsystem::kAll, fmt::format(format.format, std::forward<Args>(args)...),
        format.where);
}
template <typename... Args>
void trace(Subsystem subsystem, fmt::format_string<Args...> format, Args&&... args) {
  if (!isEnabled(Level::kTrace, subsystem)) return;
  write(Level::kTrace, subsystem, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tutti::log
