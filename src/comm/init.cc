// How a communicator begins, in a screenful: meet the peers, agree with them, build the parts that
// run operations.
#include <algorithm>
#include <new>

#include "base/affinity.h"
#include "base/char_field.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/units.h"
#include "base/version.h"
#include "comm/communicator.h"
#include "comm/gpu_cpus.h"
#include "comm/graphs.h"
#include "comm/machine.h"
#include "comm/process.h"
#include "device/accelerator.h"
#include "device/host_streams.h"
#include "graph/print.h"
#include "launch/gpu_launcher.h"
#include "launch/join_board.h"
#include "launch/staged_launcher.h"
#include "plan/send_relay.h"

namespace tutti::comm {
namespace {

Result<topology::Topology> builtMachine(Process& process) {
  TUTTI_TRY_ASSIGN(const topology::Description machine, process.machine(true));
  return topology::buildTopology(machine);
}

// Of each rank. A host's ranks share its last cache.
uint64_t streamFrom(const Settings& settings, std::span<const bootstrap::PeerInfo> peers,
                    const bootstrap::PeerInfo& own) {
  const auto ranks = std::ranges::count(peers, own.hostHash, &bootstrap::PeerInfo::hostHash);
  return static_cast<uint64_t>(settings.integer("TUTTI_STREAM_FROM_BYTES") / ranks);
}

// By receiver.
std::vector<Rank> carriersOf(const plan::Agreement& agreement) {
  std::vector<Rank> carriers;
  if (agreement.isOneHost || agreement.relays == plan::Relays::kNever) return carriers;
  for (int32_t to = 0; to < agreement.rankCount; ++to)
    carriers.push_back(plan::carrierOf(agreement, agreement.rank, Rank{to}));
  return carriers;
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
    return nameTheDead(runInitialise());
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
                                                              .places = places_,
                                                              .rank = rank(),
                                                              .rankCount = rankCount(),
                                                              .network = network,
                                                              .abort = &abort_,
                                                              .clock = &process_.clock()}));
  return {};
}

// Where one of the host's ranks wants it known. Children are of the same machine.
Result<std::optional<topology::Description>> Communicator::learnMachine(bool isWanted) {
  if (derivation_ || !isWanted) return std::optional<topology::Description>();
  return shareMachine(
      {.bootstrap = *bootstrap_,
       .host = host_,
       .abort = &abort_,
       .timeout = process_.networkOptions().timeout,
       .find = [this] { return process_.machine(device_.accelerator() != nullptr); }});
}

// The plan; of the host its machine and graphs.
Status Communicator::show(const std::optional<topology::Description>& machine) {
  if (index(rank()) == 0 && log::isEnabled(log::Level::kInfo, log::Subsystem::kInit)) showPlan();
  if (!machine) return {};
  const bool isFirst = host_.front().rank == rank();
  showMachine(process_.settings(), *machine, isFirst, rank());
  if (const auto graphs = planHost(process_.settings(), *machine))
    showGraphs(process_.settings(), *graphs, isFirst, rank());
  return {};
}

void Communicator::showPlan() {
  logLines("ring", rankCount() < 2 ? "of one rank" : graph::drawRing(graph_, 0));
  const bool hasKernels = device_.accelerator() != nullptr && noPeersReason_.empty();
  logLines("choice",
           hasKernels ? describeChoices(gpuLimits_) : describeChoices(planner_->agreement()));
}

Status Communicator::prepareToRun() {
  device_.joinRanks(ranksOnCpus_);
  TUTTI_TRY_ASSIGN(auto recorder,
                   launch::joinBoard({.bootstrap = *bootstrap_,
                                      .handoff = process_.handoff(),
                                      .peers = peers_,
                                      .abort = abort_,
                                      .timeout = process_.networkOptions().timeout,
                                      .recorders = process_.recorders(),
                                      .name = name().empty() ? bootstrap::jobName(id_.job) : name(),
                                      .offer = boardOffer_}));
  if (device_.accelerator() == nullptr) return prepareHost(std::move(recorder));
  const NarrowedAffinity nearGpu(cpusNear(device_.accelerator()->busId()),
                                 process_.settings().integer("NCCL_IGNORE_CPU_AFFINITY") != 0);
  if (nearGpu.isNarrowed())
    log::info(log::Subsystem::kInit, "rank {}: host memory is made on CPUs near GPU {}",
              index(rank()), device_.accelerator()->busId());
  std::unique_ptr<channel::PeerSegments> segments;
  if (noPeersReason_.empty()) {
    TUTTI_TRY_ASSIGN(segments, shareSegments());
  }
  return segments != nullptr ? prepareGpu(std::move(segments), std::move(recorder))
                             : prepareStaged(std::move(recorder));
}

void Communicator::openProfiler() {
  const bootstrap::PeerInfo& own = peers_[static_cast<size_t>(index(rank()))];
  profiler_ = process_.profiling().open({.trace = {.communicator = hash(),
                                                   .name = name(),
                                                   .rank = own.rank,
                                                   .rankCount = rankCount(),
                                                   .host = textOf(own.hostName),
                                                   .hostHash = own.hostHash,
                                                   .processId = own.processId},
                                         .nodeCount = graph_.nodeCount()});
}

// Nothing is allocated for links here: they come with the first operation that needs them.
void Communicator::openLinks(std::unique_ptr<observe::Recorder> recorder) {
  const bootstrap::PeerInfo& own = peers_[static_cast<size_t>(index(rank()))];
  openProfiler();
  const plan::Agreement& agreement = planner_->agreement();
  links_ = std::make_unique<channel::LinkSet>(channel::LinkSet::Parts{
      .bootstrap = *bootstrap_,
      .peers = peers_,
      .transports = process_.transports(config_.network),
      .geometry = agreement.geometry,
      .mapAfterBytes = static_cast<uint64_t>(process_.settings().integer("TUTTI_MAP_AFTER_BYTES")),
      .carriers = carriersOf(agreement),
      .isDetourForced = agreement.relays == plan::Relays::kAlways,
      .profiler = profiler_.get(),
      .gpu = gpuDirect_.isUsed ? &gpuDirectView_.slots : nullptr});
  links_->join(std::move(networkSeat_));
  linksShown_.emplace(process_.links(), recorder->board().name(), index(rank()), *links_);
  const Settings& settings = process_.settings();
  launcher_ = std::make_unique<launch::Launcher>(
      launch::Launcher::Parts{.links = *links_,
                              .planner = *planner_,
                              .peers = peers_,
                              .abort = abort_,
                              .clock = process_.clock(),
                              .timeout = process_.networkOptions().timeout,
                              .recorder = std::move(recorder),
                              .bootstrap = bootstrap_.get(),
                              .segments = launch::SegmentCache(sharedMemory()),
                              .streamFromBytes = streamFrom(settings, peers_, own),
                              .homeCpu = homeCpu_,
                              .sharesCpu = sharesCpu_,
                              .outbox = makeOutbox(agreement),
                              .triesForms = settings.integer("TUTTI_PROCESS_READ") != 1,
                              .profiler = profiler_.get(),
                              .folder = folder_.get(),
                              .crews = process_.crews(),
                              .helpers = helpers_});
}

launch::OwnSegment Communicator::makeOutbox(const plan::Agreement& agreement) {
  device::SharedMemory* memory = sharedMemory();
  const bool isOfHosts = !agreement.isOneHost && agreement.isCrowded() && ranksOnHost_ > 2;
  if ((!agreement.hasOutbox() && !isOfHosts) || memory == nullptr) return {};
  return {*memory, kernels::Outbox::bytesFor(kernels::Outbox::reachOf(agreement.isOneHost))};
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
                                                   .timeout = process_.networkOptions().timeout,
                                                   .abort = &abort_,
                                                   .hasPrograms = gpuLimits_.hasPrograms,
                                                   .keepsLines = gpuLimits_.keepsLines}));
  noPeersReason_ = std::move(shared.obstacle);
  gpuLimits_.keepsLines = shared.keepsLines;
  return std::move(shared.segments);
}

// The network between hosts, found and listening. Null: there is none, or it takes longer.
Result<transport::Transport*> Communicator::findNetwork(std::optional<Nanoseconds> patience) {
  constexpr Nanoseconds kPause = std::chrono::microseconds(200);
  const Instant start = process_.clock().now();
  for (const auto& transport : process_.transports(config_.network)) {
    if (transport->caps().needsOneHost || transport->caps().needsOneProcess) continue;
    for (;;) {
      TUTTI_TRY_ASSIGN(const Progress progress, transport->prepare());
      if (progress == Progress::kDone) return transport.get();
      TUTTI_TRY(checkNotAborted());
      if (patience && process_.clock().now() - start > *patience) break;
      sleepFor(kPause);
    }
  }
  return static_cast<transport::Transport*>(nullptr);
}

// The adapters of the network between hosts.
Result<std::vector<net::Adapter>> Communicator::findAdapters() {
  TUTTI_TRY_ASSIGN(transport::Transport * network, findNetwork(std::nullopt));
  if (network == nullptr) return std::vector<net::Adapter>();
  return network->adapters();
}

// Of GPU ranks of several hosts: whether the network reaches their memory by itself.
Status Communicator::prepareGpuDirect() {
  if (planner_->agreement().isOneHost) return {};
  const Settings& settings = process_.settings();
  device::Accelerator& accelerator = *device_.accelerator();
  Result<std::vector<net::Adapter>> adapters = findAdapters();
  TUTTI_TRY(checkNotAborted());
  if (!adapters.ok()) {
    gpuDirectView_.obstacle = adapters.status().message();  // the first link's error says it again
  } else {
    topology::Topology machine;
    GpuPlace place;
    if (!adapters->empty()) {
      if (Result<topology::Topology> found = builtMachine(process_); found.ok()) {
        machine = std::move(found).value();
        place = {.machine = &machine, .gpu = topology::findByBusId(machine, accelerator.busId())};
      }
    }
    gpuDirectView_ = judgeGpuDirect(*adapters, place, gpuDirectRulesOf(settings));
  }
  gpuDirectView_.slots.gpu = &accelerator;
  gpuDirectView_.slots.reachesPeers = settings.integer("NCCL_P2P_DISABLE") == 0;
  gpuDirectView_.slots.farPeers = farPeers_;
  TUTTI_TRY_ASSIGN(
      gpuDirect_,
      agreeOnGpuDirect(*bootstrap_, gpuDirectView_,
                       static_cast<uint64_t>(settings.integer("TUTTI_GDR_FROM_BYTES"))));
  log::info(log::Subsystem::kNet, "rank {}: {}", index(rank()), describeGpuDirect());
  if (!gpuDirect_.isUsed) return {};
  TUTTI_TRY_ASSIGN(folder_, launch::DeviceFolder::open(accelerator));
  return {};
}

// GPU ranks whose calls the host carries out.
Status Communicator::prepareStaged(std::unique_ptr<observe::Recorder> recorder) {
  process_.hostDevice().joinRanks(ranksOnCpus_);
  TUTTI_TRY(prepareGpuDirect());
  if (index(rank()) == 0 && !gpuDirect_.isUsed) {
    log::warn("{} GPU ranks go through host memory, which is slower: {}", rankCount(),
              noPeersReason_);
  }
  openLinks(std::move(recorder));
  TUTTI_TRY_ASSIGN(streamRunner_,
                   launch::StagedLauncher::open(
                       {.accelerator = *device_.accelerator(),
                        .host = process_.hostDevice(),
                        .launcher = *launcher_,
                        .rank = rank(),
                        .rankCount = rankCount(),
                        .slotBytes = stagingBytes_,
                        .checksPointers = process_.settings().integer("NCCL_CHECK_POINTERS") != 0,
                        .gpuFromBytes = gpuDirect_.isUsed ? gpuDirect_.fromBytes
                                                          : launch::StagedLauncher::kNever,
                        .foldsOnGpu = gpuDirect_.foldsOnGpu,
                        .mixesGraphs = config_.mixesGraphs,
                        .ownsGpu = ownsGpu_}));
  runner_ = streamRunner_.get();
  return {};
}

// All that the kernels need, while nobody's kernel waits and no capture can be under way.
Status Communicator::prepareGpu(std::unique_ptr<channel::PeerSegments> segments,
                                std::unique_ptr<observe::Recorder> recorder) {
  const auto timeout = process_.networkOptions().timeout;
  const Settings& settings = process_.settings();
  auto buffers = std::make_unique<channel::PeerBuffers>(
      channel::PeerBuffers::Parts{.bootstrap = *bootstrap_,
                                  .handoff = process_.handoff(),
                                  .peers = peers_,
                                  .accelerator = *device_.accelerator(),
                                  .clock = process_.clock(),
                                  .timeout = timeout,
                                  .alive = segments->aliveWords(),
                                  .abort = &abort_});
  openProfiler();
  auto launcher = launch::GpuLauncher::open(
      {.accelerator = *device_.accelerator(),
       .watcher = process_.gpuWatcher(),
       .room = process_.gpuRooms().of(*device_.accelerator()),
       .peers = peers_,
       .clock = process_.clock(),
       .segments = std::move(segments),
       .buffers = std::move(buffers),
       .recorder = std::move(recorder),
       .options = {.limits = gpuLimits_,
                   .timeout = timeout,
                   .waitLimit = std::chrono::milliseconds(settings.integer("TUTTI_GPU_WAIT_MS")),
                   .checksPointers = settings.integer("NCCL_CHECK_POINTERS") != 0,
                   .registersGraphs = settings.integer("NCCL_GRAPH_REGISTER") != 0,
                   .mixesGraphs = config_.mixesGraphs},
       .profiler = profiler_.get(),
       .teller = &process_.gpuTeller()});
  // Kernels of ranks that are through may wait for those that still load theirs.
  TUTTI_TRY(bootstrap_->barrier("the loading of kernels"));
  if (!launcher.ok()) return launcher.takeStatus();
  gpuLauncher_ = launcher.value().get();
  streamRunner_ = std::move(launcher).value();
  runner_ = streamRunner_.get();
  return {};
}

}  // namespace tutti::comm
