// The `tutti` command: finds the subcommand, turns whatever happens into an exit code (command.h).
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "base/version.h"
#include "net/foreign_calls.h"
#include "tools/command.h"
#include "tools/own_library.h"

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

// A standard stream that is closed would be the number of the next socket or pipe, which would then
// get our output. What we open here fails as a closed one does.
void holdClosedStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest number that is free, and these are asked in their order.
    if (::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) != stream) return;
  }
}

// The parser's own text says only that there must be one.
bool isKnownSubcommand(const CLI::App& app, const std::string& word) {
  if (word.starts_with('-')) return true;
  std::string names;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (each->get_name() == word) return true;
    names += (names.empty() ? "" : ", ") + each->get_name();
  }
  fmt::print(stderr, "tutti: there is no subcommand '{}'; there are: {}\n", word, names);
  return false;
}

std::string tellUsage(const CLI::App* app, const CLI::Error& error) {
  std::string command = "tutti";
  for (const CLI::App* each : app->get_subcommands()) command += " " + each->get_name();
  std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    text = "not expected:";  // the parser's own text has them from last to first
    for (const std::string& each : app->remaining(true)) text += " " + each;
  }
  return fmt::format("{}: {}\n{} --help tells more.\n", command, text, command);
}

int runCommand(int argc, char** argv) {
  int exitCode = kExitOk;
  CLI::App app("Collective communication between GPUs and CPU ranks: measure, run, look, mend.",
               "tutti");
  app.set_version_flag("--version", std::string("tutti ") + std::string(kVersion));
  app.require_subcommand(1);
  app.footer("Example: tutti doctor            Help on one subcommand: tutti doctor --help");
  app.failure_message(tellUsage);
  addSubcommands(app, exitCode);
  if (argc > 1 && !isKnownSubcommand(app, argv[1])) return kExitUsage;
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
    const char* subcommand = argc > 1 ? argv[1] : "";
    if (std::ferror(stdout) == 0) std::fprintf(stderr, "tutti %s: %s\n", subcommand, error.what());
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

int main(int argc, char** argv) {
  tutti::tools::insistOnOwnLibrary(argv);
  tutti::tools::holdClosedStreams();
  const int exitCode = tutti::tools::runAndFlush(argc, argv);
  // exit() would wait for the dynamic loader, whose lock a library that hangs may hold.
  if (tutti::net::CallThread::isAnyLeftBehind()) ::_exit(exitCode);
  return exitCode;
}
