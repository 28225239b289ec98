#include "timing.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <functional>

#include "nccl_peer.h"
#include "wire/bus_factor.h"

namespace tutti::bench {
namespace {

constexpr int kCallsPerGraph = 20;
constexpr int kRounds = 7;

// One cell of the table: an operation of one size on one library.
struct Cell {
  Collective collective;
  uint64_t bytes;  // of the whole vector
  DataType type;
};

bool dividesByRanks(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter: return true;
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSend:
    case Collective::kRecv: return false;
  }
  return false;
}

Job jobOf(const Cell& cell, int ranks, const DeviceBuffer& in, const DeviceBuffer& out) {
  const uint64_t elements = cell.bytes / sizeOf(cell.type);
  return {
      .collective = cell.collective,
      .type = cell.type,
      .count = dividesByRanks(cell.collective) ? elements / static_cast<uint64_t>(ranks) : elements,
      .input = in.at(0),
      .output = out.at(0)};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Event {
 public:
  Event() { TUTTI_CU(cuEventCreate(&event_, CU_EVENT_DEFAULT)); }
  ~Event() { cuEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(CUstream stream) { TUTTI_CU(cuEventRecord(event_, stream)); }
  double microsecondsSince(const Event& start) const {
    float ms = 0;
    TUTTI_CU(cuEventElapsedTime(&ms, start.event_, event_));
    return 1000.0 * ms;
  }

 private:
  CUevent event_ = nullptr;
};

// Times calls on one rank; all ranks do the same at the same time.
class Stopwatch {
 public:
  using Call = std::function<void()>;
  explicit Stopwatch(Member& member) : member_(member) {}

  double once(const Call& call, int repeats) {
    member_.synchronize();
    member_.team().meet();
    start_.record(member_.stream());
    for (int i = 0; i < repeats; ++i) call();
    stop_.record(member_.stream());
    member_.synchronize();
    return stop_.microsecondsSince(start_) / repeats;
  }

 private:
  Member& member_;
  Event start_;
  Event stop_;
};

class CapturedCalls {
 public:
  CapturedCalls(Member& member, const Stopwatch::Call& call) : member_(member) {
    TUTTI_CU(cuStreamBeginCapture(member.stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < kCallsPerGraph; ++i) call();
    TUTTI_CU(cuStreamEndCapture(member.stream(), &graph_));
    TUTTI_CU(cuGraphInstantiate(&exec_, graph_, 0));
    TUTTI_CU(cuGraphUpload(exec_, member.stream()));
  }
  ~CapturedCalls() {
    member_.synchronize();
    cuGraphExecDestroy(exec_);
    cuGraphDestroy(graph_);
  }
  CapturedCalls(const CapturedCalls&) = delete;
  CapturedCalls& operator=(const CapturedCalls&) = delete;
  void launch() { TUTTI_CU(cuGraphLaunch(exec_, member_.stream())); }

 private:
  Member& member_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

struct Times {
  double eager = 0;  // µs
  double graph = 0;
};

// The libraries in turn, round by round; the slowest rank counts, then the median of rounds.
class CellTimer {
 public:
  CellTimer(Team& team, const TimingOptions& options, const Cell& cell)
      : team_(team), options_(options), cell_(cell) {
    samples_.resize(4);
    slowest_.resize(static_cast<size_t>(team.ranks()));
  }

  void run(Member& member, const std::vector<Stopwatch::Call>& libraries) {
    Stopwatch watch(member);
    for (size_t i = 0; i < libraries.size(); ++i) {
      const double warm = agree(member, watch.once(libraries[i], 2));
      const double one = agree(member, watch.once(libraries[i], warm > 500 ? 1 : 5));
      const double budget = options_.secondsPerCell * 1e6 / kRounds;
      const int repeats = std::clamp(static_cast<int>(budget / std::max(one, 1.0)), 2, 200);
      if (member.rank() == 0) repeats_[i] = repeats;
      team_.meet();
    }
    for (int round = 0; round < kRounds && options_.eager; ++round) {
      for (size_t i = 0; i < libraries.size(); ++i) {
        keep(member, i, agree(member, watch.once(libraries[i], repeats_[i])));
      }
    }
    if (!options_.graph || cell_.bytes > (uint64_t{64} << 20)) return;
    for (size_t i = 0; i < libraries.size(); ++i) {
      CapturedCalls captured(member, libraries[i]);
      const int repeats = std::max(1, repeats_[i] / kCallsPerGraph);
      watch.once([&] { captured.launch(); }, 1);
      for (int round = 0; round < kRounds; ++round) {
        const double time = watch.once([&] { captured.launch(); }, repeats) / kCallsPerGraph;
        keep(member, 2 + i, agree(member, time));
      }
    }
  }

  Times times(size_t library) const {
    Times times;
    if (!samples_[library].empty()) times.eager = median(samples_[library]);
    if (!samples_[2 + library].empty()) times.graph = median(samples_[2 + library]);
    return times;
  }

 private:
  double agree(Member& member, double mine) {
    slowest_[static_cast<size_t>(member.rank())] = mine;
    team_.meet();
    const double slowest = *std::max_element(slowest_.begin(), slowest_.end());
    team_.meet();
    return slowest;
  }
  void keep(const Member& member, size_t which, double value) {
    if (member.rank() == 0) samples_[which].push_back(value);
  }

  Team& team_;
  const TimingOptions& options_;
  const Cell cell_;
  std::vector<std::vector<double>> samples_;  // eager of both libraries, graph of both
  std::vector<double> slowest_;
  int repeats_[2] = {1, 1};
};

struct Row {
  Cell cell;
  Times ours;
  Times theirs;
};

void printRow(FILE* json, const Team& team, const TimingOptions& options, const Row& row) {
  const auto& [cell, ours, theirs] = row;
  const double bus = static_cast<double>(cell.bytes) *
                     busFactor(cell.collective, team.options().ranks) /
                     (ours.eager > 0 ? ours.eager : ours.graph) / 1e3;
  const auto ratio = [](double theirTime, double ourTime) {
    return ourTime > 0 && theirTime > 0 ? theirTime / ourTime : 0.0;
  };
  const std::string_view name = cell.collective == Collective::kSend ? std::string_view("SendRecv")
                                                                     : tutti::name(cell.collective);
  std::printf("%-13s %d %10" PRIu64
              "  eager %8.1f %8.1f %5.2f  graph %8.1f %8.1f %5.2f  %6.1f GB/s %s\n",
              name.data(), team.options().ranks, cell.bytes, ours.eager, theirs.eager,
              ratio(theirs.eager, ours.eager), ours.graph, theirs.graph,
              ratio(theirs.graph, ours.graph), bus, options.label.c_str());
  std::fflush(stdout);
  if (json == nullptr) return;
  std::fprintf(json,
               "{\"op\":\"%s\",\"ranks\":%d,\"gpus\":%d,\"bytes\":%" PRIu64
               ",\"type\":\"%s\",\"eager\":%.2f,\"graph\":%.2f,\"nccl_eager\":%.2f,"
               "\"nccl_graph\":%.2f,\"label\":\"%s\"}\n",
               name.data(), team.options().ranks, team.options().gpus, cell.bytes,
               tutti::name(cell.type).data(), ours.eager, ours.graph, theirs.eager, theirs.graph,
               options.label.c_str());
}

}  // namespace

void timeAll(Team& team, const TimingOptions& options) {
  std::unique_ptr<NcclPeer> peer;
  if (!options.nccl.empty() && team.options().gpus >= team.ranks()) {
    peer = NcclPeer::open(team, options.nccl);
    if (peer) std::printf("peer library: version %d\n", peer->version());
  }
  FILE* json = options.output.empty() ? nullptr : std::fopen(options.output.c_str(), "a");
  const uint64_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  std::vector<std::unique_ptr<DeviceBuffer>> inputs(static_cast<size_t>(team.ranks()));
  std::vector<std::unique_ptr<DeviceBuffer>> outputs(inputs.size());
  team.run([&](Member& member) {
    const auto rank = static_cast<size_t>(member.rank());
    inputs[rank] = std::make_unique<DeviceBuffer>(largest);
    outputs[rank] = std::make_unique<DeviceBuffer>(largest);
    // Bytes that are neither zero nor all alike; as floats they are small numbers.
    std::vector<uint32_t> pattern(size_t{1} << 20);
    uint32_t state = 12345 + static_cast<uint32_t>(rank);
    for (uint32_t& word : pattern) {
      state = state * 1664525 + 1013904223;
      word = 0x3c003c00 ^ (state >> 9 & 0x80ff80ff);
    }
    for (size_t at = 0; at < largest; at += pattern.size() * 4) {
      TUTTI_CU(cuMemcpyHtoD(inputs[rank]->address() + at, pattern.data(),
                            std::min(largest - at, pattern.size() * 4)));
    }
    TUTTI_CU(cuCtxSynchronize());
  });
  for (const Collective collective : options.collectives) {
    for (const uint64_t bytes : options.sizes) {
      const Cell cell{collective, bytes, options.type};
      CellTimer timer(team, options, cell);
      team.run([&](Member& member) {
        const auto rank = static_cast<size_t>(member.rank());
        const Job job = jobOf(cell, team.ranks(), *inputs[rank], *outputs[rank]);
        std::vector<Stopwatch::Call> libraries;
        const int next = (member.rank() + 1) % team.ranks();
        const int previous = (member.rank() + team.ranks() - 1) % team.ranks();
        const Member::Transfer transfers[] = {{true, next, inputs[rank]->at(0), bytes},
                                              {false, previous, outputs[rank]->at(0), bytes}};
        if (collective == Collective::kSend) {
          libraries.push_back([&] { member.transfer(transfers); });
          if (peer) {
            libraries.push_back(
                [&] { peer->exchange(member, inputs[rank]->at(0), outputs[rank]->at(0), bytes); });
          }
        } else {
          libraries.push_back([&] { member.launch(job); });
          if (peer) libraries.push_back([&] { peer->launch(member, job); });
        }
        timer.run(member, libraries);
      });
      printRow(json, team, options, {cell, timer.times(0), timer.times(1)});
      if (team.member(0).error().fault != 0) {
        std::printf("fault %u on rank 0, awaiting %d\n", team.member(0).error().fault,
                    team.member(0).error().peer);
        team.reset();
      }
    }
  }
  if (json != nullptr) std::fclose(json);
  std::fflush(stdout);
}

}  // namespace tutti::bench
