// tutti run: starts a program as N ranks on this host, as torchrun would, or on others by ssh, with
// this library first.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "base/whole_file.h"
#include "tools/allocation.h"
#include "tools/command.h"
#include "tools/file_option.h"
#include "tools/host_list.h"
#include "tools/launch_ranks.h"
#include "tools/launcher_env.h"

namespace tutti::tools {
namespace {

constexpr const char* kFooter =
    "Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR (127.0.0.1) and\n"
    "MASTER_PORT (a free port), and finds this libnccl.so.2 before any other. Output lines carry\n"
    "the rank. Rank 0 has standard input unless that is a terminal; the others have none.\n"
    "When a rank fails the others get SIGTERM, five seconds later SIGKILL; what a rank has "
    "started\n"
    "and left behind ends with it. Where a signal killed one, what tutti why says is told too,\n"
    "also of ranks that all died at once.\n"
    "\n"
    "Without these the hosts are those of the allocation, where Slurm (SLURM_JOB_NODELIST) or PBS\n"
    "(PBS_NODEFILE) has given other ones than this; not inside srun or mpirun, nor with --local.\n"
    "\n"
    "With --hosts or --hostfile each rank is started by ssh, which must ask for no password, in "
    "the\n"
    "folder of this name there, and finds the library where it is here. MASTER_ADDR is the first\n"
    "host, MASTER_PORT --port. Variables NCCL_* and TUTTI_* go along, others with -x; so does a\n"
    "secret of the job (TUTTI_SECRET_FILE), unless that is set. Ranks have no standard input "
    "there.\n"
    "\n"
    "Exit codes: 0 all ranks ended well; the first failed rank's code, or 128 + its signal; 2 "
    "usage;\n"
    "3 the file of hosts cannot be read, a rank not be started, or what they print not be "
    "written;\n"
    "4 time limit (--timeout).\n"
    "\n"
    "Examples: tutti run -n 4 -- python train.py --epochs 1\n"
    "          tutti run -n 2 --timeout 60 -- ./my_test\n"
    "          tutti run --hosts node1:4,node2:4 -- python train.py\n"
    "          tutti run --hostfile hosts.txt -x PYTHONPATH -- tutti perf all_reduce";

// Where no option names any.
std::vector<HostSlots> allocatedHosts() {
  std::array<char, 256> own{};
  ::gethostname(own.data(), own.size() - 1);
  Result<Allocation> allocation = readAllocation(processEnvironment(), own.data());
  if (!allocation.ok()) refuse(allocation.status(), "hosts of the allocation (--local: none)");
  if (!allocation->hosts.empty()) {
    fmt::print(stderr, "tutti run: on {} host{} of {}; --local: on this one\n",
               allocation->hosts.size(), allocation->hosts.size() == 1 ? "" : "s",
               allocation->source);
  }
  return std::move(allocation->hosts);
}

std::vector<HostSlots> hostsOf(const char* option, Result<std::vector<HostSlots>> hosts) {
  if (!hosts.ok()) refuse(hosts.status(), option);
  return std::move(hosts).value();
}

}  // namespace

void addRun(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<LaunchOptions>();  // shared by the parser and the callback
  CLI::App* command = app.add_subcommand("run", "Start a program as several ranks");
  command
      ->add_option("-n,--ranks", options->rankCount,
                   "Ranks to start (default 2, or all slots of the hosts)")
      ->check(CLI::Range(1, 4096));
  command->add_flag_callback(
      "--no-prefix", [options] { options->prefixesLines = false; },
      "Leave the ranks' output as it is, unprefixed");
  command->add_option("--timeout", options->timeoutSeconds, "Seconds after which all ranks end")
      ->check(CLI::Range(0, 10'000'000));
  command->add_flag("--preload", options->preloads,
                    "Also put the library into LD_PRELOAD, for programs with a library path of "
                    "their own");
  auto* hosts = command->add_option_function<std::string>(
      "--hosts",
      [options](const std::string& list) { options->hosts = hostsOf("--hosts", parseHosts(list)); },
      "Hosts and how many ranks each takes: node1:4,node2:4");
  auto* file = command
                   ->add_option_function<std::string>(
                       "--hostfile",
                       [options](const std::string& path) {
                         constexpr size_t kMostBytes = 16_MiB;
                         const Result<std::string> text = readFileOrPipe(path, kMostBytes);
                         if (!text.ok()) refuse(text.status(), "--hostfile");
                         options->hosts = hostsOf("--hostfile", parseHostFile(text.value(), path));
                       },
                       "The same, a host a line: node1:4, node1 slots=4 or node1 4")
                   ->check(readableFile)
                   ->excludes(hosts);
  auto isLocal = std::make_shared<bool>(false);  // shared as the options are
  command->add_flag("--local", *isLocal, "On this host, whatever a batch system has allocated")
      ->excludes(hosts)
      ->excludes(file);
  command->add_option("--ssh", options->ssh, "Program that reaches the hosts (default ssh)");
  command->add_option("--port", options->port, "MASTER_PORT on the first host (default 29500)")
      ->check(CLI::Range(1, 65535));
  command
      ->add_option("-x", options->forwards,
                   "Variable to hand on to other hosts: NAME or NAME=VALUE")
      ->allow_extra_args(false)
      ->check([](const std::string& text) {
        const std::string name = text.substr(0, text.find('='));
        const bool isName = !name.empty() && std::ranges::all_of(name, [](unsigned char letter) {
          return std::isalnum(letter) != 0 || letter == '_';
        });
        return isName ? "" : "'" + text + "' is not NAME or NAME=VALUE";
      });
  command->add_option("program", options->command, "Program and its arguments, after --")
      ->required();
  command->footer(kFooter);
  command->callback([options, isLocal, &exitCode] {
    if (options->hosts.empty() && !*isLocal) options->hosts = allocatedHosts();
    exitCode = launchRanks(*options);
  });
}

}  // namespace tutti::tools
