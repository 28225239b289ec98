// Hosts and how many ranks each holds: --hosts a:2,b:2, or a file. Pure, but for reading that.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tutti::tools {

struct HostSlots {
  std::string name;  // as ssh takes it: host, address, user@host
  int slots = 1;
  bool operator==(const HostSlots&) const = default;
};

// "a:2,b,user@c:4"; an IPv6 address with slots in brackets, "[fd00::1]:2". A host that comes twice
// has the slots of both. kInvalidArgument names the entry.
Result<std::vector<HostSlots>> parseHosts(std::string_view list);

// A host a line: "a", "a:2", "a slots=2 max_slots=4" (Open MPI's), "a 2"; # begins a comment.
// kInvalidArgument names source and line.
Result<std::vector<HostSlots>> parseHostFile(std::string_view text, std::string_view source);

// Where the ranks go: each host's slots in turn, so many ranks; 0: all slots.
struct RankPlace {
  std::string host;
  int localRank = 0;
  int localCount = 1;  // ranks on that host
};
Result<std::vector<RankPlace>> placeRanks(const std::vector<HostSlots>& hosts, int rankCount);

}  // namespace tutti::tools
