#include "launch/virtual_trace.h"

#include <fmt/core.h>

#include <cerrno>

#include "base/log.h"
#include "sim/trace_file.h"

namespace tutti::launch {

Result<std::unique_ptr<VirtualTrace>> VirtualTrace::open(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return systemError("open", path, errno);
  return std::unique_ptr<VirtualTrace>(new VirtualTrace(file));
}

std::string VirtualTrace::declare(const std::string& name, std::span<const Rank> places) {
  const std::lock_guard lock(mutex_);
  const int32_t before = names_[name]++;
  std::string unique = before == 0 ? name : fmt::format("{} ({})", name, before + 1);
  write(sim::formatTraceGroup(unique, places));
  return unique;
}

void VirtualTrace::record(const std::string& group, Rank place, std::span<const StreamCall> calls) {
  const std::lock_guard lock(mutex_);
  const uint64_t batch = calls.size() > 1 ? ++batches_ : 0;
  for (const StreamCall& item : calls) {
    write(sim::formatTraceLine({.group = group,
                                .rank = place,
                                .stream = reinterpret_cast<uintptr_t>(item.stream),
                                .batch = batch,
                                .shape = &item.call->shape}));
  }
}

void VirtualTrace::flush() {
  const std::lock_guard lock(mutex_);
  write("");
  if (!hasFailed_ && std::fflush(file_.get()) != 0) {
    hasFailed_ = true;
    log::warn("the trace of virtual ranks cannot be written: error {}", errno);
  }
}

// REQUIRES: mutex_ is held.
void VirtualTrace::write(const std::string& text) {
  if (hasFailed_ || std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size()) return;
  hasFailed_ = true;
  log::warn("the trace of virtual ranks cannot be written: error {}", errno);
}

}  // namespace tutti::launch
