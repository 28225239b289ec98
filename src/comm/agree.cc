// What the ranks of a new communicator tell each other, and what follows from it for all of them.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/char_field.h"
#include "base/log.h"
#include "base/proc_files.h"
#include "base/processor.h"
#include "base/settings.h"
#include "comm/communicator.h"
#include "comm/crowding.h"
#include "comm/hash.h"
#include "comm/host_identity.h"
#include "comm/machine.h"
#include "comm/process.h"
#include "comm/reading.h"
#include "comm/relays.h"
#include "comm/tuning_file.h"
#include "device/accelerator.h"
#include "graph/places.h"
#include "kernels/remote_memory.h"
#include "launch/gpu_batch.h"
#include "net/net.h"
#include "plan/pieces.h"
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
  std::array<char, 64> protocols{};    // NCCL_PROTO, the same way
  uint64_t tuningHash = 0;             // of the tuning file; 0: none
  uint64_t gpuHash = 0;                // of the GPU and its host; 0: a CPU rank
  int32_t maxBlocks = 0;
  int32_t minBlocks = 0;
  int32_t prefersEngines = 0;
  int32_t savesBlocks = 0;
  int32_t adaptsBlocks = 0;
  Avoidance avoidsPeers{};          // why GPU ranks are not to use each other's memory
  uint64_t stagingBytes = 0;        // proposed, for GPU ranks that cannot
  int32_t wantsMachine = 0;         // somebody wants to see the host's topology
  int32_t cpuNode = -1;             // that the rank is bound to; -1: none
  std::array<char, 24> gpuBusId{};  // zero-terminated; empty for a CPU rank
  int32_t hasBulk = 0;              // kernels::cuda::canBulk()
  int32_t isEncrypted = 0;          // TUTTI_SECURE=encrypt
  int32_t checksNetwork = 0;        // TUTTI_NET_CHECKSUM
  uint64_t idsHash = 0;             // of the ids given to ncclCommInitRankScalable
  CpuMask cpus{};                   // where the thread may run
  uint64_t machineHash = 0;         // machineHash()
  uint64_t probeAddress = 0;        // a word of this process ...
  uint64_t probeValue = 0;          // ... that holds this: who reads it there may read references
  ReductionOffer reduction;
  plan::Relays relays{};  // of which the least holds
  ProcessorKind processor = ProcessorKind::kOther;
};

void noteWishes(InitRecord& own, const Config& config, const Settings& settings) {
  own.maxBlocks = config.maxBlocks;
  own.minBlocks = config.minBlocks;
  own.prefersEngines = config.prefersEngines ? 1 : 0;
  own.savesBlocks = config.savesBlocks ? 1 : 0;
  own.adaptsBlocks = config.adaptsBlocks ? 1 : 0;
  own.isEncrypted = settings.text("TUTTI_SECURE") == "encrypt" ? 1 : 0;
  own.avoidsPeers = avoidanceOf(settings);
  own.wantsMachine = wantsMachine(settings);
  own.stagingBytes = static_cast<uint64_t>(settings.integer("TUTTI_STAGING_BYTES"));
  own.checksNetwork = static_cast<int32_t>(settings.integer("TUTTI_NET_CHECKSUM"));
}

Status noteCpus(InitRecord& own) {
  own.cpus = affinityMask();
  TUTTI_TRY_ASSIGN(own.machineHash, machineHash());
  return {};
}

void nameAccelerator(InitRecord& own, device::Device& device) {
  device::Accelerator* accelerator = device.accelerator();
  if (accelerator == nullptr) return;
  own.peer.deviceIndex = device.caps().index;
  setText(own.gpuBusId, accelerator->busId());
  own.hasBulk = kernels::cuda::canBulk(kernels::cuda::architectures(), accelerator->capability(),
                                       accelerator->sharedBytesPerBlock())
                    ? 1
                    : 0;
  own.gpuHash = hashOf(fmt::format("{:x} {}", own.peer.hostHash, accelerator->busId()));
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

ProcessorKind processorOf(const std::vector<InitRecord>& records) {
  const ProcessorKind first = records.front().processor;
  const bool isOne = std::ranges::all_of(
      records, [first](const InitRecord& record) { return record.processor == first; });
  return isOne ? first : ProcessorKind::kOther;
}

// What a rank can read of all others.
enum class Reading : uint8_t { kNone, kByKernel, kAsOwn };

Reading readingOf(const Settings& settings, const std::vector<InitRecord>& records,
                  const InitRecord& own) {
  if (own.gpuHash != 0 || settings.integer("NCCL_P2P_DISABLE") != 0) return Reading::kNone;
  if (areAllHere(records, own)) return Reading::kAsOwn;
  // A network carries no references, and without shared memory it is what links the processes.
  if (settings.integer("NCCL_SHM_DISABLE") != 0) return Reading::kNone;
  return readsByKernel(settings) && canReadProcesses(records, own) ? Reading::kByKernel
                                                                   : Reading::kNone;
}

// What all ranks can: the least.
Result<Reading> agreeOnReading(bootstrap::Bootstrap& bootstrap, Reading own) {
  std::vector<Reading> readings(static_cast<size_t>(bootstrap.rankCount()));
  readings[static_cast<size_t>(index(bootstrap.rank()))] = own;
  TUTTI_TRY(bootstrap.allGather(std::as_writable_bytes(std::span(readings)), sizeof(Reading)));
  return *std::ranges::min_element(readings);
}

// All ranks find the same: kernels of different shapes would wait for each other.
launch::GpuBatcher::Limits limitsOf(const std::vector<InitRecord>& records) {
  launch::GpuBatcher::Limits limits{.rankCount = static_cast<int32_t>(records.size())};
  limits.prefersEngines = std::ranges::all_of(
      records, [](const InitRecord& record) { return record.prefersEngines != 0; });
  limits.savesBlocks = std::ranges::all_of(
      records, [](const InitRecord& record) { return record.savesBlocks != 0; });
  for (const InitRecord& record : records) {
    const auto sharing = std::ranges::count(records, record.gpuHash, &InitRecord::gpuHash);
    limits.ranksPerDevice = std::max(limits.ranksPerDevice, static_cast<int32_t>(sharing));
    limits.maxBlocks = std::min(limits.maxBlocks, std::max(1, record.maxBlocks));
    limits.minBlocks = std::max(limits.minBlocks, record.minBlocks);
  }
  limits.minBlocks = std::min(limits.minBlocks, limits.maxBlocks);
  limits.hasBulk =
      std::ranges::all_of(records, [](const InitRecord& record) { return record.hasBulk != 0; });
  // Calls of two ranks, and those whose blocks are limited, are shaped by that alone.
  limits.adaptsBlocks = limits.hasBulk && limits.rankCount > 2 && limits.ranksPerDevice == 1 &&
                        limits.maxBlocks == wire::kGpuMaxBlocks && !limits.savesBlocks &&
                        std::ranges::all_of(records, [](const InitRecord& record) {
                          return record.adaptsBlocks != 0;
                        });
  return limits;
}

// Whether no other rank is on its GPU, whatever host it says that it is on.
bool ownsGpu(const std::vector<InitRecord>& records, const InitRecord& own) {
  return std::ranges::none_of(records, [&own](const InitRecord& other) {
    return other.peer.rank != own.peer.rank && other.gpuBusId == own.gpuBusId &&
           other.peer.hostName == own.peer.hostName;
  });
}

// As far as this rank sees; what all say comes with their segments. Asked where wide lines are
// used.
bool keepsLines(const launch::GpuLimits& limits, const device::Accelerator* accelerator,
                const std::vector<InitRecord>& records) {
  const bool hasWideLines = limits.hasPrograms || limits.rankCount <= wire::kGpuRowRanks;
  return hasWideLines && accelerator != nullptr &&
         std::ranges::all_of(records, [accelerator](const InitRecord& record) {
           return accelerator->keepsLinesTo(textOf(record.gpuBusId));
         });
}

// What users have to say of kernels.
struct GpuWishes {
  const std::string& algorithms;
  const std::string& protocols;
  std::shared_ptr<plan::Tuner> tuner;  // shared by all that choose
};
void addWishes(launch::GpuLimits& limits, const GpuWishes& wishes) {
  limits.algorithms = wishes.algorithms;
  limits.protocols = wishes.protocols;
  limits.tuner = wishes.tuner;
  limits.hasPrograms = launch::needsPrograms(limits);
}

// Why GPU ranks cannot write into each other's memory; empty where they may try to. All ranks find
// the same.
std::string obstacleToPeers(const std::vector<InitRecord>& records) {
  if (records.size() > static_cast<size_t>(wire::kGpuProgramRanks))
    return fmt::format("{} ranks, of which kernels take {}", records.size(),
                       wire::kGpuProgramRanks);
  const auto rankCount = static_cast<int32_t>(records.size());
  const int32_t sharers = limitsOf(records).ranksPerDevice;
  const int32_t most = kernels::cuda::mostProgramSharers(rankCount);
  if (rankCount > wire::kGpuMaxRanks && sharers > most)
    return fmt::format("{} ranks share a GPU, of {} ranks {} can", sharers, rankCount, most);
  for (const InitRecord& record : records) {
    if (record.peer.hostHash != records.front().peer.hostHash) {
      return fmt::format("rank 0 is on host {}, rank {} on host {}",
                         textOf(records.front().peer.hostName), record.peer.rank,
                         textOf(record.peer.hostName));
    }
    if (record.avoidsPeers == Avoidance::kWithoutKernels)
      return fmt::format("rank {}'s library was built without GPU kernels", record.peer.rank);
    if (record.avoidsPeers == Avoidance::kBySetting)
      return fmt::format("NCCL_P2P_DISABLE=1 on rank {}", record.peer.rank);
  }
  return {};
}

// What streams of ranks that share a GPU wait on: a queue for each rank's stream, its own and two
// for copies. The driver gives a process eight by itself, and 32 at most.
constexpr int32_t kQueuesOfRank = 4;
constexpr int32_t kMostQueues = 32;

void warnOfFewQueues(Process& process, const std::vector<InitRecord>& records,
                     const InitRecord& own) {
  const auto sharers =
      static_cast<int32_t>(std::ranges::count(records, own.gpuHash, &InitRecord::gpuHash));
  if (sharers < 2) return;
  const int32_t wanted = std::min(kMostQueues, kQueuesOfRank * sharers);
  const std::optional<std::string> set = environmentVariable("CUDA_DEVICE_MAX_CONNECTIONS");
  if (set && numberOf<int32_t>(*set).value_or(0) >= wanted) return;
  if (!process.isFirstToWarnOfQueues()) return;
  log::warn(
      "{} ranks share the GPU of rank {}, and CUDA_DEVICE_MAX_CONNECTIONS is {}: a rank's stream "
      "may "
      "wait behind another's in one hardware queue, for good; set it to {} before the program "
      "starts, as tutti run does",
      sharers, own.peer.rank, set ? *set : "not set", kMostQueues);
}

std::vector<RankCpus> cpusOf(const std::vector<InitRecord>& records) {
  std::vector<RankCpus> cpus;
  for (const InitRecord& record : records) {
    cpus.push_back({.host = record.peer.hostHash,
                    .machine = record.machineHash,
                    .usable = record.peer.usableCpus,
                    .mask = record.cpus});
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

std::vector<ReductionOffer> offersOf(const std::vector<InitRecord>& records) {
  std::vector<ReductionOffer> offers;
  for (const InitRecord& record : records) offers.push_back(record.reduction);
  return offers;
}

std::vector<uint64_t> railsOf(const std::vector<InitRecord>& records) {
  std::vector<uint64_t> rails;
  for (const InitRecord& record : records) rails.push_back(record.peer.rail);
  return rails;
}

// The least that a rank proposes.
wire::LinkGeometry geometryOf(const std::vector<InitRecord>& records) {
  const auto least = std::ranges::min_element(
      records, {}, [](const InitRecord& record) { return record.geometry.slotBytes; });
  const wire::LinkGeometry geometry{.slotCount = least->geometry.slotCount,
                                    .slotBytes = least->geometry.slotBytes,
                                    .shortCount = least->geometry.shortCount};
  return isOneHost(records) ? plan::amongRanks(geometry, records.size())
                            : plan::acrossHosts(geometry);
}

template <size_t kSize>
std::string quoted(const std::array<char, kSize>& text) {
  return fmt::format("\"{}\"", text.data());
}

// A setting that all ranks must have alike, with the two values.
Status differs(std::string_view setting, const InitRecord& other, std::string_view others,
               const InitRecord& own, std::string_view owns) {
  return invalidUsage(
      "{} differs between ranks: rank {} ({}) has {}, rank {} ({}) has {}; set it alike on all",
      setting, other.peer.rank, textOf(other.peer.hostName), others, own.peer.rank,
      textOf(own.peer.hostName), owns);
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
          textOf(other.peer.hostName), other.peer.libraryVersion, own.peer.rank,
          textOf(own.peer.hostName), own.peer.libraryVersion);
    }
    if ((other.gpuHash == 0) != (own.gpuHash == 0)) {
      return invalidUsage(
          "rank {} ({}) runs on {}, rank {} ({}) on {}: set TUTTI_DEVICE alike on all", i,
          textOf(other.peer.hostName), other.gpuHash == 0 ? "the host" : "a GPU", own.peer.rank,
          textOf(own.peer.hostName), own.gpuHash == 0 ? "the host" : "a GPU");
    }
    if (other.idsHash != own.idsHash) {
      return invalidUsage(
          "rank {} ({}) and rank {} ({}) met with different lists of ids: ncclCommInitRankScalable "
          "wants the same ids in the same order on all ranks",
          i, textOf(other.peer.hostName), own.peer.rank, textOf(own.peer.hostName));
    }
    if (other.algorithmsHash != own.algorithmsHash)
      return differs("NCCL_ALGO", other, quoted(other.algorithms), own, quoted(own.algorithms));
    if (own.gpuHash != 0 && other.protocols != own.protocols)
      return differs("NCCL_PROTO", other, quoted(other.protocols), own, quoted(own.protocols));
    if (other.isEncrypted != own.isEncrypted) {
      const auto mode = [](const InitRecord& of) {
        return of.isEncrypted != 0 ? "encrypt" : "auth";
      };
      return differs("TUTTI_SECURE", other, mode(other), own, mode(own));
    }
    if (other.checksNetwork != own.checksNetwork) {
      return differs("TUTTI_NET_CHECKSUM", other, std::to_string(other.checksNetwork), own,
                     std::to_string(own.checksNetwork));
    }
    if (other.tuningHash != own.tuningHash) {
      return invalidUsage(
          "the prices of TUTTI_TUNING_FILE differ between rank {} ({}) and rank {} ({}): give all "
          "ranks the same file, or none",
          i, textOf(other.peer.hostName), own.peer.rank, textOf(own.peer.hostName));
    }
  }
  return {};
}

std::vector<HostMember> hostOf(const std::vector<InitRecord>& records, const InitRecord& own) {
  std::vector<HostMember> host;
  for (const InitRecord& record : records) {
    if (record.peer.hostHash != own.peer.hostHash) continue;
    host.push_back(
        {Rank{record.peer.rank}, topology::normalBusId(textOf(record.gpuBusId)).value_or("")});
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

}  // namespace

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
  const std::string& protocols = process_.settings().text("NCCL_PROTO");
  std::strncpy(own.protocols.data(), protocols.c_str(), own.protocols.size() - 1);
  // A file that cannot be used is told after the others have heard from us: they need not wait.
  Result<TuningFile> tuning = readTuningFile(process_.settings().text("TUTTI_TUNING_FILE"));
  own.tuningHash = tuning.ok() ? tuning->hash : ~uint64_t{0};
  own.idsHash = idsHash_;
  noteWishes(own, config_, process_.settings());
  own.cpuNode = device_.cpuNode();
  nameAccelerator(own, device_);
  TUTTI_TRY(noteCpus(own));
  own.probeAddress = reinterpret_cast<uint64_t>(&process_.probeWord());
  own.probeValue = process_.probeWord();
  own.relays = relaysOf(process_.settings());
  own.processor = processorKind();
  if (config_.reducesInNetwork) own.reduction = describeReduction(process_.reductionNetwork());
  own.reduction.nodeThreshold =
      static_cast<int32_t>(process_.settings().integer("NCCL_COLLNET_NODE_THRESHOLD"));
  TUTTI_TRY(bootstrap_->allGather(std::as_writable_bytes(std::span(records)), sizeof(InitRecord)));
  if (!tuning.ok()) return tuning.takeStatus();
  TUTTI_TRY(checkPeers(records, own));
  if (own.gpuHash != 0) {
    warnOfFewQueues(process_, records, own);
    noPeersReason_ = obstacleToPeers(records);
    gpuLimits_ = limitsOf(records);
    ownsGpu_ = ownsGpu(records, own);
    stagingBytes_ = std::ranges::min(records, {}, &InitRecord::stagingBytes).stagingBytes;
  }
  TUTTI_TRY_ASSIGN(const Reading reading,
                   agreeOnReading(*bootstrap_, readingOf(process_.settings(), records, own)));

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
                            .relays = std::ranges::min(records, {}, &InitRecord::relays).relays,
                            .tuning = tuning->tuning};
  agreement.railOf = railsOf(records);
  agreement.processor = processorOf(records);
  for (const InitRecord& record : records) peers_.push_back(record.peer);
  settleOnHost(cpus);
  if (!wire::isValid(agreement.geometry)) {
    return remoteError("a rank proposes slots of {} bytes", agreement.geometry.slotBytes);
  }
  agreement.tuner = tunerOf(process_, id_, graph_);
  addWishes(gpuLimits_, {algorithms, protocols, agreement.tuner});
  gpuLimits_.keepsLines = keepsLines(gpuLimits_, device_.accelerator(), records);
  TUTTI_TRY(agreeOnNetwork(offersOf(records), agreement));
  planner_ = std::make_unique<plan::Planner>(std::move(agreement));
  host_ = hostOf(records, own);
  if (derivation_) return {};  // children are of the same machine
  return show(isMachineWanted(records, own));
}

// Whether a network reduces between the hosts, and if so this rank's place in it.
Status Communicator::agreeOnNetwork(std::span<const ReductionOffer> offers,
                                    plan::Agreement& agreement) {
  std::vector<ReductionRank> ranks;
  for (int32_t i = 0; i < rankCount(); ++i)
    ranks.push_back({Rank{i}, graph_.nodeOf(Rank{i}), &offers[static_cast<size_t>(i)]});
  plan::NetworkReduction& network = agreement.inNetwork;
  network = agreeOnReduction(ranks, agreement.order);
  if (network.headCount > 0) {
    TUTTI_TRY_ASSIGN(net::ReductionNetwork * own, process_.reductionNetwork());
    TUTTI_TRY_ASSIGN(networkSeat_, joinReduction({.bootstrap = *bootstrap_,
                                                  .network = own,
                                                  .order = agreement.order,
                                                  .rankCount = rankCount(),
                                                  .timeout = process_.networkOptions().timeout,
                                                  .abort = &abort_,
                                                  .clock = process_.clock()},
                                                 network));
  }
  // On one host nobody misses it.
  if (!network.obstacle.empty() && !agreement.isOneHost && index(rank()) == 0)
    log::warn("no network reduces between the hosts of this communicator: {}", network.obstacle);
  if (network.headCount == 0) return {};
  if (network.gathers || network.scatters)
    networkSeat_.setBytes =
        plan::networkSetBytes(agreement.geometry.slotBytes, network.hostStarts.size());
  log::info(log::Subsystem::kNet, "{} reduces between {} hosts, {} heads each", network.name,
            network.hostStarts.size(), network.headCount);
  return {};
}

// How many ranks share CPUs with this one, and where it belongs among them.
void Communicator::settleOnHost(const std::vector<RankCpus>& cpus) {
  const RankCpus& own = cpus[static_cast<size_t>(index(rank()))];
  ranksOnHost_ = static_cast<int32_t>(std::ranges::count(cpus, own.host, &RankCpus::host));
  // A device knows this process's CPUs alone: its part of the machine's ranks shares them.
  const MachineCpus machine = machineOf(cpus, own);
  ranksOnCpus_ = (machine.ranks * own.usable + machine.cpus - 1) / machine.cpus;
  const uint64_t process = peers_[static_cast<size_t>(index(rank()))].processHash;
  const auto inProcess = std::ranges::count(peers_, process, &bootstrap::PeerInfo::processHash);
  for (const auto& transport : process_.transports()) {
    transport->noteRanks({.onCpus = ranksOnCpus_, .inProcess = static_cast<int32_t>(inProcess)});
  }
  if (derivation_) {
    homeCpu_ = derivation_->parent->homeCpu_;
  } else if (process_.settings().integer("TUTTI_HOME_CPUS") == 1) {
    homeCpu_ = homeCpuOf(cpus, rank());
    sharesCpu_ = sharersOfHome(cpus, rank());
  }
  if (homeCpu_ == HomeCpu::kNone) return;
  log::info(log::Subsystem::kInit, "rank {} belongs on CPU {}: {} ranks share {} CPUs",
            index(rank()), homeCpu_, ranksOnHost_, cpusOfHost(cpus, own.host));
}

}  // namespace tutti::comm
