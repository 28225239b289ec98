// A program as N ranks of this host, or of others by ssh: environment, prefixed output, one failing
// rank ends all.
#pragma once

#include <string>
#include <vector>

#include "tools/host_list.h"

namespace tutti::tools {

struct LaunchOptions {
  int rankCount = 0;  // 0: two, or as many as the hosts have slots
  bool prefixesLines = true;
  bool preloads = false;
  int timeoutSeconds = 0;  // 0: none
  std::vector<std::string> command;
  std::vector<HostSlots> hosts{};  // empty: this one
  std::string ssh = "ssh";
  int port = 29500;                     // MASTER_PORT on the first of several hosts
  std::vector<std::string> forwards{};  // "NAME" or "NAME=VALUE", beside NCCL_* and TUTTI_*
};

// Returns when all ranks have ended, with the exit code for the launcher (run.cc's help). Called
// once, from the only thread.
int launchRanks(const LaunchOptions& options);

}  // namespace tutti::tools
