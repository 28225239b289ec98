#include "tools/remote_rank.h"

#include <fmt/core.h>

namespace tutti::tools {
namespace {

// In one line, since shells differ in what they make of others inside quotes. A shell gives what it
// starts in the background no input, hence the descriptor 3. Without setsid the rank has no group
// of its own, and only itself is ended.
constexpr std::string_view kFirst =
    "umask 077; exec 3<&0; IFS= read -r secret <&3; "
    "dir=$(mktemp -d \"${TMPDIR:-/tmp}/tutti-run.XXXXXX\") || exit 3; "
    "if [ -z \"$TUTTI_SECRET_FILE\" ]; then printf %s \"$secret\" > \"$dir/secret\"; "
    "export TUTTI_SECRET_FILE=\"$dir/secret\"; fi; ";
constexpr std::string_view kThen =
    "if command -v setsid > /dev/null; then own=-; setsid \"$@\" < /dev/null 3<&- & "
    "else own=; \"$@\" < /dev/null 3<&- & fi; rank=$!; "
    "(cat <&3; kill -TERM $own$rank; sleep 5; kill -KILL $own$rank) > /dev/null 2>&1 & watch=$!; "
    "wait $rank; code=$?; kill $watch 2> /dev/null; rm -rf \"$dir\"; exit $code";

std::string scriptOf(const RemoteRank& rank) {
  std::string script;
  for (const auto& [name, value] : rank.variables)
    script += fmt::format("export {}={}; ", name, quoted(value));
  script += kFirst;
  if (!rank.libraryFolder.empty()) {
    script += fmt::format("export LD_LIBRARY_PATH={}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}; ",
                          quoted(rank.libraryFolder));
    if (rank.preloads)
      script += fmt::format("export LD_PRELOAD={}${{LD_PRELOAD:+:$LD_PRELOAD}}; ",
                            quoted(rank.libraryFolder + "/libnccl.so.2"));
  }
  script += fmt::format("cd {} 2> /dev/null; ", quoted(rank.folder));
  script += kThen;
  return script;
}

}  // namespace

std::string quoted(std::string_view word) {
  std::string text = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      text += "'\\''";
    } else {
      text += letter;
    }
  }
  text += '\'';
  return text;
}

std::vector<std::string> sshCommand(const RemoteRank& rank) {
  std::string command = fmt::format("exec sh -c {} tutti-run", quoted(scriptOf(rank)));
  for (const std::string& word : rank.command) command += fmt::format(" {}", quoted(word));
  return {rank.ssh, "-oBatchMode=yes", rank.host, std::move(command)};
}

}  // namespace tutti::tools
