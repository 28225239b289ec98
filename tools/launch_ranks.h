// A program as N ranks of one host: environment, prefixed output, one failing rank ends all.
#pragma once

#include <string>
#include <vector>

namespace tutti::tools {

struct LaunchOptions {
  int rankCount = 2;
  bool prefixesLines = true;
  bool preloads = false;
  int timeoutSeconds = 0;  // 0: none
  std::vector<std::string> command;
};

// Returns when all ranks have ended, with the exit code for the launcher (run.cc's help). Called
// once, from the only thread.
int launchRanks(const LaunchOptions& options);

}  // namespace tutti::tools
