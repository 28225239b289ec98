#include "base/log.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/uncancelled.h"
#include "base/version.h"
#include "base/whole_file.h"

namespace tutti::log {
namespace {

// How lines are dressed. Constant after construction, and never freed: a line in flight may still
// read the one before. They stay reachable through `previous`; a process makes one or two.
struct Style {
  std::string host;
  std::string timestampFormat;
  uint32_t timestampLevels = 0;
  bool infoAfterWarning = false;
  std::string path;  // of the log file; empty: stdout
  const Style* previous = nullptr;
};

// The log sink, one of the process's few globals. Constant-initialised and without a destructor, so
// that lines can be written before main and while the process ends.
struct Sink {
  // High half: level. Low half: subsystems. One word, so that isEnabled sees a pair that was set
  // together. Relaxed: a line more or less while the level changes does no harm.
  std::atomic<uint64_t> enabled{0};
  // Released by configure, acquired by whoever writes a line.
  std::atomic<const Style*> style{nullptr};
  // Where lines go: stdout or `fileFd`. Relaxed: both are open for ever once seen here.
  std::atomic<int> fd{STDOUT_FILENO};
  std::atomic<bool> isBannerDue{true};

  std::mutex configuring;  // guards the one below
  int fileFd = -1;  // opened once; another file takes over the number by dup3, which is atomic
};

constinit Sink sink;
constinit thread_local int threadDevice = -1;

constexpr uint64_t packEnabled(Level level, uint32_t subsystems) {
  return (uint64_t{static_cast<uint8_t>(level)} << 32) | subsystems;
}

// Up to 4096 bytes, each line at most 1024; what does not fit is left out.
class LineBuffer {
 public:
  void append(std::string_view text) {
    for (const char c : text) append(c);
  }

  void endLine() {
    if (isCut_) dropPartialCharacter();
    bytes_[length_++] = '\n';  // append() leaves room for it
    lineStart_ = length_;
    isCut_ = false;
  }

  const char* data() const { return bytes_; }
  size_t size() const { return length_; }

 private:
  void append(char c) {
    if (c == '\n') {
      if (length_ + 1 < sizeof bytes_) endLine();
      return;
    }
    if (length_ - lineStart_ + 1 >= kMaxLineBytes || length_ + 1 >= sizeof bytes_) {
      isCut_ = true;
      return;
    }
    const auto value = static_cast<unsigned char>(c);
    const bool isControl = (value < 0x20 && c != '\t') || value == 0x7f;
    bytes_[length_++] = isControl ? '?' : c;
  }

  // A cut may fall inside a UTF-8 sequence: leave its first bytes out too.
  void dropPartialCharacter() {
    size_t start = length_;
    while (start > lineStart_ && length_ - start < 3 && (bytes_[start - 1] & 0xc0) == 0x80) --start;
    if (start == lineStart_) return;
    const auto lead = static_cast<unsigned char>(bytes_[start - 1]);
    const size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    if (wanted > length_ - start + 1) length_ = start - 1;
  }

  char bytes_[kMaxWriteBytes];
  size_t length_ = 0;
  size_t lineStart_ = 0;
  bool isCut_ = false;
};

std::string shortHostName() {
  char name[HOST_NAME_MAX + 1] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return std::string(name, std::strcspn(name, "."));
}

std::string expandPattern(std::string_view pattern, std::string_view host) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'h') path += host;
    if (next == 'p') path += std::to_string(::getpid());
    if (next == '%') path += '%';
    if (next == 'h' || next == 'p' || next == '%') {
      ++i;
    } else {
      path += pattern[i];
    }
  }
  return path;
}

// Replaces the file as NCCL does; appends, so that processes that share one do not overwrite each
// other. Returns -1 and errno. Never blocks on a pipe that nobody reads. Keeps off 0, 1 and 2.
int openLogFile(const std::string& path) {
  UniqueFd fd(::open(path.c_str(),
                     O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                     0666));
  if (!fd) return -1;
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags >= 0) (void)::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK);
  return fd.get() > STDERR_FILENO ? fd.release() : ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3);
}

void appendTimestamp(LineBuffer& line, const Style& style) {
  const time_t seconds = static_cast<time_t>(wallClockSeconds());
  struct tm parts {};
  char text[256];
  if (::localtime_r(&seconds, &parts) == nullptr) return;
  line.append({text, ::strftime(text, sizeof text, style.timestampFormat.c_str(), &parts)});
}

void appendPlace(LineBuffer& line, const std::source_location& where) {
  std::string_view file = where.file_name();
  const size_t root = file.rfind("src/");
  const bool isFolder = root == 0 || (root != std::string_view::npos && file[root - 1] == '/');
  if (isFolder) file.remove_prefix(root + 4);
  // "tutti::Status tutti::bootstrap::{anonymous}::join(int)": only "join" helps the reader.
  std::string_view function = where.function_name();
  function = function.substr(0, function.find('(', function.starts_with("(") ? 1 : 0));
  const size_t start = function.find_last_of(": *&");
  if (start != std::string_view::npos) function.remove_prefix(start + 1);
  char number[16];
  const auto end = fmt::format_to_n(number, sizeof number, ":{} (", where.line());
  line.append(file);
  line.append({number, static_cast<size_t>(end.out - number)});
  line.append(function);
  line.append(") ");
}

std::string_view levelName(Level level) {
  switch (level) {
    case Level::kNone: return "NONE";
    case Level::kVersion: return "VERSION";
    case Level::kWarn: return "WARN";
    case Level::kInfo: return "INFO";
    case Level::kAbort: return "ABORT";
    case Level::kTrace: return "TRACE";
  }
  return "";
}

bool isCall(Level level, Subsystem subsystem) {
  return level == Level::kTrace && subsystem == Subsystem::kCall;
}

// "[time] host:pid:tid [dev] file:line (function) NCCL WARN ", as much of it as the level carries.
void appendPrefix(LineBuffer& line, const Style& style, Level level, Subsystem subsystem,
                  const std::source_location& where) {
  if ((style.timestampLevels & levelBit(level)) != 0) appendTimestamp(line, style);
  // Asked for anew each time: a fork changes both.
  char ids[64];
  const auto end = fmt::format_to_n(ids, sizeof ids, ":{}:{} ", ::getpid(), ::gettid());
  line.append(style.host);
  line.append({ids, static_cast<size_t>(end.out - ids)});
  if (isCall(level, subsystem)) {
    line.append("NCCL CALL ");
    return;
  }
  char device[16];
  const auto deviceEnd = fmt::format_to_n(device, sizeof device, "[{}] ", threadDevice);
  line.append({device, static_cast<size_t>(deviceEnd.out - device)});
  if (level == Level::kWarn) appendPlace(line, where);
  line.append("NCCL ");
  line.append(levelName(level));
  line.append(" ");
}

void emit(const LineBuffer& line);

void emitLine(Level level, Subsystem subsystem, std::string_view text,
              const std::source_location& where) {
  const Style* style = sink.style.load(std::memory_order_acquire);
  if (style == nullptr) return;
  LineBuffer line;
  if (level == Level::kWarn) line.endLine();  // warnings stand out by a blank line before them
  if (level != Level::kVersion) appendPrefix(line, *style, level, subsystem, where);
  while (text.ends_with('\n')) text.remove_suffix(1);
  line.append(text);
  line.endLine();
  emit(line);
}

void warnAboutFile(std::string_view what, int errnoValue) {
  char reason[128] = "";
  const char* known = ::strerror_r(errnoValue, reason, sizeof reason);
  const Style* style = sink.style.load(std::memory_order_acquire);
  std::string text(what);
  text.append(" log file ").append(style->path).append(": ").append(known);
  text.append("; the log goes on at standard output (NCCL_DEBUG_FILE names the file)");
  emitLine(Level::kWarn, Subsystem::kAll, text, std::source_location::current());
}

// A file that can no longer be written is given up once, by whichever thread finds out first.
void emit(const LineBuffer& line) {
  const Uncancelled held;  // lines are written on the short way of a call, too
  int fd = sink.fd.load(std::memory_order_relaxed);
  const int problem = writeAll(fd, {line.data(), line.size()});
  if (problem == 0 || fd == STDOUT_FILENO) return;
  if (sink.fd.compare_exchange_strong(fd, STDOUT_FILENO, std::memory_order_relaxed)) {
    warnAboutFile("cannot write", problem);
  }
  (void)writeAll(STDOUT_FILENO, {line.data(), line.size()});
}

// Points the sink at the style's file. Returns 0, or why it cannot. REQUIRES: configuring is held.
int useFile(const Style& style) {
  const bool isSameFile = style.previous != nullptr && style.previous->path == style.path &&
                          sink.fd.load(std::memory_order_relaxed) == sink.fileFd;
  if (isSameFile) return 0;  // opening it again would empty it
  UniqueFd opened(openLogFile(style.path));
  if (!opened) {
    const int problem = errno;
    sink.fd.store(STDOUT_FILENO, std::memory_order_relaxed);
    return problem;
  }
  if (sink.fileFd < 0) {
    sink.fileFd = opened.release();
  } else if (::dup3(opened.get(), sink.fileFd, O_CLOEXEC) < 0) {
    return errno;
  }
  sink.fd.store(sink.fileFd, std::memory_order_relaxed);
  return 0;
}

}  // namespace

void configure(const Config& config) {
  std::lock_guard lock(sink.configuring);
  auto* style = new Style;
  style->host = shortHostName();
  style->timestampFormat = config.timestampFormat;
  style->timestampLevels = config.timestampLevels;
  style->infoAfterWarning = config.infoAfterWarning;
  if (config.level != Level::kNone) style->path = expandPattern(config.file, style->host);
  style->previous = sink.style.load(std::memory_order_relaxed);
  sink.style.store(style, std::memory_order_release);

  int problem = 0;
  if (style->path.empty()) {
    sink.fd.store(STDOUT_FILENO, std::memory_order_relaxed);
  } else {
    problem = useFile(*style);
  }
  sink.isBannerDue.store(true, std::memory_order_relaxed);
  sink.enabled.store(packEnabled(config.level, config.subsystems), std::memory_order_relaxed);
  if (problem != 0) warnAboutFile("cannot open", problem);
}

bool isEnabled(Level level, Subsystem subsystem) {
  const uint64_t enabled = sink.enabled.load(std::memory_order_relaxed);
  if (static_cast<uint64_t>(level) > (enabled >> 32)) return false;
  const bool isFiltered = level >= Level::kInfo;
  return !isFiltered || (static_cast<uint32_t>(enabled) & static_cast<uint32_t>(subsystem)) != 0;
}

void write(Level level, Subsystem subsystem, std::string_view text,
           std::source_location where) noexcept {
  if (level == Level::kNone || !isEnabled(level, subsystem)) return;
  const int savedErrno = errno;  // callers report their own errno after logging
  try {
    emitLine(level, subsystem, text, where);
  } catch (...) {
    // Out of memory while reporting a lost file: the line is lost, the run goes on.
  }
  const Style* style = sink.style.load(std::memory_order_acquire);
  if (level == Level::kWarn && style != nullptr && style->infoAfterWarning) {
    const uint64_t enabled = sink.enabled.load(std::memory_order_relaxed);
    if (enabled >> 32 < static_cast<uint64_t>(Level::kInfo)) {
      sink.enabled.store(packEnabled(Level::kInfo, static_cast<uint32_t>(enabled)),
                         std::memory_order_relaxed);
    }
  }
  errno = savedErrno;
}

void banner() noexcept {
  if (!isEnabled(Level::kVersion, Subsystem::kAll)) return;
  if (sink.isBannerDue.exchange(false, std::memory_order_relaxed)) {
    write(Level::kVersion, Subsystem::kAll, kBanner);
  }
}

void setThreadDevice(int device) { threadDevice = device; }

}  // namespace tutti::log
