// tutti why: which rank holds up the others, and why. Reads the ranks' boards from outside; stops
// and signals nobody.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/proc_files.h"
#include "base/whole_file.h"
#include "observe/bundle.h"
#include "observe/examination.h"
#include "tools/command.h"
#include "tools/terminal.h"

namespace tutti::tools {
namespace {

constexpr size_t kMaxLines = 10;
constexpr int kExitNoProcess = kExitEnvironment;

using observe::Examination;

bool concerns(const observe::Board& board, const observe::Evidence& evidence,
              const std::string& wanted) {
  if (wanted.empty() || board.name() == wanted) return true;
  const auto pid = numberOf<int32_t>(wanted);
  return pid && std::ranges::any_of(evidence.ranks, [&](const observe::RankView& rank) {
           return rank.process.processId == *pid && observe::hasPage(rank);
         });
}

// The wanted boards of all processes that this user may look into, each once.
std::vector<Examination> examineAll(const std::string& wanted) {
  std::vector<observe::Board> boards;
  std::vector<observe::Evidence> looks;
  for (observe::Board& board : observe::boardsOf(observe::allProcesses())) {
    observe::Evidence first = observe::look(board);
    if (!concerns(board, first, wanted)) continue;
    boards.push_back(std::move(board));
    looks.push_back(std::move(first));
  }
  return observe::examine(boards, std::move(looks));
}

void printText(const std::vector<Examination>& found, const std::string& wanted) {
  const Terminal terminal;
  const auto wrong = static_cast<size_t>(
      std::ranges::count_if(found, [](const Examination& each) { return each.finding.isWrong; }));
  if (found.empty() && !wanted.empty()) {
    fmt::print("process {} has no communicator: none yet, none any more, or another user's\n",
               wanted);
    return;
  }
  if (wrong == 0) {
    fmt::print("{} in {} communicator{}\n", terminal.paint(Colour::kGood, "nothing wrong"),
               found.size(), found.size() == 1 ? "" : "s");
    return;
  }
  const auto first =
      std::ranges::find_if(found, [](const Examination& each) { return each.finding.isWrong; });
  fmt::print("{} ", terminal.paint(Colour::kBad, fmt::format("communicator {}:", first->name)));
  for (const std::string& line : observe::findingLines(first->finding, kMaxLines - 1))
    fmt::print("{}\n", line);
  if (wrong > 1) fmt::print("and {} more communicators: tutti why --json\n", wrong - 1);
}

struct Options {
  std::string wanted;
  bool json = false;
  std::string bundle;  // a file to be written; empty: none
};

Status writeBundle(const Options& options, const std::vector<Examination>& found) {
  std::vector<int32_t> processes = observe::processesOf(found);
  const auto wanted = numberOf<int32_t>(options.wanted);
  if (processes.empty() && wanted) processes.push_back(*wanted);
  const std::string archive = observe::makeBundle(
      {.cause = fmt::format("tutti why --bundle {} {}", options.bundle, options.wanted),
       .found = found,
       .processes = std::move(processes),
       .settings = {},
       .time = wallClockSeconds()});
  return writeWholeFile(options.bundle, archive);
}

int explain(const Options& options) {
  const std::string& wanted = options.wanted;
  const std::vector<Examination> found = examineAll(wanted);
  if (found.empty() && !wanted.empty()) {
    const auto pid = numberOf<int32_t>(wanted);
    const bool isAlive = pid && ::access(fmt::format("/proc/{}", *pid).c_str(), F_OK) == 0;
    if (!isAlive) {
      fmt::print(stderr, "tutti why: no process or communicator {} on this host\n", wanted);
      return kExitNoProcess;
    }
  }
  if (!options.bundle.empty()) {
    if (const Status written = writeBundle(options, found); !written.ok()) {
      fmt::print(stderr, "tutti why: {}\n", written.message());
      return kExitEnvironment;
    }
  }
  if (options.json) {
    fmt::print("{}", observe::toJson(found));
  } else {
    printText(found, wanted);
  }
  const bool isWrong =
      std::ranges::any_of(found, [](const Examination& each) { return each.finding.isWrong; });
  return isWrong ? kExitFinding : kExitOk;
}

}  // namespace

void addWhy(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<Options>();  // shared by the options and the callback
  CLI::App* command = app.add_subcommand(
      "why", "Say which rank holds up the others, and why, without disturbing any");
  command->add_option("process", options->wanted,
                      "A process id, or a communicator's name; without: all of this user");
  command->add_flag("--json", options->json, "Print JSON");
  command
      ->add_option("--bundle", options->bundle,
                   "Also write all that is known, of all ranks on this host, to this tar")
      ->option_text("FILE.tar");
  command->footer(
      "Exit code: 0 nothing wrong, 1 something is, 2 usage, 3 no such process or communicator,\n"
      "or the bundle cannot be written.\n"
      "Example: tutti why $(pgrep -n python)");
  command->callback([options, &exitCode] { exitCode = explain(*options); });
}

}  // namespace tutti::tools
