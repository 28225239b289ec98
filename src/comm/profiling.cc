#include "comm/profiling.h"

#include <fmt/core.h>

#include <algorithm>
#include <new>

#include "base/clock.h"
#include "base/log.h"
#include "base/whole_file.h"
#include "comm/folders.h"
#include "comm/plugin_calls.h"

namespace tutti::comm {

// A trace that is written when its rank's communicator ends, or the process.
class TraceFile final : public observe::Trace {
 public:
  struct Place {
    Profiling& owner;
    std::string path;
    size_t events = 0;
  };
  TraceFile(Place place, const observe::TraceIdentity& identity)
      : Trace(place.events), place_(std::move(place)), identity_(identity) {}
  ~TraceFile() override {
    place_.owner.remove(*this);
    write();
  }

  void write() {
    try {
      const observe::TraceMoment moment{.now = steadyClock().now(),
                                        .wallClockNs = wallClockNanoseconds(),
                                        .droppedCount = droppedCount()};
      const Status status =
          writeWholeFile(place_.path, observe::traceText(identity_, records(), moment));
      if (!status.ok()) {
        log::warn("rank {}: {} (TUTTI_TRACE_DIR)", identity_.rank, status.message());
        return;
      }
      log::info(log::Subsystem::kInit, "rank {}: trace in {}", identity_.rank, place_.path);
    } catch (const std::bad_alloc&) {
      log::warn("rank {}: no memory to write {}", identity_.rank, place_.path);
    }
  }

 private:
  const Place place_;
  const observe::TraceIdentity identity_;
};

Profiling::Profiling(const Settings& settings, Nanoseconds patience)
    : traceFolder_(settings.text("TUTTI_TRACE_DIR")),
      traceEvents_(static_cast<size_t>(settings.integer("TUTTI_TRACE_EVENTS"))),
      pluginWish_(settings.text("NCCL_PROFILER_PLUGIN")),
      patience_(patience) {
  if (!traceFolder_.empty()) warnUnlessWritable("TUTTI_TRACE_DIR", "trace", traceFolder_);
}

std::unique_ptr<observe::Profiler> Profiling::open(const Subject& subject) {
  std::vector<std::unique_ptr<observe::ProfilerSink>> sinks;
  if (!traceFolder_.empty()) sinks.push_back(openTrace(subject.trace));
  if (auto plugin = openPlugin(subject); plugin != nullptr) sinks.push_back(std::move(plugin));
  if (sinks.empty()) return nullptr;
  return std::make_unique<observe::Profiler>(std::move(sinks));
}

std::unique_ptr<observe::ProfilerSink> Profiling::openPlugin(const Subject& subject) {
  PluginLibrary library;
  {
    const std::lock_guard lock(pluginMutex_);
    if (!plugin_) {
      Result<PluginLibrary> loaded =
          callInTime<PluginLibrary>(patience_, [wish = pluginWish_] { return loadProfiler(wish); });
      plugin_ = loaded.ok() ? std::move(loaded).value() : PluginLibrary{};
    }
    library = *plugin_;
  }
  if (!library.exists()) return nullptr;
  const observe::TraceIdentity& rank = subject.trace;
  const ProfiledRank profiled{.communicator = rank.communicator,
                              .name = rank.name,
                              .rank = rank.rank,
                              .rankCount = rank.rankCount,
                              .nodeCount = subject.nodeCount};
  Result<std::unique_ptr<observe::ProfilerSink>> opened =
      callInTime<std::unique_ptr<observe::ProfilerSink>>(
          patience_, [library, profiled] { return openProfiler(library, profiled); });
  if (!opened.ok()) return nullptr;
  log::info(log::Subsystem::kInit, "rank {}: profiler plug-in of {}, version {}", rank.rank,
            library.source, library.version);
  return std::move(opened).value();
}

std::unique_ptr<TraceFile> Profiling::openTrace(const observe::TraceIdentity& identity) {
  const std::lock_guard lock(mutex_);
  std::string path = fmt::format("{}/trace-{:016x}-rank-{}-pid-{}", traceFolder_,
                                 identity.communicator, identity.rank, identity.processId);
  // Programs with one fixed address for all communicators give them all one id.
  const int times = timesUsed_[path]++;
  path += times == 0 ? ".json" : fmt::format("-{}.json", times + 1);
  auto file = std::make_unique<TraceFile>(
      TraceFile::Place{.owner = *this, .path = std::move(path), .events = traceEvents_}, identity);
  files_.push_back(file.get());
  return file;
}

void Profiling::remove(TraceFile& file) {
  const std::lock_guard lock(mutex_);
  std::erase(files_, &file);
}

void Profiling::finish() {
  const std::lock_guard lock(mutex_);
  for (TraceFile* file : files_) file->write();
}

}  // namespace tutti::comm
