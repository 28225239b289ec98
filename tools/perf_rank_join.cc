// How a rank joins: its CPUs, a communicator of each library, who is where, and rank 0's report.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/affinity.h"
#include "base/settings.h"
#include "tools/perf_gpu.h"
#include "tools/perf_rank.h"

namespace tutti::tools {
namespace {

constexpr size_t kHostNameBytes = 64;

struct PlaceRecord {
  int64_t pid;
  int64_t gpu;
  char host[kHostNameBytes];
};

std::string ownHostName() {
  std::array<char, kHostNameBytes> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string full(host.data());
  return full.substr(0, full.find('.'));
}

}  // namespace

// A GPU rank's thread starts others, the driver's and the library's, and they would inherit its
// CPU: through host memory a call of 8 bytes on 2 × H200 took 1.4 to 4.7 ms so (2026-11-22).
bool RankRun::mayRunOnGpu() const {
  const PerfOptions& options = context_.options;
  if (options.gpus == PerfOptions::kNoGpus) return false;
  if (Settings::load().text("TUTTI_DEVICE") == "host") return false;
  return RankGpu::open(rank_, std::max(options.gpus, 0)).ok();
}

// With a core for each rank, ranks stay on theirs: moved ones measure the scheduler. Where there
// are more, each has its share, which the threads that the library starts inherit: on one CPU with
// their rank, the threads of sockets run one after the other. Under a launcher the process's own
// mask already says where it may run.
void RankRun::pin() const {
  if (!context_.options.pin || context_.board == nullptr || mayRunOnGpu()) return;
  const std::vector<int32_t> usable = affinityCpus();
  const size_t share = usable.size() / static_cast<size_t>(context_.rankCount);
  if (share == 0) return;
  cpu_set_t own;
  CPU_ZERO(&own);
  for (const int32_t cpu : std::span(usable).subspan(static_cast<size_t>(rank_) * share, share)) {
    if (cpu >= CPU_SETSIZE) return;
    CPU_SET(static_cast<size_t>(cpu), &own);
  }
  ::sched_setaffinity(0, sizeof own, &own);  // this thread; without it the run is only noisier
}

Result<std::unique_ptr<Session>> RankRun::openSession(const Library& library,
                                                      const PerfOptions& options) {
  const Session::Place place{.rank = rank_, .rankCount = context_.rankCount};
  IdBytes id{};
  if (context_.board == nullptr) {
    TUTTI_TRY_ASSIGN(id, makeId(library));  // NCCL_COMM_ID makes all ranks' ids meet
  } else {
    if (rank_ == 0) {
      TUTTI_TRY_ASSIGN(id, makeId(library));
      context_.board->setId(id);
    }
    TUTTI_TRY(context_.board->barrier(rank_));
    id = context_.board->id();
  }
  return Session::open(library, options, place, id);
}

Status RankRun::join() {
  TUTTI_TRY_ASSIGN(session_, openSession(library_, context_.options));
  team_ = context_.board;
  if (team_ == nullptr) {
    libraryTeam_ = std::make_unique<LibraryTeam>(*session_);
    team_ = libraryTeam_.get();
  }
  const std::string& peer = context_.options.peerLibrary;
  if (peer.empty()) return {};
  if (context_.board == nullptr)
    return invalidUsage("--lib is for ranks of one host: the libraries need an id each");
  TUTTI_TRY_ASSIGN(peerLibrary_, Library::open(peer));
  TUTTI_TRY(team_->barrier(rank_));  // all have read the first id
  TUTTI_TRY_ASSIGN(peer_, openSession(peerLibrary_, peerOptions_));
  if (peer_->gpu() == session_->gpu()) return {};
  return invalidUsage("{} runs rank {} on {}, this library on {}: see TUTTI_DEVICE and -g", peer,
                      rank_, peer_->gpu() < 0 ? "the CPU" : "a GPU",
                      session_->gpu() < 0 ? "the CPU" : "a GPU");
}

Result<std::vector<PlacedRank>> RankRun::gatherPlaces() {
  PlaceRecord own{.pid = ::getpid(), .gpu = session_->gpu(), .host = {}};
  const std::string host = ownHostName();
  std::memcpy(own.host, host.data(), std::min(host.size(), sizeof own.host - 1));
  std::vector<PlacedRank> places;
  if (context_.board != nullptr) {
    TUTTI_TRY_ASSIGN(const std::vector<double> pids,
                     team_->gather(rank_, static_cast<double>(own.pid)));
    TUTTI_TRY_ASSIGN(const std::vector<double> gpus,
                     team_->gather(rank_, static_cast<double>(own.gpu)));
    for (size_t i = 0; i < pids.size(); ++i) {
      PlacedRank& place = places.emplace_back();
      place.rank = static_cast<int>(i);
      place.pid = static_cast<int64_t>(pids[i]);
      place.host = host;
      place.gpu = static_cast<int>(gpus[i]);
    }
    return places;
  }
  TUTTI_TRY_ASSIGN(const std::vector<std::byte> bytes,
                   session_->gather(std::as_bytes(std::span(&own, 1))));
  for (int rank = 0; rank < context_.rankCount; ++rank) {
    PlaceRecord record{};
    std::memcpy(&record, bytes.data() + static_cast<size_t>(rank) * sizeof record, sizeof record);
    record.host[kHostNameBytes - 1] = '\0';
    PlacedRank& place = places.emplace_back();
    place.rank = rank;
    place.pid = record.pid;
    place.host = record.host;
    place.gpu = static_cast<int>(record.gpu);
  }
  return places;
}

Status RankRun::openReport() {
  TUTTI_TRY_ASSIGN(std::vector<PlacedRank> places, gatherPlaces());
  if (rank_ != 0) return {};
  TUTTI_TRY_ASSIGN(const int version, versionOf(library_));
  RunInfo info{
      .rankCount = context_.rankCount, .libraryVersion = version, .places = std::move(places)};
  info.path = session_->path();
  if (peer_ != nullptr) {
    TUTTI_TRY_ASSIGN(info.peerVersion, versionOf(peerLibrary_));
  }
  TUTTI_TRY_ASSIGN(report_, PerfReport::open(context_.options, info));
  return {};
}

}  // namespace tutti::tools
