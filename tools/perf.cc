// tutti perf: how fast and how right a collective is; nccl-tests' table from ranks it starts
// itself or finds itself among.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <string>

#include "tools/byte_size.h"
#include "tools/command.h"
#include "tools/file_option.h"
#include "tools/perf_launch.h"
#include "tools/perf_options.h"

namespace tutti::tools {
namespace {

constexpr const char* kFooter =
    "Options are those of nccl-tests where it has them, with one difference: -n is the number of\n"
    "ranks, and iterations are --iters. Ranks are processes of this host; under mpirun, srun,\n"
    "torchrun or tutti run each process is a rank (with -t: as many), unless -n is given.\n"
    "There the ranks of one host meet by a private file in $XDG_RUNTIME_DIR or /tmp that goes "
    "away\n"
    "once all have come; ranks on several hosts need NCCL_COMM_ID.\n"
    "\n"
    "Sizes are of the whole vector: what a rank reduces or broadcasts, or what is gathered,\n"
    "scattered or exchanged in total. Time is that of one operation.\n"
    "\n"
    "Exit codes: 0 all right; 1 a wrong element, or slower than --min-bw (or than 0.9 times\n"
    "NCCL_TESTS_MIN_BW); 2 usage; 3 a rank failed or died; 4 time limit (-T).\n"
    "\n"
    "Examples: tutti perf all_reduce -n 4 -b 8 -e 128M -f 2\n"
    "          tutti perf all_reduce -t 4 -o all -d all -b 1K -e 1K\n"
    "          tutti perf broadcast -n 8 -r all -b 4M -e 4M --json broadcast.json\n"
    "          tutti perf all_gather -b 8 -e 64M -f 4 --html all_gather.html\n"
    "          mpirun -np 4 tutti perf alltoall -b 8 -e 1M -f 4";

// Turns one of perf_options.h's parsers into a check of the command line: its message is the error.
template <typename T>
auto parsedBy(Result<T> (*parse)(std::string_view), T& target) {
  return [parse, &target](const std::string& text) {
    Result<T> result = parse(text);
    if (!result.ok()) throw CLI::ValidationError(std::string(result.status().message()));
    target = std::move(result).value();
  };
}

void addSizes(CLI::App& command, PerfOptions& options) {
  command.add_option_function<std::string>("-b,--minbytes", parsedBy(parseBytes, options.minBytes),
                                           "First size, with K, M or G (default 32M)");
  command.add_option_function<std::string>("-e,--maxbytes", parsedBy(parseBytes, options.maxBytes),
                                           "Last size (default 32M)");
  command.add_option_function<std::string>("-i,--stepbytes",
                                           parsedBy(parseBytes, options.stepBytes),
                                           "Bytes between sizes (default 1M)");
  command.add_option("-f,--stepfactor", options.stepFactor, "Factor between sizes, instead of -i")
      ->check(CLI::Range(2, 1 << 20));
}

void addWhat(CLI::App& command, PerfOptions& options) {
  command
      .add_option_function<std::string>(
          "collective", parsedBy(parseOperation, options.operation),
          "all_reduce, all_gather, reduce_scatter, broadcast, reduce, alltoall, gather, scatter or "
          "sendrecv")
      ->required();
  command
      .add_option("-n,--ranks", options.processes,
                  "Ranks, a process each (default 2, or 1 with -t)")
      ->check(CLI::Range(1, 4096));
  command
      .add_option("-t,--threads,--nthreads", options.threads, "Ranks in each process (default 1)")
      ->check(CLI::Range(1, 1024));
  command.add_option_function<std::string>("-o,--op", parsedBy(parseOps, options.ops),
                                           "sum, prod, max, min, avg, mulsum, a list, or all");
  command.add_option_function<std::string>(
      "-d,--datatype", parsedBy(parseTypes, options.types),
      "float, half, bfloat16, f8e4m3, int32 ..., a list, or all");
  command.add_option_function<std::string>("-r,--root", parsedBy(parseRoot, options.root),
                                           "Root rank, or all (default 0)");
}

// What the command line gives as the numbers of nccl-tests.
struct Numbers {
  int blocking = 0;
  int timeChoice = 1;
  int registration = 0;
  std::optional<int> peerRegistration = {};
};

void addHow(CLI::App& command, PerfOptions& options, Numbers& numbers) {
  command
      .add_option("--iters", options.iterations,
                  "Timed iterations; 0 (default): as many as fill --min-time")
      ->check(CLI::Range(0, 1'000'000'000));
  command.add_option("--min-time", options.minSeconds, "Seconds to fill each time (default 0.1)")
      ->check(CLI::Range(0.0, 3600.0));
  command.add_option("-w,--warmup_iters", options.warmups, "Iterations before timing (default 5)")
      ->check(CLI::Range(0, 1'000'000));
  command.add_option("-m,--agg_iters", options.aggregate, "Operations in one group (default 1)")
      ->check(CLI::Range(1, 100'000));
  command.add_option("-N,--run_cycles", options.cycles, "Runs of the whole table; 0: endless")
      ->check(CLI::Range(0, 1'000'000'000));
  command.add_option("-c,--check", options.checks, "Checked runs of each row (default 1); 0: none")
      ->check(CLI::Range(0, 1'000'000));
  command
      .add_option("-z,--blocking", numbers.blocking,
                  "1: wait and barrier after each operation; 2: no barrier before timing; 3: wait "
                  "and barrier after each iteration (default 0)")
      ->check(CLI::Range(0, 3));
  command
      .add_option("-a,--average", numbers.timeChoice,
                  "Time of: 0 rank 0, 1 the ranks' average (default), 2 fastest, 3 slowest rank")
      ->check(CLI::Range(0, 3));
  command
      .add_option("-R,--local_register", numbers.registration,
                  "Buffers: 0 ordinary memory (default), 1 ncclMemAlloc and registered, 2 "
                  "ncclMemAlloc and in a window")
      ->check(CLI::Range(0, 2));
  command.add_option("-u,--unalign", options.misalignElements, "Elements to misalign buffers by")
      ->check(CLI::Range(0, 1024));
  command
      .add_option("-g,--gpus", options.gpus,
                  "Rank r uses GPU r modulo this; 0: all there are (default); -1: CPU ranks")
      ->check(CLI::Range(-1, 1024));
  command
      .add_option("-G,--cudagraph", options.graphLaunches,
                  "On GPUs: time this many replays of a graph of --iters calls (default 20)")
      ->check(CLI::Range(0, 1'000'000));
  command
      .add_option("--lib", options.peerLibrary,
                  "Another libnccl.so.2, timed in turn with this one; its times and the ratio "
                  "(above 1: this one is faster) are two more columns")
      ->check(readableFile);
  command
      .add_option("--lib-register", numbers.peerRegistration,
                  "-R of the buffers of --lib's library (default: as -R)")
      ->check(CLI::Range(0, 2));
  command.add_flag("--stream", options.hostStream, "Use a host stream instead of the NULL stream");
  command.add_flag_callback(
      "--no-pin", [&options] { options.pin = false; },
      "Let ranks move between cores even if each has one");
  command.add_option("--seed", options.seed, "Seed of the checked values (default 1)");
}

void addOutput(CLI::App& command, PerfOptions& options) {
  command.add_option("-T,--timeout", options.timeoutSeconds, "Seconds after which to give up")
      ->check(CLI::Range(0, 1'000'000));
  command
      .add_option_function<double>(
          "--min-bw", [&options](const double& value) { options.minBandwidth = value; },
          "Fail below this average bus bandwidth, GB/s")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("-J,--json", options.jsonPath,
                  "Write JSON to a file, or to standard output (-) instead of the table")
      ->transform(outputFile);
  command
      .add_option("--csv", options.csvPath,
                  "Write CSV to a file, or to standard output (-) instead of the table")
      ->transform(outputFile);
  command.add_option("--html", options.htmlPath, "Write a page with plots to a file")
      ->check(fileOfItsOwn);
}

}  // namespace

void addPerf(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<PerfOptions>();  // shared by the parser and the callback
  auto numbers = std::make_shared<Numbers>();      // likewise
  CLI::App* command = app.add_subcommand("perf", "Measure and check a collective");
  addWhat(*command, *options);
  addSizes(*command, *options);
  addHow(*command, *options, *numbers);
  addOutput(*command, *options);
  command->footer(kFooter);
  command->callback([options, numbers, &exitCode] {
    if (options->jsonPath == "-" && options->csvPath == "-") {
      throw CLI::ValidationError("--json - and --csv - cannot both have standard output");
    }
    options->blocking = static_cast<Blocking>(numbers->blocking);
    options->timeChoice = static_cast<TimeChoice>(numbers->timeChoice);
    options->registration = static_cast<Registration>(numbers->registration);
    if (numbers->peerRegistration)
      options->peerRegistration = static_cast<Registration>(*numbers->peerRegistration);
    exitCode = launchPerf(*options);
  });
}

}  // namespace tutti::tools
