// tutti sim: what a call would do on a cluster nobody has at hand: which way it takes, how long
// that lasts, what limits it; and how far such times are from measured ones.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "base/whole_file.h"
#include "tools/byte_option.h"
#include "tools/collective_option.h"
#include "tools/command.h"
#include "tools/file_option.h"
#include "tools/sim_compare.h"
#include "tools/sim_export.h"
#include "tools/sim_report.h"
#include "tools/sim_run.h"
#include "tools/sim_trace.h"

namespace tutti::tools {
namespace {

constexpr const char* kFooter =
    "The cluster file is YAML; examples/clusters has some, docs/SIMULATOR.md tells all of it.\n"
    "Closed forms take milliseconds on any number of ranks; --fidelity fair plays the call event "
    "by\n"
    "event, every link shared fairly. Constants are measured on H200s, between nodes supposed.\n"
    "Exit code: 0; 2 usage, or a file with something wrong in it; 3 one that cannot be read or\n"
    "written.\n"
    "Example: tutti sim all_reduce --cluster dgx_h100x64.yaml --bytes 1G\n"
    "Example: tutti sim all_gather --cluster p5x8.yaml -b 1M -e 8G -f 4 --nodes 2,4,8 --html "
    "p5.html\n"
    "Example: tutti sim all_reduce --cluster dgx_h100x64.yaml --what-if \"node 3 port 0 -> leaf "
    "0=0.5\"\n"
    "Example: tutti sim all_reduce --cluster h200x4.yaml --bytes 1M --export goal --output "
    "ring.goal\n"
    "Example: tutti sim --trace step.jsonl --cluster dgx_h100x64.yaml --html step.html\n"
    "Example: tutti sim compare measured.csv --cluster h200x4.yaml";

struct Options {
  std::string collective = "all_reduce";
  std::string cluster;
  uint64_t bytes = 0;
  uint64_t least = 1_MiB, most = 0;
  int32_t factor = 2;
  std::vector<int32_t> nodes;
  int32_t ranks = 0;
  std::vector<std::string> algorithms;
  std::string protocol;
  int32_t channels = 0;
  int32_t root = 0;
  std::string system = "tutti", fidelity = "closed", launch = "eager";
  std::vector<std::string> whatIf;
  int32_t threads = 0;
  std::string html;
  std::string format, output = "-";
  bool json = false;
  std::string measured;
  std::string trace, groups;
};

// "LINK=FACTOR" or "RANK=FACTOR".
void addCase(SimSweep& sweep, const std::string& text) {
  const size_t at = text.rfind('=');
  try {
    if (at == std::string::npos) throw std::invalid_argument(text);
    const std::string name = text.substr(0, at);
    const double factor = std::stod(text.substr(at + 1));
    if (!std::isfinite(factor) || factor < 0) throw std::invalid_argument(text);
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      if (factor <= 0) throw std::invalid_argument(text);
      sweep.stragglers.emplace_back(std::stoi(name), factor);
    } else {
      sweep.links.emplace_back(name, factor);
    }
  } catch (const std::exception&) {
    throw CLI::ValidationError(
        "--what-if",
        fmt::format("{}: wanted LINK=FACTOR (0: failed) or RANK=FACTOR above 0", text));
  }
}

SimSweep sweepOf(const Options& options) {
  SimSweep sweep{.clusterFile = options.cluster,
                 .collective = parseCollective(options.collective),
                 .root = Rank{options.root},
                 .rankCount = options.ranks,
                 .nodeCounts = options.nodes,
                 .algorithms = options.algorithms,
                 .protocol = options.protocol,
                 .channelCount = options.channels};
  if (options.most > 0 && options.most < options.least)
    throw CLI::ValidationError("--end", "is below --begin");
  const uint64_t most = options.bytes > 0 ? options.bytes : std::max(options.most, options.least);
  for (uint64_t size = options.bytes > 0 ? options.bytes : options.least; size <= most;) {
    sweep.sizes.push_back(size);
    const auto factor = static_cast<uint64_t>(options.factor);
    if (size > most / factor) break;
    size *= factor;
  }
  if (sweep.nodeCounts.empty()) sweep.nodeCounts.push_back(0);
  if (sweep.algorithms.empty()) sweep.algorithms.emplace_back();
  for (const auto fidelity :
       {sim::Fidelity::kClosed, sim::Fidelity::kLogGp, sim::Fidelity::kFair}) {
    if (nameOf(fidelity) == options.fidelity) sweep.fidelity = fidelity;
  }
  sweep.timing.system = options.system == "nccl" ? sim::System::kNccl : sim::System::kTutti;
  sweep.timing.launch = options.launch == "graph" ? sim::Launch::kGraph : sim::Launch::kEager;
  const auto cores = static_cast<int32_t>(std::thread::hardware_concurrency());
  sweep.threadCount = options.threads > 0 ? options.threads : std::max(cores, 1);
  for (const std::string& each : options.whatIf) addCase(sweep, each);
  return sweep;
}

std::string commandLineOf(const CLI::App& command) {
  std::string line = "tutti sim";
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    for (const std::string& value : option->results())
      line += fmt::format(" {}{}", option->nonpositional() ? option->get_name() + " " : "", value);
  }
  return line;
}

void writePage(const std::string& path, const std::string& text) {
  const Status written = writeWholeFile(path, text, kForAll);
  if (!written.ok()) refuse(written, "--html");
}

// Before minutes of work.
void checkOutputs(const Options& options) {
  for (const std::string& path : {options.html, options.output}) {
    if (path.empty() || path == "-") continue;
    const Status usable = checkWritable(path);
    if (!usable.ok()) refuse(usable, "--html");
  }
}

void drawPage(const Options& options, const SimSweep& sweep, const std::vector<SimRow>& rows,
              const std::string& commandLine) {
  Result<SimDetail> detail = detailOf(sweep, rows.back());
  if (!detail.ok()) refuse(detail.status(), "--html");
  writePage(options.html, simPage(sweep, rows, detail.value(), commandLine));
}

void simulateCalls(const Options& options, const std::string& commandLine) {
  if (options.cluster.empty()) throw CLI::RequiredError("--cluster");
  checkOutputs(options);
  const SimSweep sweep = sweepOf(options);
  const bool isWatched = isatty(STDERR_FILENO) == 1;
  Result<std::vector<SimRow>> rows = runSweep(sweep, [isWatched](size_t done, size_t all) {
    if (isWatched && all > 1)
      fmt::print(stderr, "\r{} of {}{}", done, all, done == all ? "\n" : "");
  });
  if (!rows.ok()) refuse(rows.status(), "--cluster");
  if (!options.format.empty()) {
    const Status done = exportRow(sweep, rows.value().back(), options.format, options.output);
    if (!done.ok()) refuse(done, "--export");
    return;
  }
  if (options.json) {
    printSimJson(sweep, rows.value());
  } else {
    printSimTable(sweep, rows.value());
  }
  if (!options.html.empty()) drawPage(options, sweep, rows.value(), commandLine);
}

void simulateProgram(const Options& options, const std::string& commandLine) {
  if (options.cluster.empty()) throw CLI::RequiredError("--cluster");
  checkOutputs(options);
  const Rank rank{options.root};
  Result<TraceReport> report = runTrace(sweepOf(options), options.trace, options.groups);
  if (!report.ok()) refuse(report.status(), "--trace");
  if (index(rank) >= report->rankCount)
    throw CLI::ValidationError("--root", fmt::format("wanted 0 to {}", report->rankCount - 1));
  if (options.json) {
    printTraceJson(report.value(), rank);
  } else {
    printTrace(report.value());
  }
  if (!options.html.empty()) writePage(options.html, tracePage(report.value(), rank, commandLine));
}

void compareMeasured(const Options& options) {
  constexpr size_t kMostBytes = 64_MiB;
  Result<std::string> text = readFileOrPipe(options.measured, kMostBytes);
  if (!text.ok()) refuse(text.status(), "measured");
  Result<std::vector<Measured>> measured = parseMeasured(text.value(), options.measured);
  if (!measured.ok()) refuse(measured.status(), "measured");
  Result<std::vector<Compared>> compared = compare(measured.value(), options.cluster);
  if (!compared.ok()) refuse(compared.status(), "--cluster");
  if (options.json) {
    printComparedJson(compared.value());
  } else {
    printCompared(compared.value());
  }
}

void addCompare(CLI::App& command, const std::shared_ptr<Options>& options) {
  CLI::App* compare =
      command.add_subcommand("compare", "Measured times beside simulated ones, signed errors");
  compare
      ->add_option("measured", options->measured,
                   "CSV: collective,ranks,bytes,us[,system,mode,run]")
      ->required()
      ->check(readableFile);
  compare->add_option("--cluster", options->cluster, "Cluster file of the machine measured")
      ->required();
  compare->add_flag("--json", options->json, "Print JSON");
  compare->footer("Example: tutti sim compare measured.csv --cluster h200x4.yaml");
  compare->callback([options] { compareMeasured(*options); });
}

void addSizes(CLI::App& command, const std::shared_ptr<Options>& options) {
  const auto size = [&](const char* names, uint64_t& value, const char* text) {
    return command.add_option(names, value, text)->transform(someBytes);
  };
  CLI::Option* one = size("--bytes", options->bytes, "Bytes of the whole vector, with K, M or G");
  size("-b,--begin", options->least, "Sweep from (default 1M)")->excludes(one);
  size("-e,--end", options->most, "Sweep to")->excludes(one);
  command.add_option("-f,--factor", options->factor, "Sweep by this factor (default 2)")
      ->check(CLI::Range(2, 1024));
}

}  // namespace

void addSim(CLI::App& app, int&) {
  auto options = std::make_shared<Options>();  // shared by the parser and the callbacks
  CLI::App* command =
      app.add_subcommand("sim", "Simulate calls on a described cluster: choice, time, limits");
  command->add_option("collective", options->collective, "What is called (default all_reduce)");
  command->add_option("--cluster", options->cluster, "Cluster file");
  addSizes(*command, options);
  command->add_option("--nodes", options->nodes, "So many nodes of the file's first group, a list")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 18));
  command->add_option("--ranks", options->ranks, "So many ranks of the first group")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--algorithm", options->algorithms, "Take these in turn, a list")
      ->delimiter(',');
  command->add_option("--protocol", options->protocol, "LL, LL128 or Simple");
  command->add_option("--channels", options->channels, "So many channels")
      ->check(CLI::Range(1, 64));
  command->add_option("--root", options->root, "Root, or receiver (default 0)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--system", options->system, "tutti or nccl (default tutti)")
      ->check(CLI::IsMember({"tutti", "nccl"}));
  command->add_option("--fidelity", options->fidelity, "closed, loggp or fair (default closed)")
      ->check(CLI::IsMember({"closed", "loggp", "fair"}));
  command->add_option("--launch", options->launch, "eager or graph (default eager)")
      ->check(CLI::IsMember({"eager", "graph"}));
  command->add_option("--what-if", options->whatIf, "LINK=FACTOR or RANK=FACTOR, repeatable");
  command->add_option("--threads", options->threads, "Threads of a sweep (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--trace", options->trace,
                   "Instead of one call a program's steps: JSON Lines, or Chakra's PREFIX.0.et")
      ->check(readableFile);
  command->add_option("--groups", options->groups, "Which ranks Chakra's groups have: JSON Lines")
      ->needs("--trace")
      ->check(readableFile);
  command->add_option("--html", options->html, "Write a page with pictures here")
      ->check(fileOfItsOwn);
  command->add_option("--export", options->format,
                      "Instead, the last call's flows: " + exportNames());
  command->add_option("--output", options->output, "Where --export writes (default -: stdout)")
      ->transform(outputFile)
      ->needs("--export");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(kFooter);
  addCompare(*command, options);
  command->callback([options, command] {
    if (!command->get_subcommands().empty()) return;
    if (options->trace.empty()) {
      simulateCalls(*options, commandLineOf(*command));
    } else {
      simulateProgram(*options, commandLineOf(*command));
    }
  });
}

}  // namespace tutti::tools
