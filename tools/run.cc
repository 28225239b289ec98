// tutti run: starts a program as N ranks on this host, as torchrun would, with this library first.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tools/command.h"
#include "tools/launch_ranks.h"

namespace tutti::tools {
namespace {

constexpr const char* kFooter =
    "Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR (127.0.0.1) and\n"
    "MASTER_PORT (a free port), and finds this libnccl.so.2 before any other. Output lines carry\n"
    "the rank. Rank 0 has standard input unless that is a terminal; the others have none.\n"
    "When a rank fails the others get SIGTERM, five seconds later SIGKILL; what a rank has "
    "started\n"
    "and left behind ends with it.\n"
    "\n"
    "Exit codes: 0 all ranks ended well; the first failed rank's code, or 128 + its signal; 2 "
    "usage;\n"
    "3 a rank could not be started; 4 time limit (--timeout).\n"
    "\n"
    "Examples: tutti run -n 4 -- python train.py --epochs 1\n"
    "          tutti run -n 2 --timeout 60 -- ./my_test";

}  // namespace

void addRun(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<LaunchOptions>();  // shared by the parser and the callback
  CLI::App* command = app.add_subcommand("run", "Start a program as several ranks");
  command->add_option("-n,--ranks", options->rankCount, "Ranks to start (default 2)")
      ->check(CLI::Range(1, 4096));
  command->add_flag_callback(
      "--no-prefix", [options] { options->prefixesLines = false; },
      "Leave the ranks' output as it is, unprefixed");
  command->add_option("--timeout", options->timeoutSeconds, "Seconds after which all ranks end")
      ->check(CLI::Range(0, 10'000'000));
  command->add_flag("--preload", options->preloads,
                    "Also put the library into LD_PRELOAD, for programs with a library path of "
                    "their own");
  command->add_option("program", options->command, "Program and its arguments, after --")
      ->required();
  command->footer(kFooter);
  command->callback([options, &exitCode] { exitCode = launchRanks(*options); });
}

}  // namespace tutti::tools
