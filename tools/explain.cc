// tutti explain: which algorithm a call takes and why, what each would cost, the program of a rank
// step by step, and what the prover says of it. Asks the planner that the library asks.
#include <fmt/core.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/settings.h"
#include "base/units.h"
#include "comm/reading.h"
#include "comm/reduction.h"
#include "comm/relays.h"
#include "comm/tuning_file.h"
#include "net/registry.h"
#include "schedule/catalog.h"
#include "tools/byte_option.h"
#include "tools/collective_option.h"
#include "tools/command.h"
#include "tools/explain_cluster.h"
#include "tools/explain_report.h"
#include "tools/file_option.h"

namespace tutti::tools {
namespace {

constexpr const char* kFooter =
    "Collectives by nccl-tests' names or the interface's: all_reduce, AllReduce, sendrecv. "
    "Without\n"
    "one: the whole table. Bytes are of the whole vector, all ranks' blocks together. NCCL_ALGO,\n"
    "NCCL_BUFFSIZE, TUTTI_PROCESS_READ and TUTTI_TUNING_FILE are heeded; --algorithm takes "
    "NCCL_ALGO's\n"
    "place.\n"
    "With --topo: GPUs of a described machine (\"here\": this one), --nodes of it; "
    "NCCL_ALGO,\n"
    "NCCL_PROTO, NCCL_MIN_CTAS, NCCL_MAX_CTAS, NCCL_CTA_POLICY and NCCL_CROSS_NIC are heeded.\n"
    "Exit code: 0; 1 when the prover refuses the schedule; 2 usage, or a file with something "
    "wrong\n"
    "in it; 3 one that cannot be read or written.\n"
    "Example: tutti explain all_reduce -n 8 -b 64K\n"
    "Example: tutti explain all_reduce -n 8 -b 64K --hosts 2\n"
    "Example: tutti explain broadcast -n 6 --root 2 --algorithm tree --rank 5\n"
    "Example: tutti explain all_reduce -b 64M --topo dgx.xml --nodes 16";

struct Options {
  std::string collective;
  std::string algorithm;
  int32_t rankCount = 0;  // 0: not given
  uint64_t bytes = 1_MiB;
  int32_t root = 0;
  int32_t rank = 0;
  int32_t cpuCount = 0;  // 0: those of this machine
  int32_t hostCount = 1;
  std::string topology;  // a file, or kHere; "": CPU ranks
  std::string profile;
  std::string graphs;
  std::string dump;
  std::string constants = "2.29";
  int32_t nodeCount = 0;
  bool json = false;
};

constexpr const char* kHere = "here";

constexpr int32_t kUsualRanks = 4;
constexpr int32_t kMostRanks = 4096;

void checkRank(const char* option, int32_t rank, int32_t rankCount) {
  if (rank < rankCount) return;
  throw CLI::ValidationError(
      option, fmt::format("{} is out of range, ranks are 0 to {}", rank, rankCount - 1));
}

int32_t cpuCountOf(const Options& options) {
  if (options.cpuCount > 0) return options.cpuCount;
  return std::max(static_cast<int32_t>(std::thread::hardware_concurrency()), 1);
}

// What ranks would talk over, and why, as `tutti doctor` says it.
std::string networkHere(const Settings& settings) {
  const auto network = net::chooseNetwork(net::networkOptionsOf(settings));
  if (!network.ok()) return fmt::format("none: {}", network.status().message());
  return fmt::format("{} ({})", network.value().name, network.value().reason);
}

// The network that reduces, if every host has what this one has.
plan::NetworkReduction reductionHere(const Settings& settings, const ExplainedCall& call) {
  if (settings.integer("NCCL_COLLNET_ENABLE") == 0) return {};
  Result<comm::ReductionOffer> found = comm::lookForReduction(net::networkOptionsOf(settings));
  comm::ReductionOffer offer = found.ok() ? *found : comm::offerOf(found.takeStatus());
  offer.nodeThreshold = static_cast<int32_t>(settings.integer("NCCL_COLLNET_NODE_THRESHOLD"));
  std::vector<comm::ReductionRank> ranks;
  for (int32_t rank = 0; rank < call.rankCount; ++rank)
    ranks.push_back({Rank{rank}, rank * call.hostCount / call.rankCount, &offer});
  return comm::agreeOnReduction(ranks, {});
}

// The prices that ranks would choose by.
std::shared_ptr<const plan::Tuning> tuningOf(const Settings& settings) {
  Result<comm::TuningFile> file = comm::readTuningFile(settings.text("TUTTI_TUNING_FILE"));
  if (!file.ok()) throw CLI::ValidationError("environment", std::string(file.status().message()));
  return file->tuning;
}

ExplainedCall callOf(const Options& options) {
  const Settings settings = Settings::load();
  ExplainedCall call{.collective = parseCollective(options.collective),
                     .rankCount = options.rankCount == 0 ? kUsualRanks : options.rankCount,
                     .bytes = options.bytes,
                     .root = Rank{options.root},
                     .rank = Rank{options.rank},
                     .bufferBytes = static_cast<size_t>(settings.integer("NCCL_BUFFSIZE")),
                     .algorithms = settings.text("NCCL_ALGO"),
                     .cpuCount = cpuCountOf(options),
                     .hostCount = options.hostCount,
                     .readsByKernel = comm::readsByKernel(settings),
                     .readsFastByKernel = comm::readsFastByKernel(settings),
                     .processor = processorKind(),
                     .relays = comm::relaysOf(settings),
                     .overlap = static_cast<plan::Overlap>(settings.integer("TUTTI_NET_OVERLAP")),
                     .tuning = tuningOf(settings)};
  if (call.hostCount > call.rankCount)
    throw CLI::ValidationError(
        "--hosts", fmt::format("{} hosts for {} ranks", call.hostCount, call.rankCount));
  if (call.hostCount > 1) {
    call.network = networkHere(settings);
    call.inNetwork = reductionHere(settings, call);
  }
  checkRank("--root", options.root, call.rankCount);
  checkRank("--rank", options.rank, call.rankCount);
  if (options.algorithm.empty()) return call;
  if (schedule::findAlgorithm(call.collective, options.algorithm) == nullptr) {
    std::string known;
    for (const auto& algorithm : schedule::algorithms(call.collective)) {
      known += fmt::format(" {}", algorithm.name);
    }
    throw CLI::ValidationError(
        "--algorithm",
        fmt::format("{} has no {}; there are:{}", name(call.collective), options.algorithm, known));
  }
  call.algorithms = options.algorithm;
  return call;
}

int explainDescribed(const Options& options) {
  const std::string wanted = options.collective.empty() ? "all_reduce" : options.collective;
  Result<ClusterExplanation> explanation =
      explainCluster({.collective = parseCollective(wanted),
                      .bytes = options.bytes,
                      .root = Rank{options.root},
                      .rank = Rank{options.rank},
                      .topologyFile = options.topology == kHere ? "" : options.topology,
                      .profileFile = options.profile,
                      .graphFile = options.graphs,
                      .dumpFile = options.dump,
                      .nodeCount = options.nodeCount,
                      .rankCount = options.rankCount,
                      .constants = options.constants});
  if (!explanation.ok()) refuse(explanation.status());
  if (options.json) {
    printJson(explanation.value());
  } else {
    printText(explanation.value());
  }
  return explanation.value().refusal.empty() ? kExitOk : kExitFinding;
}

int explain(const Options& options) {
  if (!options.topology.empty()) return explainDescribed(options);
  if (options.collective.empty()) {
    const std::vector<int32_t> all{2, 4, 8, 16, 64};
    const Settings settings = Settings::load();
    printTable({.rankCounts = options.rankCount == 0 ? all : std::vector{options.rankCount},
                .cpuCount = cpuCountOf(options),
                .readsByKernel = comm::readsByKernel(settings),
                .readsFastByKernel = comm::readsFastByKernel(settings),
                .processor = processorKind(),
                .tuning = tuningOf(settings),
                .json = options.json});
    return kExitOk;
  }
  Result<Explanation> explanation = explainCall(callOf(options));
  if (!explanation.ok()) {
    throw CLI::ValidationError("collective", std::string(explanation.status().message()));
  }
  if (options.json) {
    printJson(explanation.value());
  } else {
    printText(explanation.value());
  }
  return explanation.value().refusal.empty() ? kExitOk : kExitFinding;
}

}  // namespace

void addExplain(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<Options>();  // shared by the parser and the callback
  CLI::App* command = app.add_subcommand(
      "explain", "Show which algorithm a call takes, why, its steps and its proof");
  command->add_option("collective", options->collective, "What is called; without: the table");
  command->add_option("-n,--ranks", options->rankCount, "Ranks (default 4; table: 2 4 8 16 64)")
      ->check(CLI::Range(1, kMostRanks));
  command->add_option("-b,--bytes", options->bytes, "Bytes, with K, M or G (default 1M)")
      ->transform(wholeBytes);
  command
      ->add_option("--cpus", options->cpuCount, "CPUs that a host's ranks share (default: as here)")
      ->check(CLI::Range(1, 1 << 16));
  command
      ->add_option("--hosts", options->hostCount,
                   "Hosts like this one that the ranks are spread over (default 1)")
      ->check(CLI::Range(1, kMostRanks));
  command->add_option("--root", options->root, "Root, or receiver (default 0)")
      ->check(CLI::Range(0, kMostRanks - 1));
  command->add_option("--algorithm", options->algorithm, "Take this one");
  command->add_option("--rank", options->rank, "Whose program to show (default 0)")
      ->check(CLI::Range(0, kMostRanks - 1));
  command->add_option("--topo", options->topology,
                      "Topology file of a machine with GPUs, or \"here\"");
  CLI::Option* needed = command->get_option("--topo");
  command->add_option("--nodes", options->nodeCount, "So many such machines (default as described)")
      ->check(CLI::Range(1, 16384))
      ->needs(needed);
  command->add_option("--profile", options->profile, "Node profile that completes the file")
      ->needs(needed);
  command->add_option("--graphs", options->graphs, "Channels from this graph file, no search")
      ->check(readableFile)
      ->needs(needed);
  command->add_option("--dump-graphs", options->dump, "Write the first host's channels here")
      ->needs(needed);
  command->add_option("--nccl", options->constants, "Whose choice model (default 2.29)")
      ->check(CLI::IsMember({"2.29", "2.12"}))
      ->needs(needed);
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(kFooter);
  command->callback([options, &exitCode] { exitCode = explain(*options); });
}

}  // namespace tutti::tools
