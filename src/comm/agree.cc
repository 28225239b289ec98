// What the ranks of a new communicator tell each other, and what follows from it for all of them.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/char_field.h"
#include "base/log.h"
#include "base/processor.h"
#include "base/settings.h"
#include "comm/agree_gpus.h"
#include "comm/communicator.h"
#include "comm/crowding.h"
#include "comm/hash.h"
#include "comm/machine.h"
#include "comm/peer_level.h"
#include "comm/process.h"
#include "comm/reading.h"
#include "comm/relays.h"
#include "comm/tuning_file.h"
#include "graph/places.h"
#include "kernels/remote_memory.h"
#include "net/net.h"
#include "plan/pieces.h"
#include "topology/bus_id.h"

namespace tutti::comm {
namespace {

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

void noteProcess(InitRecord& own, Process& process) {
  own.machineHash = process.machineHash();
  own.probeAddress = reinterpret_cast<uint64_t>(&process.probeWord());
  own.probeValue = process.probeWord();
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
enum class Reading : uint8_t { kNone, kByKernel, kFastByKernel, kAsOwn };

Reading readingOf(const Settings& settings, const std::vector<InitRecord>& records,
                  const InitRecord& own) {
  if (own.gpuHash != 0 || settings.integer("NCCL_P2P_DISABLE") != 0) return Reading::kNone;
  if (areAllHere(records, own)) return Reading::kAsOwn;
  // A network carries no references, and without shared memory it is what links the processes.
  if (settings.integer("NCCL_SHM_DISABLE") != 0) return Reading::kNone;
  if (!readsByKernel(settings) || !canReadProcesses(records, own)) return Reading::kNone;
  return readsFastByKernel(settings) ? Reading::kFastByKernel : Reading::kByKernel;
}

void noteReading(plan::Agreement& agreement, Reading reading) {
  agreement.readsPeers = reading == Reading::kAsOwn;
  agreement.readsFastByKernel = reading == Reading::kFastByKernel;
  agreement.readsByKernel = agreement.readsFastByKernel || reading == Reading::kByKernel;
}

// What all ranks can: the least.
Result<Reading> agreeOnReading(bootstrap::Bootstrap& bootstrap, Reading own) {
  std::vector<Reading> readings(static_cast<size_t>(bootstrap.rankCount()));
  readings[static_cast<size_t>(index(bootstrap.rank()))] = own;
  TUTTI_TRY(bootstrap.allGather(std::as_writable_bytes(std::span(readings)), sizeof(Reading),
                                "the agreement on reading memory"));
  return *std::ranges::min_element(readings);
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

void noteWays(InitRecord& own, const Settings& settings) {
  notePeerLevel(own, settings);
  own.relays = relaysOf(settings);
  own.overlap = static_cast<plan::Overlap>(settings.integer("TUTTI_NET_OVERLAP"));
}

plan::Overlap overlapOf(const std::vector<InitRecord>& records) {
  return std::ranges::min(records, {}, &InitRecord::overlap).overlap;
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

// Threads that help a rank with long calls, where it has so many CPUs.
int32_t helpersOf(const Settings& settings, int32_t cpus) {
  constexpr int32_t kMost = 3;
  const auto wanted = static_cast<int32_t>(settings.integer("TUTTI_HELPER_THREADS"));
  return wanted >= 0 ? wanted : std::clamp(cpus - 1, 0, kMost);
}

void noteChoice(InitRecord& own, const std::string& algorithms, const std::string& protocols) {
  own.algorithmsHash = hashOf(algorithms);
  std::strncpy(own.algorithms.data(), algorithms.c_str(), own.algorithms.size() - 1);
  std::strncpy(own.protocols.data(), protocols.c_str(), own.protocols.size() - 1);
}

void noteReduction(InitRecord& own, Process& process, bool isWanted) {
  if (isWanted) own.reduction = offerOf(process.reduction());
  own.reduction.nodeThreshold =
      static_cast<int32_t>(process.settings().integer("NCCL_COLLNET_NODE_THRESHOLD"));
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
  TUTTI_TRY_ASSIGN(own.peer, process_.describe(rank(), config_.network));
  own.geometry =
      plan::linkGeometry(static_cast<size_t>(process_.settings().integer("NCCL_BUFFSIZE")));
  const std::string& algorithms =
      config_.algorithms.empty() ? process_.settings().text("NCCL_ALGO") : config_.algorithms;
  const std::string& protocols = process_.settings().text("NCCL_PROTO");
  noteChoice(own, algorithms, protocols);
  // A file that cannot be used is told after the others have heard from us: they need not wait.
  Result<TuningFile> tuning = readTuningFile(process_.settings().text("TUTTI_TUNING_FILE"));
  own.tuningHash = tuning.ok() ? tuning->hash : ~uint64_t{0};
  own.idsHash = idsHash_;
  noteWishes(own, config_, process_.settings());
  own.cpuNode = device_.cpuNode();
  nameAccelerator(own, device_);
  own.cpus = affinityMask();
  noteProcess(own, process_);
  noteWays(own, process_.settings());
  own.processor = processorKind();
  noteReduction(own, process_, config_.reducesInNetwork);
  TUTTI_TRY(bootstrap_->allGather(std::as_writable_bytes(std::span(records)), sizeof(InitRecord),
                                  "the agreement on settings"));
  if (!tuning.ok()) return tuning.takeStatus();
  TUTTI_TRY(checkPeers(records, own));
  if (own.gpuHash != 0) {
    warnOfFewQueues(process_, records, own);
    noPeersReason_ = obstacleToPeers(records);
    gpuLimits_ = limitsOf(records);
    ownsGpu_ = ownsGpu(records, own);
    stagingBytes_ = std::ranges::min(records, {}, &InitRecord::stagingBytes).stagingBytes;
  }
  for (const InitRecord& record : records) peers_.push_back(record.peer);
  const std::vector<RankCpus> cpus = cpusOf(records);
  settleOnHost(cpus);
  // What is wrong with it is told here, to the others as well, and not by the first call between
  // hosts. They wait meanwhile, so one that is long in coming is left to that call.
  if (!isOneHost(records) && device_.accelerator() == nullptr)
    TUTTI_TRY(findNetwork(process_.networkOptions().timeout / 4).takeStatus());
  TUTTI_TRY_ASSIGN(const Reading reading,
                   agreeOnReading(*bootstrap_, readingOf(process_.settings(), records, own)));
  TUTTI_TRY_ASSIGN(graph_, graph::mergePlaces(placesOf(records)));
  plan::Agreement agreement{.rank = rank(),
                            .rankCount = rankCount(),
                            .geometry = geometryOf(records),
                            .algorithms = algorithms,
                            .isOneHost = isOneHost(records),
                            .hostOf = hostsOf(records, graph_),
                            .ranksPerCpu = ranksPerCpu(cpus),
                            .order = graph::orderOf(graph_),
                            .relays = std::ranges::min(records, {}, &InitRecord::relays).relays,
                            .tuning = tuning->tuning};
  noteReading(agreement, reading);
  agreement.overlapsNetwork = plan::doOverlap(overlapOf(records), cpusEach(cpus) >= 2);
  agreement.railOf = railsOf(records);
  agreement.processor = processorOf(records);
  if (!wire::isValid(agreement.geometry)) {
    return remoteError("a rank proposes slots of {} bytes", agreement.geometry.slotBytes);
  }
  agreement.tuner = tunerOf(process_, id_, graph_);
  addWishes(gpuLimits_, {algorithms, protocols, agreement.tuner});
  gpuLimits_.keepsLines = keepsLines(gpuLimits_, device_.accelerator(), records);
  TUTTI_TRY(agreeOnNetwork(offersOf(records), agreement));
  planner_ = std::make_unique<plan::Planner>(std::move(agreement));
  host_ = hostOf(records, own);
  TUTTI_TRY_ASSIGN(const auto machine, learnMachine(isMachineWanted(records, own)));
  TUTTI_TRY(keepPeerLevel(records, machine));
  return derivation_ ? Status() : show(machine);
}

// Which GPUs of the host this rank's may map, by NCCL_P2P_LEVEL; and whether all may, as kernels
// need it.
Status Communicator::keepPeerLevel(const std::vector<InitRecord>& records,
                                   const std::optional<topology::Description>& machine) {
  const std::optional<PeerLevel> level = closestLevel(records);
  if (!level) return {};
  if (derivation_) {
    distances_ = derivation_->parent->distances_;
  } else if (machine) {
    distances_ = GpuDistances::open(*machine);
  }
  PeerView view = judgePeers(host_, rank(), *level, distances_.get());
  for (const std::string& line : view.lines) log::info(log::Subsystem::kP2p, "{}", line);
  farPeers_ = std::move(view.farPeers);
  TUTTI_TRY_ASSIGN(std::string obstacle, agreeOnPeers(*bootstrap_, view.obstacle));
  if (noPeersReason_.empty()) noPeersReason_ = std::move(obstacle);
  return {};
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
    TUTTI_TRY_ASSIGN(const FoundReduction* own, process_.reduction());
    TUTTI_TRY_ASSIGN(networkSeat_, joinReduction({.bootstrap = *bootstrap_,
                                                  .network = own->network,
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
  const auto first = std::ranges::find(peers_, process, &bootstrap::PeerInfo::processHash);
  const auto place = std::count_if(peers_.begin(), first, [&](const bootstrap::PeerInfo& peer) {
    return peer.hostHash == first->hostHash;
  });
  for (const auto& transport : process_.transports(config_.network)) {
    transport->noteRanks(
        {.onCpus = ranksOnCpus_,
         .inProcess = static_cast<int32_t>(inProcess),
         .place = static_cast<int32_t>(place),
         .met = ranksOnHost_ < rankCount() ? bootstrap_->address() : bootstrap::SocketAddress{}});
  }
  helpers_ = helpersOf(process_.settings(), machine.each());
  if (derivation_) {
    helpers_ = std::min(helpers_, derivation_->parent->helpers_);
    homeCpu_ = derivation_->parent->homeCpu_;
  } else if (process_.settings().integer("TUTTI_HOME_CPUS") == 1) {
    homeCpu_ = homeCpuOf(cpus, rank());
    sharesCpu_ = sharersOfHome(cpus, rank());
  }
  if (helpers_ > 0)
    log::info(log::Subsystem::kInit,
              "rank {} may have {} helper threads for long calls: {} CPUs a rank", index(rank()),
              helpers_, machine.each());
  if (homeCpu_ == HomeCpu::kNone) return;
  log::info(log::Subsystem::kInit, "rank {} belongs on CPU {}: {} ranks share {} CPUs",
            index(rank()), homeCpu_, ranksOnHost_, cpusOfHost(cpus, own.host));
}

}  // namespace tutti::comm
