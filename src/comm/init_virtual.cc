// How a virtual communicator begins: its ranks meet as others do, tell each other which places of
// the cluster they are, and need nothing else.
#include <span>
#include <vector>

#include "base/version.h"
#include "comm/communicator.h"
#include "comm/process.h"

namespace tutti::comm {
namespace {

struct VirtualRecord {
  uint64_t processHash = 0;
  uint64_t fingerprint = 0;  // of the cluster
  uint64_t idsHash = 0;
  int32_t place = 0;
  uint32_t version = 0;
};

Status checkAlike(const std::vector<VirtualRecord>& records, size_t self) {
  const VirtualRecord& own = records[self];
  for (size_t i = 0; i < records.size(); ++i) {
    const VirtualRecord& other = records[i];
    if (other.version != own.version)
      return invalidUsage("Mismatched NCCL version detected: rank {} has {}, rank {} has {}", i,
                          other.version, self, own.version);
    if (other.fingerprint != own.fingerprint)
      return invalidUsage(
          "rank {} and rank {} are of different virtual clusters: set TUTTI_VIRTUAL_CLUSTER alike "
          "on all",
          i, self);
    if (other.idsHash != own.idsHash)
      return invalidUsage("rank {} and rank {} met with different lists of ids", i, self);
    if (i != self && other.place == own.place)
      return invalidUsage("rank {} and rank {} are both place {} of the virtual cluster", i, self,
                          own.place);
  }
  return {};
}

}  // namespace

Status Communicator::joinVirtualWorld() {
  TUTTI_TRY_ASSIGN(VirtualCluster * cluster, process_.virtualCluster());
  std::vector<VirtualRecord> records(static_cast<size_t>(rankCount()));
  const auto self = static_cast<size_t>(index(rank()));
  records[self] = {.processHash = process_.directory().processHash(),
                   .fingerprint = cluster->fingerprint(),
                   .idsHash = idsHash_,
                   .place = device_.caps().index,
                   .version = kInterfaceVersionCode};
  TUTTI_TRY(bootstrap_->allGather(std::as_writable_bytes(std::span(records)), sizeof(VirtualRecord),
                                  "the agreement on a virtual cluster"));
  TUTTI_TRY(checkAlike(records, self));
  VirtualCluster::Job job{.id = id_.job,
                          .name = name().empty() ? bootstrap::jobName(id_.job) : name(),
                          .places = {},
                          .isHere = {}};
  for (const VirtualRecord& each : records) {
    job.places.push_back(Rank{each.place});
    job.isHere.push_back(each.processHash == records[self].processHash);
    ranksOnHost_ += job.isHere.back() ? 1 : 0;
  }
  auto launcher = std::make_unique<launch::VirtualLauncher>(cluster->join(std::move(job)), rank());
  virtualLauncher_ = launcher.get();
  streamRunner_ = std::move(launcher);
  runner_ = streamRunner_.get();
  return {};
}

}  // namespace tutti::comm
