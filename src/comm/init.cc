// How a communicator begins, in a screenful: meet the peers, agree with them, build the parts that
// run operations.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/log.h"
#include "base/units.h"
#include "base/version.h"
#include "comm/communicator.h"
#include "comm/hash.h"
#include "comm/process.h"
#include "device/host_streams.h"
#include "kernels/remote_read.h"
#include "launch/join_board.h"

namespace tutti::comm {
namespace {

// What each rank contributes to the one all-gather of start-up.
struct InitRecord {
  bootstrap::PeerInfo peer;
  wire::LinkGeometry geometry;
  uint64_t algorithmsHash = 0;         // of NCCL_ALGO
  std::array<char, 128> algorithms{};  // its beginning, zero-terminated, for messages
  uint64_t idsHash = 0;                // of the ids given to ncclCommInitRankScalable
  uint64_t probeAddress = 0;           // a word of this process ...
  uint64_t probeValue = 0;  // ... that holds this: who reads it there may read references
};

// Whether this process can, and should, read the memory of every rank: its own always; that of
// others of this host when asked to and when the kernel lets it.
bool canReadAll(const std::vector<InitRecord>& records, const InitRecord& own,
                bool readsProcesses) {
  return std::ranges::all_of(records, [&own, readsProcesses](const InitRecord& other) {
    if (other.peer.processHash == own.peer.processHash) return true;
    const auto* word = reinterpret_cast<const uint64_t*>(other.probeAddress);
    return readsProcesses && other.peer.hostHash == own.peer.hostHash &&
           kernels::canReadProcess(other.peer.processId, word, other.probeValue);
  });
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
  }
  return {};
}

}  // namespace

Status Communicator::initialise() {
  become(State::kInitialising);
  Status status = runInitialise();
  derivation_.reset();
  if (!status.ok()) return fail(std::move(status));
  become(rankCount() == 0 ? State::kOutside : State::kReady);
  return {};
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
  TUTTI_TRY(agree());
  TUTTI_TRY(prepareToRun());
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
  own.peer = process_.describe(rank());
  own.geometry =
      plan::linkGeometry(static_cast<size_t>(process_.settings().integer("NCCL_BUFFSIZE")));
  const std::string& algorithms = process_.settings().text("NCCL_ALGO");
  own.algorithmsHash = hashOf(algorithms);
  std::strncpy(own.algorithms.data(), algorithms.c_str(), own.algorithms.size() - 1);
  own.idsHash = idsHash_;
  own.probeAddress = reinterpret_cast<uint64_t>(&process_.probeWord());
  own.probeValue = process_.probeWord();
  TUTTI_TRY(bootstrap_->allGather(std::as_writable_bytes(std::span(records)), sizeof(InitRecord)));
  TUTTI_TRY(checkPeers(records, own));
  std::vector<uint8_t> readsAll(records.size());
  readsAll[static_cast<size_t>(index(rank()))] =
      process_.settings().integer("NCCL_P2P_DISABLE") == 0 &&
      canReadAll(records, own, process_.settings().integer("TUTTI_PROCESS_READ") != 0);
  TUTTI_TRY(bootstrap_->allGather(std::as_writable_bytes(std::span(readsAll)), 1));

  plan::Agreement agreement{.rank = rank(),
                            .rankCount = rankCount(),
                            .geometry = own.geometry,
                            .algorithms = algorithms,
                            .readsPeers = std::ranges::find(readsAll, 0) == readsAll.end()};
  for (const InitRecord& record : records) {
    agreement.geometry.slotBytes =
        std::min(agreement.geometry.slotBytes, record.geometry.slotBytes);
    peers_.push_back(record.peer);
    if (record.peer.hostHash == own.peer.hostHash) ++ranksOnHost_;
  }
  if (!wire::isValid(agreement.geometry)) {
    return remoteError("a rank proposes slots of {} bytes", agreement.geometry.slotBytes);
  }
  planner_ = std::make_unique<plan::Planner>(std::move(agreement));
  return {};
}

// Nothing is allocated for links here: they come with the first operation that needs them.
Status Communicator::prepareToRun() {
  device_.joinRanks(ranksOnHost_);
  links_ = std::make_unique<channel::LinkSet>(
      channel::LinkSet::Parts{.bootstrap = *bootstrap_,
                              .peers = peers_,
                              .transports = process_.transports(),
                              .geometry = planner_->agreement().geometry});
  const auto timeout = process_.networkOptions().timeout;
  TUTTI_TRY_ASSIGN(
      auto recorder,
      launch::joinBoard({.bootstrap = *bootstrap_,
                         .handoff = process_.handoff(),
                         .peers = peers_,
                         .abort = abort_,
                         .timeout = timeout,
                         .exits = process_.exits(),
                         .name = name().empty() ? bootstrap::jobName(id_.job) : name()}));
  launcher_ =
      std::make_unique<launch::Launcher>(launch::Launcher::Parts{.links = *links_,
                                                                 .planner = *planner_,
                                                                 .peers = peers_,
                                                                 .abort = abort_,
                                                                 .clock = process_.clock(),
                                                                 .timeout = timeout,
                                                                 .recorder = std::move(recorder)});
  if (!isBlocking()) {
    TUTTI_TRY_ASSIGN(ownStream_, device_.hostStreams()->createStream());
  }
  return {};
}

}  // namespace tutti::comm
