// What ranks tell of themselves, kept by the one that has started them. A board is memory without a
// name, and goes with the last process that has it: of ranks that all die at once nobody else
// could say what they were at. One thread.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "observe/board.h"

namespace tutti::tools {

class KeptBoards {
 public:
  // Takes the boards that processes of these groups hold, in place of those taken before, which
  // stay where these hold none. Some 2 us a descriptor of theirs.
  void look(std::span<const pid_t> groups);

  // What is wrong with each of them, as `tutti why` tells it; nothing where nothing is.
  std::vector<std::string> verdicts() const;

 private:
  std::vector<observe::Board> boards_;
};

}  // namespace tutti::tools
