// A rank on another host, by ssh: what ssh is to be started with. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::tools {

struct RemoteRank {
  std::string ssh = "ssh";
  std::string host;
  std::string folder;  // to work in; the rank starts at home where the host has none of that name
  std::vector<std::pair<std::string, std::string>> variables;
  std::string libraryFolder;  // comes first in LD_LIBRARY_PATH; empty: nothing does
  bool preloads = false;
  std::vector<std::string> command;
};

// The words of the command. What runs there reads a line, the job's secret, from its input: a
// command line could be seen by others. It ends with the rank's exit code, and ends the rank when
// its input ends, as it does when ssh, or whoever has started that, is gone.
std::vector<std::string> sshCommand(const RemoteRank& rank);

// As one word for a shell: 'it'\''s'.
std::string quoted(std::string_view word);

}  // namespace tutti::tools
