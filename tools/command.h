// The subcommands of `tutti`, one file each. A file offers one function that adds its subcommand to
// the program, options and help and all; the subcommand's callback does the work and leaves the
// process's exit code behind.
//
// Manners that all hold to: data on stdout, everything else on stderr; colours only on a terminal
// and without NO_COLOR; --json where there is data; a --help that ends with an example.
#pragma once

namespace CLI {
class App;
}

namespace tutti::tools {

// What the process ends with.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFinding = 1;  // something is wrong with what was looked at: wrong data
inline constexpr int kExitUsage = 2;    // the command line makes no sense
inline constexpr int kExitEnvironment = 3;  // the machine, a file or a library stands in the way
inline constexpr int kExitTimeout = 4;

// `exitCode` outlives `app`; a callback writes it once, and leaves it alone when all is well.
// The callback may throw CLI::ValidationError for what is only found out while it runs (usage).
void addPerf(CLI::App& app, int& exitCode);
void addRun(CLI::App& app, int& exitCode);
void addSettings(CLI::App& app, int& exitCode);
void addExplain(CLI::App& app, int& exitCode);
void addDoctor(CLI::App& app, int& exitCode);
void addSim(CLI::App& app, int& exitCode);
void addTune(CLI::App& app, int& exitCode);
void addTrace(CLI::App& app, int& exitCode);
void addWhy(CLI::App& app, int& exitCode);
void addTopo(CLI::App& app, int& exitCode);
void addVersion(CLI::App& app, int& exitCode);
void addCompletion(CLI::App& app, int& exitCode);
void addManual(CLI::App& app, int& exitCode);

}  // namespace tutti::tools
