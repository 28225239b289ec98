// A call's flows one by one, for exports: numbered, each with its bytes, its route, and what it
// waits for. Everything follows from the implicit form (traffic.h); here it is written out, so
// memory and time go by the number of flows, which is bounded. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "sim/traffic.h"

namespace tutti::sim {

inline constexpr int64_t kNoFlow = -1;

// What a lane does in one step of one piece, in flows.
struct FlowStep {
  Rank rank{0};
  int32_t channel = 0;
  int64_t piece = 0;
  int32_t step = 0;
  int32_t chunk = 0;
  uint64_t bytes = 0;
  bool isFold = false;
  struct End {
    Rank peer{0};
    int64_t flow = kNoFlow;
    int64_t place = 0;  // among the flows of its link: the first is 0
  };
  std::vector<End> receives{};
  std::vector<End> sends{};
  // Of the lane's program; valid during the visit.
  std::span<const schedule::Operand> sources{};
  std::span<const schedule::Operand> destinations{};
};

struct Flow {
  int64_t id = 0;
  int32_t channel = 0;
  Rank from{0};
  Rank to{0};
  int64_t piece = 0;
  int32_t step = 0;
  int32_t chunk = 0;
  uint64_t bytes = 0;
  uint64_t wireBytes = 0;
  int64_t place = 0;                // among the flows of its link
  std::vector<int64_t> waitsFor{};  // flows whose data it carries on
  int64_t previous = kNoFlow;       // that the same lane sent before
  int64_t slot = kNoFlow;           // on the same link, whose slot it takes once that was read
};

class FlowTable {
 public:
  // Borrows the traffic. kInvalidArgument when there are more flows than that.
  static Result<FlowTable> make(const Traffic& traffic, int64_t mostFlows = 50'000'000);

  int64_t count() const { return count_; }
  const Traffic& traffic() const { return *traffic_; }
  // A rank's steps in the order of channels, pieces and steps; those of no bytes are left out.
  Status forSteps(Rank rank, const std::function<Status(const FlowStep&)>& visit) const;
  // All flows, by their numbers.
  Status forFlows(const std::function<Status(const Flow&)>& visit) const;

 private:
  const Traffic* traffic_ = nullptr;
  int64_t count_ = 0;
  // The numbers of a link's flows in order: [channel][from, to].
  std::vector<std::map<std::pair<int32_t, int32_t>, std::vector<int64_t>>> links_;
};

}  // namespace tutti::sim
