// NCCL_P2P_LEVEL: how far apart GPUs may be that map each other's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/settings.h"
#include "bootstrap/bootstrap.h"
#include "comm/host_member.h"
#include "comm/init_record.h"
#include "topology/description.h"
#include "topology/paths.h"
#include "topology/topology.h"

namespace tutti::comm {

// Of a host's GPUs, by their places in the machine. Constant after construction; any thread.
class GpuDistances {
 public:
  // Null where the machine makes no topology, after a warning.
  static std::shared_ptr<const GpuDistances> open(const topology::Description& machine);
  // By bus id; none: one of them is not known.
  std::optional<topology::PathKind> between(std::string_view one, std::string_view other) const;

 private:
  explicit GpuDistances(topology::Topology machine);

  topology::Topology machine_;
  topology::Paths paths_;
};

// What a GPU rank's settings say, for which it wants its machine known; nothing for a CPU rank.
void notePeerLevel(InitRecord& own, const Settings& settings);

struct PeerLevel {
  topology::PathKind kind{};
  int32_t rank = 0;  // that asks for it
};
// The closest that a rank asks for; none: none does. All ranks find the same.
std::optional<PeerLevel> closestLevel(std::span<const InitRecord> records);

// What a rank finds out of the others of its host.
struct PeerView {
  std::vector<int32_t> farPeers{};   // ranks whose GPUs its own may not map
  std::string obstacle{};            // the first of them, with the reason; empty: there are none
  std::vector<std::string> lines{};  // what is to be said of each that is far or not known
};
// Pure. `distances`: null where the machine is not known; then the driver decides, but for LOC.
PeerView judgePeers(std::span<const HostMember> host, Rank self, const PeerLevel& level,
                    const GpuDistances* distances);

// Collective among the ranks: the obstacle of the first that has one.
Result<std::string> agreeOnPeers(bootstrap::Bootstrap& bootstrap, const std::string& own);

}  // namespace tutti::comm
