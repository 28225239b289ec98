#include "tools/sim_run.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "sim/read_cluster.h"

namespace tutti::tools {
namespace {

constexpr size_t kMostLoads = 24;
// What a time line is drawn of: longer calls are drawn of a shorter one.
constexpr uint64_t kMostTimelineBytes = 64 << 20;
constexpr uint64_t kMostTimelineMessages = 100'000;  // of which it takes 2 s

// A cluster with its graphs, shared by the cells of a node count.
struct Prepared {
  sim::Cluster cluster;
  sim::VirtualPlan plan;
};

std::string limitOf(const sim::Cluster& cluster, const sim::Estimate& estimate) {
  if (estimate.latencyUs + estimate.fixedUs > estimate.bytesUs) return "latency";
  return estimate.isLinkBound ? cluster.nameOfLink(estimate.busiestLink) : "the ranks";
}

class Cells {
 public:
  Cells(const SimSweep& sweep, const TellProgress& tell) : sweep_(sweep), tell_(tell) {}

  Result<std::vector<SimRow>> run() {
    for (const int32_t nodes : sweep_.nodeCounts) {
      for (const std::string& algorithm : sweep_.algorithms) {
        for (const uint64_t bytes : sweep_.sizes) cells_.push_back({nodes, algorithm, bytes});
      }
    }
    rows_.resize(cells_.size());
    // Closed forms of a node count share their loads, so they stay together.
    const size_t grain = sweep_.fidelity == sim::Fidelity::kClosed
                             ? sweep_.sizes.size() * sweep_.algorithms.size()
                             : 1;
    std::vector<std::thread> threads;
    const size_t jobs = (cells_.size() + grain - 1) / grain;
    const size_t count = std::clamp<size_t>(static_cast<size_t>(sweep_.threadCount), 1, jobs);
    for (size_t i = 1; i < count; ++i) threads.emplace_back([this, grain] { work(grain); });
    work(grain);
    for (std::thread& thread : threads) thread.join();
    if (!failure_.ok()) return std::move(failure_);
    return std::move(rows_);
  }

 private:
  struct Cell {
    int32_t nodes;
    std::string algorithm;
    uint64_t bytes;
  };

  void work(size_t grain) {
    while (true) {
      const size_t first = next_.fetch_add(grain, std::memory_order_relaxed);
      if (first >= cells_.size()) return;
      Status status = runJob(first, std::min(first + grain, cells_.size()));
      if (status.ok()) continue;
      const std::lock_guard lock(mutex_);
      if (failure_.ok()) failure_ = std::move(status);
      next_.store(cells_.size(), std::memory_order_relaxed);
    }
  }

  Result<std::shared_ptr<const Prepared>> prepare(int32_t nodes) {
    const std::lock_guard lock(mutex_);
    if (last_ != nullptr && lastNodes_ == nodes) return last_;
    auto made = std::make_shared<Prepared>();
    TUTTI_TRY_ASSIGN(made->cluster, readCluster(sweep_, nodes));
    TUTTI_TRY_ASSIGN(made->plan, sim::planVirtual(made->cluster));
    last_ = std::move(made);  // shared with the threads that work on its cells
    lastNodes_ = nodes;
    return last_;
  }

  Status runJob(size_t first, size_t end) {
    TUTTI_TRY_ASSIGN(const std::shared_ptr<const Prepared> prepared, prepare(cells_[first].nodes));
    sim::Estimator estimator(prepared->cluster, prepared->plan);
    for (size_t i = first; i < end; ++i) {
      TUTTI_TRY(runCell(*prepared, estimator, i));
      const std::lock_guard lock(mutex_);
      tell_(++done_, cells_.size());
    }
    return {};
  }

  Status runCell(const Prepared& prepared, sim::Estimator& estimator, size_t number) {
    const Cell& cell = cells_[number];
    const sim::Cluster& cluster = prepared.cluster;
    SimRow& row = rows_[number];
    row.nodeCount = cluster.nodeCount();
    row.rankCount = cluster.rankCount();
    row.bytes = cell.bytes;
    const sim::SimCall call = callOf(sweep_, cell.bytes, row.rankCount);
    TUTTI_TRY_ASSIGN(row.choices, sim::chooseFor(estimator, call, sweep_.timing,
                                                 {.algorithm = cell.algorithm,
                                                  .protocol = sweep_.protocol,
                                                  .channelCount = sweep_.channelCount}));
    const sim::Choices::Way& way = sim::playedOf(row.choices);
    row.us = way.estimate.us;
    row.limit = limitOf(cluster, way.estimate);
    if (sweep_.fidelity != sim::Fidelity::kClosed) {
      TUTTI_TRY_ASSIGN(const sim::Traffic traffic,
                       sim::Traffic::make(cluster, prepared.plan, call, *way.method));
      TUTTI_TRY_ASSIGN(const sim::SimResult result,
                       sim::simulate(traffic, {.fidelity = sweep_.fidelity,
                                               .timing = sweep_.timing,
                                               .prices = way.estimate.prices}));
      row.us = result.us;
      row.events = result.events;
      row.laneClasses = result.classes.lanes.size();
      row.laneCount = result.classes.laneCount;
    }
    row.busGb = sim::busGbPerSecond(sweep_.collective, row.rankCount, cell.bytes, row.us);
    return {};
  }

  const SimSweep& sweep_;
  const TellProgress& tell_;
  std::vector<Cell> cells_;
  std::vector<SimRow> rows_;  // each written by the thread that has its cell
  std::atomic<size_t> next_{0};
  std::mutex mutex_;  // guards what follows
  size_t done_ = 0;
  std::shared_ptr<const Prepared> last_;
  int32_t lastNodes_ = 0;
  Status failure_;
};

}  // namespace

sim::SimCall callOf(const SimSweep& sweep, uint64_t bytes, int32_t rankCount) {
  return {.collective = sweep.collective,
          .type = sweep.type,
          .bytes = bytes,
          .root = sweep.root,
          .sender = Rank{rankCount > 1 ? (index(sweep.root) + 1) % rankCount : 0}};
}

Result<sim::Cluster> readCluster(const SimSweep& sweep, int32_t nodeCount) {
  TUTTI_TRY_ASSIGN(sim::Cluster cluster, sim::readCluster({.source = sweep.clusterFile,
                                                           .nodeCount = nodeCount,
                                                           .rankCount = sweep.rankCount,
                                                           .mayBePipe = true}));
  for (const auto& [link, factor] : sweep.links) TUTTI_TRY(cluster.scaleLink(link, factor));
  for (const auto& [rank, factor] : sweep.stragglers) TUTTI_TRY(cluster.slowRank(rank, factor));
  return cluster;
}

Result<std::vector<SimRow>> runSweep(const SimSweep& sweep, const TellProgress& tell) {
  return Cells(sweep, tell).run();
}

Result<SimDetail> detailOf(const SimSweep& sweep, const SimRow& row) {
  TUTTI_TRY_ASSIGN(const sim::Cluster cluster, readCluster(sweep, row.nodeCount));
  TUTTI_TRY_ASSIGN(const sim::VirtualPlan plan, sim::planVirtual(cluster));
  const sim::Choices::Way& way = sim::playedOf(row.choices);
  const sim::SimCall call = callOf(sweep, row.bytes, cluster.rankCount());
  TUTTI_TRY_ASSIGN(const sim::Traffic traffic,
                   sim::Traffic::make(cluster, plan, call, *way.method));
  TUTTI_TRY_ASSIGN(const sim::LinkLoads loads, sim::loadsOf(traffic));
  SimDetail detail{.clusterName = cluster.name(),
                   .way = way.name,
                   .bytes = row.bytes,
                   .rankCount = row.rankCount,
                   .loads = {},
                   .linkCount = 0,
                   .rank = sweep.root,
                   .drawnMessages = 0,
                   .timeline = {},
                   .us = 0};
  constexpr double kBytesPerUs = 1e3;
  std::vector<std::pair<double, int32_t>> busy;
  for (int32_t link = 0; link < cluster.linkCount(); ++link) {
    const double bytes = loads.wireBytes[static_cast<size_t>(link)];
    if (bytes > 0) busy.emplace_back(bytes / (cluster.gbPerSecond(link) * kBytesPerUs), link);
  }
  detail.linkCount = busy.size();
  std::ranges::stable_sort(busy, std::greater<>(), [](const auto& each) { return each.first; });
  for (size_t i = 0; i < std::min(kMostLoads, busy.size()); ++i) {
    const int32_t link = busy[i].second;
    detail.loads.push_back(
        {cluster.nameOfLink(link), loads.wireBytes[static_cast<size_t>(link)], busy[i].first});
  }
  sim::SimCall drawn = call;
  drawn.bytes = std::min(call.bytes, kMostTimelineBytes);
  TUTTI_TRY_ASSIGN(const sim::Traffic shorter,
                   sim::Traffic::make(cluster, plan, drawn, *way.method));
  TUTTI_TRY_ASSIGN(const sim::LinkLoads drawnLoads, sim::loadsOf(shorter));
  detail.drawnMessages = drawnLoads.messages;
  if (detail.drawnMessages > kMostTimelineMessages) return detail;
  TUTTI_TRY_ASSIGN(sim::SimResult result, sim::simulate(shorter, {.timing = sweep.timing,
                                                                  .prices = way.estimate.prices,
                                                                  .timelineRank = sweep.root}));
  detail.timeline = std::move(result.timeline);
  detail.us = result.us;
  return detail;
}

}  // namespace tutti::tools
