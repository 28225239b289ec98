#include "tools/kept_boards.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "observe/examination.h"

namespace tutti::tools {
namespace {

constexpr size_t kMaxLines = 9;  // of a communicator

}  // namespace

void KeptBoards::look(std::span<const pid_t> groups) {
  std::vector<int32_t> processes = observe::allProcesses();
  std::erase_if(processes, [&](int32_t process) {
    return std::ranges::find(groups, ::getpgid(process)) == groups.end();
  });
  std::vector<observe::Board> boards = observe::boardsOf(processes);
  if (!boards.empty()) boards_ = std::move(boards);
}

std::vector<std::string> KeptBoards::verdicts() const {
  std::vector<std::string> lines;
  for (const observe::Board& board : boards_) {
    const observe::Examination found = observe::conclude(board.name(), observe::look(board));
    if (!found.finding.isWrong) continue;
    std::vector<std::string> told = observe::findingLines(found.finding, kMaxLines);
    told.front() = fmt::format("communicator {}: {}", found.name, told.front());
    lines.insert(lines.end(), std::make_move_iterator(told.begin()),
                 std::make_move_iterator(told.end()));
  }
  return lines;
}

}  // namespace tutti::tools
