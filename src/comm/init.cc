// How a communicator begins, in a screenful: meet the peers, agree with them, build the parts that
// run operations.
#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <span>

#include "base/log.h"
#include "base/units.h"
#include "base/version.h"
#include "comm/communicator.h"
#include "comm/crowding.h"
#include "comm/graphs.h"
#include "comm/hash.h"
#include "comm/machine.h"
#include "comm/process.h"
#include "comm/tuning_file.h"
#include "device/accelerator.h"
#include "device/host_streams.h"
#include "graph/places.h"
#include "graph/print.h"
#include "kernels/remote_memory.h"
#include "launch/gpu_launcher.h"
#include "launch/join_board.h"
#include "launch/staged_launcher.h"
#include "topology/bus_id.h"

namespace tutti::comm {
namespace {

enum class Avoidance : int32_t { kNo, kBySetting, kWithoutKernels };

Avoidance avoidanceOf(const Settings& settings) {
  if (!kernels::cuda::hasImages()) return Avoidance::kWithoutKernels;
  return settings.integer("NCCL_P2P_DISABLE") != 0 ? Avoidance::kBySetting : Avoidance::kNo;
}

// What each rank contributes to the one all-gather of start-up.
struct InitRecord {
  bootstrap::PeerInfo peer;
  wire::LinkGeometry geometry;
  uint64_t algorithmsHash = 0;         // of NCCL_ALGO
  std::array<char, 128> algorithms{};  // its beginning, zero-terminated, for messages
  uint64_t tuningHash = 0;             // of the tuning file; 0: none
  uint64_t gpuHash = 0;                // of the GPU and its host; 0: a CPU rank
  int32_t maxBlocks = 0;
  Avoidance avoidsPeers{};          // why GPU ranks are not to use each other's memory
  uint64_t stagingBytes = 0;        // proposed, for GPU ranks that cannot
  int32_t wantsMachine = 0;         // somebody wants to see the host's topology
  int32_t cpuNode = -1;             // that the rank is bound to; -1: none
  std::array<char, 24> gpuBusId{};  // zero-terminated; empty for a CPU rank
  uint64_t idsHash = 0;             // of the ids given to ncclCommInitRankScalable
  CpuMask cpus{};                   // where the thread may run
  uint64_t probeAddress = 0;        // a word of this process ...
  uint64_t probeValue = 0;          // ... that holds this: who reads it there may read references
};

void proposeStaging(InitRecord& own, const Settings& settings) {
  own.avoidsPeers = avoidanceOf(settings);
  own.stagingBytes = static_cast<uint64_t>(settings.integer("TUTTI_STAGING_BYTES"));
}

// Whether all ranks are threads of this process.
bool areAllHere(const std::vector<InitRecord>& records, const InitRecord& own) {
  return std::ranges::all_of(records, [&own](const InitRecord& other) {
    return other.peer.processHash == own.peer.processHash;
  });
}

// Whether the kernel lets this process read the memory of every other rank's.
bool canReadProcesses(const std::vector<InitRecord>& records, const InitRecord& own) {
  for (const InitRecord& other : records) {
    if (other.peer.processHash == own.peer.processHash) continue;
    if (other.peer.hostHash != own.peer.hostHash) return false;
    const auto* word = reinterpret_cast<const uint64_t*>(other.probeAddress);
    if (kernels::canReadProcess(other.peer.processId, word, other.probeValue)) continue;
    log::info(
        log::Subsystem::kP2p,
        "rank {} may not read the memory of rank {} (pid {}): seccomp, ptrace_scope or a user "
        "namespace is in the way; messages are copied through shared memory",
        own.peer.rank, other.peer.rank, other.peer.processId);
    return false;
  }
  return true;
}

// What a rank can read of all others.
enum class Reading : uint8_t { kNone, kByKernel, kAsOwn };

Reading readingOf(const Settings& settings, const std::vector<InitRecord>& records,
                  const InitRecord& own) {
  if (own.gpuHash != 0 || settings.integer("NCCL_P2P_DISABLE") != 0) return Reading::kNone;
  if (areAllHere(records, own)) return Reading::kAsOwn;
  // A network carries no references, and without shared memory it is what links the processes.
  if (settings.integer("NCCL_SHM_DISABLE") != 0) return Reading::kNone;
  if (settings.integer("TUTTI_PROCESS_READ") == 0) return Reading::kNone;
  return canReadProcesses(records, own) ? Reading::kByKernel : Reading::kNone;
}

// Why GPU ranks cannot write into each other's memory; empty where they may try to. All ranks find
// the same.
std::string obstacleToPeers(const std::vector<InitRecord>& records) {
  if (records.size() > static_cast<size_t>(wire::kGpuMaxRanks))
    return fmt::format("{} ranks, of which kernels take {}", records.size(), wire::kGpuMaxRanks);
  for (const InitRecord& record : records) {
    if (record.peer.hostHash != records.front().peer.hostHash) {
      return fmt::format("rank 0 is on host {}, rank {} on host {}",
                         records.front().peer.hostName.data(), record.peer.rank,
                         record.peer.hostName.data());
    }
    if (record.avoidsPeers == Avoidance::kWithoutKernels)
      return fmt::format("rank {}'s library was built without GPU kernels", record.peer.rank);
    if (record.avoidsPeers == Avoidance::kBySetting)
      return fmt::format("NCCL_P2P_DISABLE=1 on rank {}", record.peer.rank);
  }
  return {};
}

// All ranks find the same: kernels of different shapes would wait for each other.
launch::GpuBatcher::Limits limitsOf(const std::vector<InitRecord>& records) {
  launch::GpuBatcher::Limits limits{.rankCount = static_cast<int32_t>(records.size())};
  for (const InitRecord& record : records) {
    const auto sharing = std::ranges::count(records, record.gpuHash, &InitRecord::gpuHash);
    limits.ranksPerDevice = std::max(limits.ranksPerDevice, static_cast<int32_t>(sharing));
    limits.maxBlocks = std::min(limits.maxBlocks, std::max(1, record.maxBlocks));
  }
  return limits;
}

std::vector<RankCpus> cpusOf(const std::vector<InitRecord>& records) {
  std::vector<RankCpus> cpus;
  for (const InitRecord& record : records) {
    cpus.push_back(
        {.host = record.peer.hostHash, .usable = record.peer.usableCpus, .mask = record.cpus});
  }
  return cpus;
}

std::vector<graph::Place> placesOf(const std::vector<InitRecord>& records) {
  std::vector<graph::Place> places;
  for (const InitRecord& record : records)
    places.push_back({.host = record.peer.hostHash, .cpuNode = record.cpuNode});
  return places;
}

bool isOneHost(const std::vector<InitRecord>& records) {
  return std::ranges::all_of(records, [&records](const InitRecord& record) {
    return record.peer.hostHash == records.front().peer.hostHash;
  });
}

// By number; none where it is one.
std::vector<int32_t> hostsOf(const std::vector<InitRecord>& records,
                             const graph::MergedGraph& graph) {
  std::vector<int32_t> hosts;
  if (isOneHost(records)) return hosts;
  for (const InitRecord& record : records) hosts.push_back(graph.nodeOf(Rank{record.peer.rank}));
  return hosts;
}

// The least that a rank proposes.
wire::LinkGeometry geometryOf(const std::vector<InitRecord>& records) {
  const auto least = std::ranges::min_element(
      records, {}, [](const InitRecord& record) { return record.geometry.slotBytes; });
  const wire::LinkGeometry geometry{.slotCount = least->geometry.slotCount,
                                    .slotBytes = least->geometry.slotBytes,
                                    .shortCount = least->geometry.shortCount};
  return isOneHost(records) ? geometry : plan::acrossHosts(geometry);
}

Status checkPeers(const std::vector<InitRecord>& records, const InitRecord& own) {
  for (size_t i = 0; i < records.size(); ++i) {
    const InitRecord& other = records[i];
    if (other.peer.rank != static_cast<int32_t>(i)) {
      return internalError("place {} of the peer table holds rank {}", i, other.peer.rank);
    }
    if (other.peer.libraryVersion != own.peer.libraryVersion) {
      return invalidUsage(
          "Mismatched NCCL version detected: rank {} ({}) has {}, rank {} ({}) has {}", i,
          other.peer.hostName.data(), other.peer.libraryVersion, own.peer.rank,
          own.peer.hostName.data(), own.peer.libraryVersion);
    }
    if ((other.gpuHash == 0) != (own.gpuHash == 0)) {
      return invalidUsage(
          "rank {} ({}) runs on {}, rank {} ({}) on {}: set TUTTI_DEVICE alike on all", i,
          other.peer.hostName.data(), other.gpuHash == 0 ? "the host" : "a GPU", own.peer.rank,
          own.peer.hostName.data(), own.gpuHash == 0 ? "the host" : "a GPU");
    }
    if (other.idsHash != own.idsHash) {
      return invalidUsage(
          "rank {} ({}) and rank {} ({}) met with different lists of ids: ncclCommInitRankScalable "
          "wants the same ids in the same order on all ranks",
          i, other.peer.hostName.data(), own.peer.rank, own.peer.hostName.data());
    }
    if (other.algorithmsHash != own.algorithmsHash) {
      return invalidUsage(
          "NCCL_ALGO differs between ranks: rank {} ({}) has \"{}\", rank {} ({}) has \"{}\"; set "
          "it alike on all",
          i, other.peer.hostName.data(), other.algorithms.data(), own.peer.rank,
          own.peer.hostName.data(), own.algorithms.data());
    }
    if (other.tuningHash != own.tuningHash) {
      return invalidUsage(
          "the prices of TUTTI_TUNING_FILE differ between rank {} ({}) and rank {} ({}): give all "
          "ranks the same file, or none",
          i, other.peer.hostName.data(), own.peer.rank, own.peer.hostName.data());
    }
  }
  return {};
}

std::vector<HostMember> hostOf(const std::vector<InitRecord>& records, const InitRecord& own) {
  std::vector<HostMember> host;
  for (const InitRecord& record : records) {
    if (record.peer.hostHash != own.peer.hostHash) continue;
    const std::string_view busId(record.gpuBusId.data(),
                                 strnlen(record.gpuBusId.data(), record.gpuBusId.size()));
    host.push_back({Rank{record.peer.rank}, topology::normalBusId(busId).value_or("")});
  }
  return host;
}

bool isMachineWanted(const std::vector<InitRecord>& records, const InitRecord& own) {
  return std::ranges::any_of(records, [&own](const InitRecord& each) {
    return each.wantsMachine != 0 && each.peer.hostHash == own.peer.hostHash;
  });
}

std::shared_ptr<plan::Tuner> tunerOf(Process& process, const bootstrap::UniqueId& id,
                                     const graph::MergedGraph& graph) {
  return process.openTuner({.id = hashOf(bootstrap::jobName(id.job)),
                            .rankCount = graph.rankCount(),
                            .nodeCount = graph.nodeCount()});
}

// The host's machine and graphs, where one of its ranks wants them known.
Status shareHost(Process& process, const MachineParts& parts) {
  TUTTI_TRY_ASSIGN(const std::optional<topology::Description> machine, shareMachine(parts));
  if (!machine) return {};
  const Rank self = parts.bootstrap.rank();
  const bool isFirst = parts.host.front().rank == self;
  showMachine(process.settings(), *machine, isFirst, self);
  if (const auto graphs = planHost(process.settings(), *machine))
    showGraphs(process.settings(), *graphs, isFirst, self);
  return {};
}

// Ranks that share a CPU share its caches.
uint64_t streamFromBytes(const Settings& settings, const plan::Agreement& agreement) {
  const auto ofACpu = static_cast<double>(settings.integer("TUTTI_STREAM_FROM_BYTES"));
  return static_cast<uint64_t>(ofACpu / agreement.ranksPerCpu);
}

void logLines(std::string_view what, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    log::info(log::Subsystem::kInit, "{} {}", what, std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
}

}  // namespace

Status Communicator::initialise() {
  become(State::kInitialising);
  Status status = runInitialiseSafely();
  derivation_.reset();
  if (!status.ok()) return fail(std::move(status));
  become(rankCount() == 0 ? State::kOutside : State::kReady);
  return {};
}

// It may run on a thread of its own, where nobody else would stop an exception.
Status Communicator::runInitialiseSafely() {
  try {
    return runInitialise();
  } catch (const std::bad_alloc&) {
    return Status::outOfMemory();
  } catch (const std::exception& error) {
    return internalError("rank {}: unexpected exception during initialisation: {}", index(rank()),
                         error.what());
  }
}

Status Communicator::runInitialise() {
  const Instant start = process_.clock().now();
  TUTTI_TRY(checkNotAborted());
  if (derivation_) {
    TUTTI_TRY(derive());
    if (rankCount() == 0) return {};
  }
  log::setThreadDevice(index(rank()));
  if (index(rank()) == 0) log::banner();
  log::info(log::Subsystem::kInit, "comm {} rank {} nranks {} job {} - Init START",
            static_cast<const void*>(this), index(rank()), rankCount(),
            bootstrap::jobName(id_.job));
  TUTTI_TRY(meetPeers());
  if (device_.caps().isVirtual) {
    TUTTI_TRY(joinVirtualWorld());
  } else {
    TUTTI_TRY(agree());
    TUTTI_TRY(prepareToRun());
  }
  TUTTI_TRY(checkNotAborted());
  const auto spent = std::chrono::duration<double, std::milli>(process_.clock().now() - start);
  log::info(
      log::Subsystem::kInit, "comm {} rank {} nranks {} localRanks {} - Init COMPLETE in {:.2f} ms",
      static_cast<const void*>(this), index(rank()), rankCount(), ranksOnHost_, spent.count());
  return {};
}

Status Communicator::checkNotAborted() const {
  if (!abort_.load(std::memory_order_acquire)) return {};
  return Status(Code::kInternalError, "aborted during initialisation");
}

// Find the others and check that they belong here.
Status Communicator::meetPeers() {
  bootstrap::NetworkOptions network = process_.networkOptions();
  // A fixed address is where the first communicator meets; those made of it have places of their
  // own.
  if (derivation_) network.commId.clear();
  TUTTI_TRY_ASSIGN(bootstrap_, bootstrap::Bootstrap::connect(process_.directory(),
                                                             {.id = id_,
                                                              .rank = rank(),
                                                              .rankCount = rankCount(),
                                                              .network = network,
                                                              .abort = &abort_,
                                                              .clock = &process_.clock()}));
  return {};
}

// Tell each other who we are and what we want; take what all can do.
Status Communicator::agree() {
  std::vector<InitRecord> records(static_cast<size_t>(rankCount()));
  InitRecord& own = records[static_cast<size_t>(index(rank()))];
  TUTTI_TRY_ASSIGN(own.peer, process_.describe(rank()));
  own.geometry =
      plan::linkGeometry(static_cast<size_t>(process_.settings().integer("NCCL_BUFFSIZE")));
  const std::string& algorithms =
      config_.algorithms.empty() ? process_.settings().text("NCCL_ALGO") : config_.algorithms;
  own.algorithmsHash = hashOf(algorithms);
  std::strncpy(own.algorithms.data(), algorithms.c_str(), own.algorithms.size() - 1);
  // A file that cannot be used is told after the others have heard from us: they need not wait.
  Result<TuningFile> tuning = readTuningFile(process_.settings().text("TUTTI_TUNING_FILE"));
  own.tuningHash = tuning.ok() ? tuning->hash : ~uint64_t{0};
  own.idsHash = idsHash_;
  own.maxBlocks = config_.maxBlocks;
  proposeStaging(own, process_.settings());
  own.wantsMachine = wantsMachine(process_.settings());
  own.cpuNode = device_.cpuNode();
  if (device::Accelerator* accelerator = device_.accelerator(); accelerator != nullptr) {
    own.peer.deviceIndex = device_.caps().index;
    accelerator->busId().copy(own.gpuBusId.data(), own.gpuBusId.size() - 1);
    own.gpuHash = hashOf(fmt::format("{:x} {}", own.peer.hostHash, accelerator->busId()));
  }
  own.cpus = affinityMask();
  own.probeAddress = reinterpret_cast<uint64_t>(&process_.probeWord());
  own.probeValue = process_.probeWord();
  TUTTI_TRY(bootstrap_->allGather(std::as_writable_bytes(std::span(records)), sizeof(InitRecord)));
  if (!tuning.ok()) return tuning.takeStatus();
  TUTTI_TRY(checkPeers(records, own));
  if (own.gpuHash != 0) {
    noPeersReason_ = obstacleToPeers(records);
    gpuLimits_ = limitsOf(records);
    stagingBytes_ = std::ranges::min(records, {}, &InitRecord::stagingBytes).stagingBytes;
  }
  std::vector<Reading> readings(records.size());
  readings[static_cast<size_t>(index(rank()))] = readingOf(process_.settings(), records, own);
  TUTTI_TRY(bootstrap_->allGather(std::as_writable_bytes(std::span(readings)), sizeof(Reading)));
  const Reading reading = *std::ranges::min_element(readings);

  TUTTI_TRY_ASSIGN(graph_, graph::mergePlaces(placesOf(records)));
  const std::vector<RankCpus> cpus = cpusOf(records);
  plan::Agreement agreement{.rank = rank(),
                            .rankCount = rankCount(),
                            .geometry = geometryOf(records),
                            .algorithms = algorithms,
                            .readsPeers = reading == Reading::kAsOwn,
                            .readsByKernel = reading == Reading::kByKernel,
                            .isOneHost = isOneHost(records),
                            .hostOf = hostsOf(records, graph_),
                            .ranksPerCpu = ranksPerCpu(cpus),
                            .order = graph::orderOf(graph_),
                            .tuning = tuning->tuning};
  for (const InitRecord& record : records) peers_.push_back(record.peer);
  settleOnHost(cpus);
  if (!wire::isValid(agreement.geometry)) {
    return remoteError("a rank proposes slots of {} bytes", agreement.geometry.slotBytes);
  }
  // GPU ranks' kernels choose for themselves.
  if (own.gpuHash == 0 || !noPeersReason_.empty()) agreement.tuner = tunerOf(process_, id_, graph_);
  planner_ = std::make_unique<plan::Planner>(std::move(agreement));
  host_ = hostOf(records, own);
  if (derivation_) return {};  // children are of the same machine
  return show(isMachineWanted(records, own));
}

// How many ranks share CPUs with this one, and where it belongs among them.
void Communicator::settleOnHost(const std::vector<RankCpus>& cpus) {
  const RankCpus& own = cpus[static_cast<size_t>(index(rank()))];
  ranksOnHost_ = static_cast<int32_t>(std::ranges::count(cpus, own.host, &RankCpus::host));
  // A device knows this process's CPUs alone: its part of the host's ranks shares them.
  const int32_t hostCpus = cpusOfHost(cpus, own.host);
  ranksOnCpus_ = (ranksOnHost_ * own.usable + hostCpus - 1) / hostCpus;
  if (derivation_) {
    homeCpu_ = derivation_->parent->homeCpu_;
  } else if (process_.settings().integer("TUTTI_HOME_CPUS") == 1) {
    homeCpu_ = homeCpuOf(cpus, rank());
  }
  if (homeCpu_ == HomeCpu::kNone) return;
  log::info(log::Subsystem::kInit, "rank {} belongs on CPU {}: {} ranks share {} CPUs",
            index(rank()), homeCpu_, ranksOnHost_, hostCpus);
}

Status Communicator::show(bool isMachineWanted) {
  if (index(rank()) == 0 && log::isEnabled(log::Level::kInfo, log::Subsystem::kInit)) showPlan();
  if (!isMachineWanted) return {};
  return shareHost(process_,
                   {.bootstrap = *bootstrap_,
                    .host = host_,
                    .abort = &abort_,
                    .timeout = process_.networkOptions().timeout,
                    .find = [this] { return process_.machine(device_.accelerator() != nullptr); }});
}

void Communicator::showPlan() {
  logLines("ring", rankCount() < 2 ? "of one rank" : graph::drawRing(graph_, 0));
  const bool hasKernels = device_.accelerator() != nullptr && noPeersReason_.empty();
  logLines("choice",
           hasKernels ? describeChoices(gpuLimits_) : describeChoices(planner_->agreement()));
}

Status Communicator::prepareToRun() {
  device_.joinRanks(ranksOnCpus_);
  TUTTI_TRY_ASSIGN(
      auto recorder,
      launch::joinBoard({.bootstrap = *bootstrap_,
                         .handoff = process_.handoff(),
                         .peers = peers_,
                         .abort = abort_,
                         .timeout = process_.networkOptions().timeout,
                         .recorders = process_.recorders(),
                         .name = name().empty() ? bootstrap::jobName(id_.job) : name()}));
  if (device_.accelerator() == nullptr) return prepareHost(std::move(recorder));
  std::unique_ptr<channel::PeerSegments> segments;
  if (noPeersReason_.empty()) {
    TUTTI_TRY_ASSIGN(segments, shareSegments());
  }
  return segments != nullptr ? prepareGpu(std::move(segments), std::move(recorder))
                             : prepareStaged(std::move(recorder));
}

// Nothing is allocated for links here: they come with the first operation that needs them.
void Communicator::openLinks(std::unique_ptr<observe::Recorder> recorder) {
  const bootstrap::PeerInfo& own = peers_[static_cast<size_t>(index(rank()))];
  profiler_ = process_.profiling().open(
      {.trace = {.communicator =
                     hashOf({reinterpret_cast<const char*>(id_.job.data()), id_.job.size()}),
                 .name = name(),
                 .rank = own.rank,
                 .rankCount = rankCount(),
                 .host = own.hostName.data(),
                 .hostHash = own.hostHash,
                 .processId = own.processId},
       .nodeCount = graph_.nodeCount()});
  links_ = std::make_unique<channel::LinkSet>(channel::LinkSet::Parts{
      .bootstrap = *bootstrap_,
      .peers = peers_,
      .transports = process_.transports(),
      .geometry = planner_->agreement().geometry,
      .mapAfterBytes = static_cast<uint64_t>(process_.settings().integer("TUTTI_MAP_AFTER_BYTES")),
      .profiler = profiler_.get()});
  launcher_ = std::make_unique<launch::Launcher>(launch::Launcher::Parts{
      .links = *links_,
      .planner = *planner_,
      .peers = peers_,
      .abort = abort_,
      .clock = process_.clock(),
      .timeout = process_.networkOptions().timeout,
      .recorder = std::move(recorder),
      .bootstrap = bootstrap_.get(),
      .segments = launch::SegmentCache(sharedMemory()),
      .streamFromBytes = streamFromBytes(process_.settings(), planner_->agreement()),
      .homeCpu = homeCpu_,
      .triesForms = process_.settings().integer("TUTTI_PROCESS_READ") != 1,
      .profiler = profiler_.get()});
}

Status Communicator::prepareHost(std::unique_ptr<observe::Recorder> recorder) {
  openLinks(std::move(recorder));
  runner_ = launcher_.get();
  if (!isBlocking()) {
    TUTTI_TRY_ASSIGN(ownStream_, device_.hostStreams()->createStream());
  }
  return {};
}

Result<std::unique_ptr<channel::PeerSegments>> Communicator::shareSegments() {
  TUTTI_TRY_ASSIGN(channel::PeerSegments::Shared shared,
                   channel::PeerSegments::connect({.bootstrap = *bootstrap_,
                                                   .handoff = process_.handoff(),
                                                   .peers = peers_,
                                                   .accelerator = *device_.accelerator(),
                                                   .timeout = process_.networkOptions().timeout}));
  noPeersReason_ = std::move(shared.obstacle);
  return std::move(shared.segments);
}

// GPU ranks whose calls the host carries out.
Status Communicator::prepareStaged(std::unique_ptr<observe::Recorder> recorder) {
  if (index(rank()) == 0) {
    log::warn("{} GPU ranks go through host memory, which is slower: {}", rankCount(),
              noPeersReason_);
  }
  process_.hostDevice().joinRanks(ranksOnCpus_);
  openLinks(std::move(recorder));
  TUTTI_TRY_ASSIGN(
      streamRunner_,
      launch::StagedLauncher::open(
          {.accelerator = *device_.accelerator(),
           .host = process_.hostDevice(),
           .launcher = *launcher_,
           .rank = rank(),
           .rankCount = rankCount(),
           .slotBytes = stagingBytes_,
           .checksPointers = process_.settings().integer("NCCL_CHECK_POINTERS") != 0}));
  runner_ = streamRunner_.get();
  return {};
}

// All that the kernels need, while nobody's kernel waits and no capture can be under way.
Status Communicator::prepareGpu(std::unique_ptr<channel::PeerSegments> segments,
                                std::unique_ptr<observe::Recorder> recorder) {
  const auto timeout = process_.networkOptions().timeout;
  const Settings& settings = process_.settings();
  auto launcher = launch::GpuLauncher::open(
      {.accelerator = *device_.accelerator(),
       .watcher = process_.gpuWatcher(),
       .peers = peers_,
       .clock = process_.clock(),
       .segments = std::move(segments),
       .recorder = std::move(recorder),
       .options = {.limits = gpuLimits_,
                   .timeout = timeout,
                   .waitLimit = std::chrono::milliseconds(settings.integer("TUTTI_GPU_WAIT_MS")),
                   .checksPointers = settings.integer("NCCL_CHECK_POINTERS") != 0}});
  // Kernels of ranks that are through may wait for those that still load theirs.
  TUTTI_TRY(bootstrap_->barrier());
  if (!launcher.ok()) return launcher.takeStatus();
  streamRunner_ = std::move(launcher).value();
  runner_ = streamRunner_.get();
  return {};
}

}  // namespace tutti::comm
