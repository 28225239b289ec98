// The `tutti` command: finds the subcommand, turns whatever happens into an exit code (command.h).
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <exception>

#include "base/version.h"
#include "tools/command.h"

namespace tutti::tools {
namespace {

// CMake leaves a subcommand out while the build lacks what it needs (cmake/TuttiTools.cmake).
void addSubcommands(CLI::App& app, int& exitCode) {
#if TUTTI_HAS_PERF
  addPerf(app, exitCode);
#endif
#if TUTTI_HAS_RUN
  addRun(app, exitCode);
#endif
#if TUTTI_HAS_EXPLAIN
  addExplain(app, exitCode);
#endif
#if TUTTI_HAS_SIM
  addSim(app, exitCode);
#endif
#if TUTTI_HAS_TOPO
  addTopo(app, exitCode);
#endif
#if TUTTI_HAS_DOCTOR
  addDoctor(app, exitCode);
#endif
#if TUTTI_HAS_SETTINGS
  addSettings(app, exitCode);
#endif
#if TUTTI_HAS_TUNE
  addTune(app, exitCode);
#endif
#if TUTTI_HAS_TRACE
  addTrace(app, exitCode);
#endif
#if TUTTI_HAS_WHY
  addWhy(app, exitCode);
#endif
#if TUTTI_HAS_VERSION
  addVersion(app, exitCode);
#endif
  addCompletion(app, exitCode);
  addManual(app, exitCode);
}

int runCommand(int argc, char** argv) {
  int exitCode = kExitOk;
  CLI::App app("Collective communication between GPUs and CPU ranks: measure, run, look, mend.",
               "tutti");
  app.set_version_flag("--version", std::string("tutti ") + std::string(kVersion));
  app.require_subcommand(1);
  app.footer("Example: tutti doctor            Help on one subcommand: tutti doctor --help");
  addSubcommands(app, exitCode);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return exitCode;
}

int runAndFlush(int argc, char** argv) {
  int exitCode = kExitEnvironment;
  try {
    exitCode = runCommand(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tutti: %s\n", error.what());
  }
  // A full disk or a closed pipe must not look like success.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::perror("tutti: cannot write the output");
    return kExitEnvironment;
  }
  return exitCode;
}

}  // namespace
}  // namespace tutti::tools

int main(int argc, char** argv) { return tutti::tools::runAndFlush(argc, argv); }
