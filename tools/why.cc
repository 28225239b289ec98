// tutti why: which rank holds up the others, and why. Reads the ranks' boards from outside; stops
// and signals nobody.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "observe/activity.h"
#include "observe/finding.h"
#include "tools/command.h"
#include "tools/terminal.h"

namespace tutti::tools {
namespace {

constexpr size_t kMaxLines = 10;
constexpr int kExitNoProcess = 3;

// A rank that calls less often than once in their time looks stuck.
constexpr size_t kLooks = 11;
constexpr std::chrono::milliseconds kLookInterval{100};
// Waits are told once they last 100 ms, so a first look may fall between two waits for a slow rank.
constexpr int kMoreFirstLooks = 3;

struct Communicator {
  std::string name;
  observe::Evidence evidence;
  observe::Finding finding;
};

std::vector<std::string> namesIn(const std::string& directory) {
  std::vector<std::string> names;
  DIR* stream = ::opendir(directory.c_str());
  if (stream == nullptr) return names;
  while (const dirent* entry = ::readdir(stream)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(stream);
  return names;
}

std::optional<int32_t> numberOf(const std::string& text) {
  int32_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value <= 0)
    return std::nullopt;
  return value;
}

bool isBoard(const std::string& descriptor) {
  std::array<char, 256> target{};
  const ssize_t bytes = ::readlink(descriptor.c_str(), target.data(), target.size() - 1);
  if (bytes <= 0) return false;
  const std::string_view text(target.data(), static_cast<size_t>(bytes));
  return text.starts_with("/memfd:") && text.substr(7).starts_with(observe::kBoardName);
}

observe::Evidence look(const observe::Board& board, uint64_t pidNamespace) {
  observe::Evidence evidence;
  evidence.ranks = observe::readBoard(board);
  for (const observe::RankView& rank : evidence.ranks) {
    evidence.states.push_back(observe::stateOf(rank.process, pidNamespace));
    evidence.activities.push_back(observe::activityOf(rank.process, rank.threadId, pidNamespace));
  }
  evidence.verdict = board.verdict();
  evidence.now = static_cast<int64_t>(steadyClock().now());
  return evidence;
}

bool concerns(const Communicator& communicator, const std::string& wanted) {
  if (wanted.empty() || communicator.name == wanted) return true;
  const std::optional<int32_t> pid = numberOf(wanted);
  return pid && std::ranges::any_of(communicator.evidence.ranks, [&](const auto& rank) {
           return rank.process.processId == *pid && observe::hasPage(rank);
         });
}

bool seesNothing(const observe::Evidence& evidence) {
  const observe::Finding finding = observe::find(evidence);
  return !finding.isWrong && !finding.isLate;
}

// One look shows most; whether a late rank is stuck or slow, only several.
Communicator examine(const observe::Board& board, Communicator first, uint64_t pidNamespace) {
  std::vector<observe::Evidence> looks;
  looks.push_back(std::move(first.evidence));
  for (int i = 0; i < kMoreFirstLooks && seesNothing(looks.front()); ++i) {
    std::this_thread::sleep_for(kLookInterval);
    looks.front() = look(board, pidNamespace);
  }
  while (looks.size() < kLooks && observe::find(looks.front()).isLate) {
    std::this_thread::sleep_for(kLookInterval);
    looks.push_back(look(board, pidNamespace));
  }
  return {.name = std::move(first.name),
          .evidence = looks.back(),
          .finding = observe::findOverTime(looks)};
}

// The wanted boards of all processes that this user may look into, each once.
std::vector<Communicator> examineAll(const std::string& wanted) {
  const uint64_t pidNamespace = observe::thisProcess().pidNamespace;
  std::set<std::pair<dev_t, ino_t>> seen;
  std::vector<Communicator> found;
  for (const std::string& process : namesIn("/proc")) {
    if (!numberOf(process)) continue;
    const std::string folder = "/proc/" + process + "/fd/";
    for (const std::string& descriptor : namesIn(folder)) {
      if (!isBoard(folder + descriptor)) continue;
      UniqueFd fd(::open((folder + descriptor).c_str(), O_RDONLY | O_CLOEXEC));
      struct stat info {};
      if (!fd || ::fstat(fd.get(), &info) != 0) continue;
      if (!seen.emplace(info.st_dev, info.st_ino).second) continue;
      Result<observe::Board> board = observe::Board::openReadOnly(std::move(fd));
      if (!board.ok()) continue;
      Communicator first{
          .name = board->name(), .evidence = look(*board, pidNamespace), .finding = {}};
      if (concerns(first, wanted)) found.push_back(examine(*board, std::move(first), pidNamespace));
    }
  }
  return found;
}

void addLines(std::vector<std::string>& lines, std::string_view text) {
  for (;;) {
    const size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

// What fits: the verdict gives way, since a table's first lines say most.
void printFinding(const Communicator& communicator, size_t room) {
  const observe::Finding& finding = communicator.finding;
  const Terminal terminal;
  std::vector<std::string> verdict;
  addLines(verdict, finding.verdict);
  std::vector<std::string> rest;
  std::string guilty = finding.activity;
  if (finding.verdict.find(finding.lastOperation) == std::string::npos)
    guilty = guilty.empty() ? finding.lastOperation : finding.lastOperation + "; " + guilty;
  if (!guilty.empty()) rest.push_back(fmt::format("rank {}: {}", finding.guilty, guilty));
  rest.insert(rest.end(), finding.waits.begin(), finding.waits.end());
  rest.push_back("next: " + finding.next);
  const size_t kept = std::max<size_t>(1, room - std::min(room, rest.size()));
  if (verdict.size() > kept) verdict.resize(kept);
  fmt::print("{} {}\n",
             terminal.paint(Colour::kBad, fmt::format("communicator {}:", communicator.name)),
             verdict.front());
  for (size_t i = 1; i < verdict.size(); ++i) fmt::print("{}\n", verdict[i]);
  for (const std::string& line : rest) fmt::print("  {}\n", line);
}

void printText(const std::vector<Communicator>& found) {
  const Terminal terminal;
  const auto wrong = static_cast<size_t>(
      std::ranges::count_if(found, [](const Communicator& each) { return each.finding.isWrong; }));
  if (wrong == 0) {
    fmt::print("{} in {} communicator{}\n", terminal.paint(Colour::kGood, "nothing wrong"),
               found.size(), found.size() == 1 ? "" : "s");
    return;
  }
  const auto first =
      std::ranges::find_if(found, [](const Communicator& each) { return each.finding.isWrong; });
  printFinding(*first, kMaxLines - 1);
  if (wrong > 1) fmt::print("and {} more communicators: tutti why --json\n", wrong - 1);
}

nlohmann::ordered_json toJson(const Communicator& communicator) {
  const observe::Finding& finding = communicator.finding;
  nlohmann::ordered_json each;
  each["name"] = communicator.name;
  each["wrong"] = finding.isWrong;
  each["verdict"] = finding.verdict;
  each["guilty_rank"] = finding.guilty;
  if (finding.guilty >= 0 &&
      finding.guilty < static_cast<int32_t>(communicator.evidence.ranks.size())) {
    const auto& rank = communicator.evidence.ranks[static_cast<size_t>(finding.guilty)];
    each["guilty_host"] = rank.hostName;
    each["guilty_pid"] = rank.process.processId;
  }
  each["last_operation"] = finding.lastOperation;
  each["activity"] = finding.activity;
  each["waits"] = finding.waits;
  each["next"] = finding.next;
  each["ranks"] = nlohmann::ordered_json::array();
  for (const observe::RankView& rank : communicator.evidence.ranks) {
    if (!observe::hasPage(rank)) continue;
    each["ranks"].push_back({{"rank", rank.rank},
                             {"host", rank.hostName},
                             {"pid", rank.process.processId},
                             {"last_call", observe::lastCall(rank)}});
  }
  return each;
}

void printJson(const std::vector<Communicator>& found) {
  nlohmann::ordered_json output;
  output["communicators"] = nlohmann::ordered_json::array();
  for (const Communicator& each : found) output["communicators"].push_back(toJson(each));
  fmt::print("{}\n", output.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

int explain(const std::string& wanted, bool json) {
  const std::vector<Communicator> found = examineAll(wanted);
  if (found.empty() && !wanted.empty()) {
    const std::optional<int32_t> pid = numberOf(wanted);
    const bool isAlive = pid && ::access(fmt::format("/proc/{}", *pid).c_str(), F_OK) == 0;
    if (!isAlive) {
      fmt::print(stderr, "tutti why: no process or communicator {} on this host\n", wanted);
      return kExitNoProcess;
    }
  }
  if (json) {
    printJson(found);
  } else {
    printText(found);
  }
  const bool isWrong =
      std::ranges::any_of(found, [](const Communicator& each) { return each.finding.isWrong; });
  return isWrong ? kExitFinding : kExitOk;
}

}  // namespace

void addWhy(CLI::App& app, int& exitCode) {
  struct Options {
    std::string wanted;
    bool json = false;
  };
  auto options = std::make_shared<Options>();  // shared by the options and the callback
  CLI::App* command = app.add_subcommand(
      "why", "Say which rank holds up the others, and why, without disturbing any");
  command->add_option("process", options->wanted,
                      "A process id, or a communicator's name; without: all of this user");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Exit code: 0 nothing wrong, 1 something is, 2 usage, 3 no such process or communicator.\n"
      "Example: tutti why $(pgrep -n python)");
  command->callback([options, &exitCode] { exitCode = explain(options->wanted, options->json); });
}

}  // namespace tutti::tools
