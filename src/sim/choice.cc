#include "sim/choice.h"

#include <algorithm>
#include <cctype>

#include "base/units.h"
#include "graph/cost_table.h"
#include "plan/plan.h"
#include "schedule/catalog.h"

namespace tutti::sim {
namespace {

using graph::Protocol;

// Ranks up to which algorithms are looked at whose programs or links grow by the square, where
// there is one that does without.
constexpr int32_t kMostRanksDirect = 512;
constexpr std::array kProtocols = {Protocol::kLl, Protocol::kLl128, Protocol::kSimple};

bool isSame(std::string_view one, std::string_view other) {
  return std::ranges::equal(one, other, [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  });
}

std::string nameOfWay(std::string_view algorithm, Protocol protocol) {
  return fmt::format("{} {}", algorithm, graph::nameOf(protocol));
}

class Chooser {
 public:
  Chooser(Estimator& estimator, const SimCall& call, const Timing& timing, const Wanted& wanted)
      : estimator_(estimator),
        cluster_(estimator.cluster()),
        plan_(estimator.plan()),
        call_(call),
        timing_(timing),
        wanted_(wanted) {}

  Result<Choices> run() {
    if (!cluster_.hasGpus()) {
      TUTTI_TRY(askPlanner());
    } else if (timing_.system == System::kNccl) {
      TUTTI_TRY(askNccl());
    } else {
      TUTTI_TRY(askPrices());
    }
    if (isAnyPlayed()) return std::move(made_);
    return invalidArgument("{}: no algorithm{}{} for {} on {} ranks here", nameOf(timing_.system),
                           wanted_.algorithm.empty() ? "" : " " + wanted_.algorithm,
                           wanted_.protocol.empty() ? "" : " with " + wanted_.protocol,
                           name(call_.collective), cluster_.rankCount());
  }

 private:
  bool isWanted(std::string_view algorithm, Protocol protocol) const {
    return (wanted_.algorithm.empty() || isSame(wanted_.algorithm, algorithm)) &&
           (wanted_.protocol.empty() || isSame(wanted_.protocol, graph::nameOf(protocol)));
  }

  bool isAnyPlayed() const {
    return std::ranges::any_of(made_.ways, [](const auto& way) { return way.method.has_value(); });
  }

  int32_t channelCount() const {
    if (wanted_.channelCount > 0) return wanted_.channelCount;
    return std::max(plan_.graphs.ring.channelCount, 1);
  }

  // `isTaken`: NCCL would.
  Status add(const std::string& algorithm, Protocol protocol, double choiceUs, int32_t channels,
             bool isTaken = false) {
    Choices::Way way{
        .name = nameOfWay(algorithm, protocol),
        .method = Method{.algorithm = algorithm, .protocol = protocol, .channelCount = channels},
        .choiceUs = choiceUs,
        .estimate = {}};
    Timing timing = timing_;
    timing.byProtocol = !isTaken;
    TUTTI_TRY_ASSIGN(way.estimate, estimator_.estimate(call_, *way.method, timing));
    made_.ways.push_back(std::move(way));
    return {};
  }

  bool isSparse(const schedule::Algorithm& algorithm) const {
    return algorithm.name == "ring" || algorithm.name == "tree" ||
           call_.collective == Collective::kAllToAll || call_.collective == Collective::kGather ||
           call_.collective == Collective::kScatter || isPointToPoint(call_.collective);
  }

  // The way that the library's own planner takes, then the rest.
  Status askPlanner() {
    const auto blocks =
        static_cast<uint64_t>(schedule::blockCount(call_.collective, cluster_.rankCount()));
    const plan::CallShape shape{.collective = call_.collective,
                                .type = call_.type,
                                .peer = call_.root,
                                .count = divideUp(call_.bytes / blocks, sizeOf(call_.type))};
    const plan::Agreement agreement = agreementOf(cluster_, plan_, wanted_.algorithm);
    TUTTI_TRY_ASSIGN(const plan::Choice choice, plan::choose(shape, agreement));
    made_.reason = choice.reason;
    TUTTI_TRY(add(std::string(choice.algorithm), Protocol::kSimple, 0, 1));
    for (const schedule::Algorithm& each : schedule::algorithms(call_.collective)) {
      const bool isTooMany = cluster_.rankCount() > kMostRanksDirect && !isSparse(each);
      if (each.name == choice.algorithm || isTooMany ||
          !each.isOfItsOwn(cluster_.rankCount(), plan_.evenHostCount) ||
          !isWanted(each.name, Protocol::kSimple))
        continue;
      TUTTI_TRY(add(std::string(each.name), Protocol::kSimple, 0, 1));
    }
    return {};
  }

  // What a cluster of GPUs can do at all, the cheapest first.
  Status askPrices() {
    const bool isOneNode = cluster_.nodeCount() == 1;
    for (const schedule::Algorithm& each : schedule::algorithms(call_.collective)) {
      if (!isSparse(each) && cluster_.rankCount() > kMostRanksDirect) continue;
      if (each.followsHosts()) continue;
      for (const Protocol protocol : kProtocols) {
        const bool isKnown = isPriced(timing_.system, call_.collective, each.name, protocol) ||
                             !wanted_.algorithm.empty() || (!isOneNode && each.name != "oneshot");
        const bool isOnlyChoice = schedule::algorithms(call_.collective).size() == 1;
        if (!isWanted(each.name, protocol) || !(isKnown || isOnlyChoice)) continue;
        TUTTI_TRY(add(std::string(each.name), protocol, 0, channelCount()));
      }
    }
    std::ranges::stable_sort(made_.ways, {}, [](const auto& way) { return way.estimate.us; });
    made_.reason = "the cheapest by simulated time";
    return {};
  }

  // The algorithm of ours that plays NCCL's; "" where none does.
  static std::string_view played(graph::Method method) {
    switch (method) {
      case graph::Method::kTree: return "tree";
      case graph::Method::kRing: return "ring";
      case graph::Method::kPat: return "pat";
      case graph::Method::kCollnetDirect:
      case graph::Method::kCollnetChain:
      case graph::Method::kNvls:
      case graph::Method::kNvlsTree: return "";
    }
    return "";
  }

  Status askNccl() {
    const graph::MethodChooser chooser(plan_.graphs, graph::nccl229(), {});
    std::vector<graph::MethodChoice> ranked;
    // Send, receive and what is made of them have no choice.
    if (chooser.choose(call_.collective, call_.bytes).ok())
      ranked = chooser.rank(call_.collective, call_.bytes);
    if (ranked.empty()) {
      made_.reason = "made of sends and receives";
      return askPrices();
    }
    made_.reason = "NCCL 2.29's choice model";
    for (const graph::MethodChoice& each : ranked) {
      const std::string algorithm(played(each.method));
      const bool isKnown =
          !algorithm.empty() && schedule::findAlgorithm(call_.collective, algorithm) != nullptr;
      const bool isTooMany = cluster_.rankCount() > kMostRanksDirect && algorithm == "pat";
      if (isTooMany || !isWanted(isKnown ? algorithm : graph::nameOf(each.method), each.protocol))
        continue;
      if (isKnown) {
        const int32_t channels =
            wanted_.channelCount > 0 ? wanted_.channelCount : each.channelCount;
        // The first that is played is what NCCL takes, with whichever protocol that then is.
        const bool isTaken = wanted_.protocol.empty() && !isAnyPlayed();
        TUTTI_TRY(add(algorithm, each.protocol, each.timeUs, channels, isTaken));
      } else {
        made_.ways.push_back({.name = nameOfWay(graph::nameOf(each.method), each.protocol),
                              .method = std::nullopt,
                              .choiceUs = each.timeUs,
                              .estimate = {}});
      }
    }
    return {};
  }

  Estimator& estimator_;
  const Cluster& cluster_;
  const VirtualPlan& plan_;
  const SimCall& call_;
  const Timing& timing_;
  const Wanted& wanted_;
  Choices made_;
};

}  // namespace

Result<Choices> chooseFor(Estimator& estimator, const SimCall& call, const Timing& timing,
                          const Wanted& wanted) {
  return Chooser(estimator, call, timing, wanted).run();
}

const Choices::Way& playedOf(const Choices& choices) {
  return *std::ranges::find_if(choices.ways,
                               [](const auto& way) { return way.method.has_value(); });
}

}  // namespace tutti::sim
