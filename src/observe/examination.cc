#include "observe/examination.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/futex.h"
#include "base/markup.h"
#include "base/proc_files.h"
#include "observe/activity.h"
#include "observe/told_page.h"

namespace tutti::observe {
namespace {

// A rank that calls less often than once in their time looks stuck.
constexpr size_t kLooks = 11;
constexpr std::chrono::milliseconds kLookInterval{100};
// Waits are told once they last 100 ms, so a first look may fall between two waits for a slow rank.
constexpr int kMoreFirstLooks = 3;

bool isBoard(const std::string& descriptor) {
  std::array<char, 256> target{};
  const ssize_t bytes = ::readlink(descriptor.c_str(), target.data(), target.size() - 1);
  if (bytes <= 0) return false;
  const std::string_view text(target.data(), static_cast<size_t>(bytes));
  return text.starts_with("/memfd:") && text.substr(7).starts_with(kBoardName);
}

bool seesNothing(const Evidence& evidence) {
  const Finding finding = find(evidence);
  return !finding.isWrong && !finding.isLate;
}

// One more look, a while later, at those boards whose looks so far want it.
template <typename Wants, typename Keep>
void lookAgainWhere(std::span<const Board> boards, std::vector<std::vector<Evidence>>& looks,
                    const Wants& wants, const Keep& keep) {
  bool hasSlept = false;
  for (size_t i = 0; i < boards.size(); ++i) {
    if (!wants(looks[i])) continue;
    if (!std::exchange(hasSlept, true)) sleepFor(kLookInterval);
    keep(looks[i], look(boards[i]));
  }
}

void addLines(std::vector<std::string>& lines, std::string_view text) {
  for (;;) {
    const size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

template <typename Items, typename Write>
std::string joined(const Items& items, std::string_view between, const Write& write) {
  std::string text;
  for (const auto& item : items) {
    if (!text.empty()) text += between;
    text += write(item);
  }
  return text;
}

std::string toJson(const RankView& rank) {
  const auto call = [](const OperationNote& note) {
    return fmt::format(R"({{"number": {}, "call": {}, "state": {}}})", note.number,
                       quoteJson(what(note)), quoteJson(name(note.state)));
  };
  const auto wait = [&rank](const WaitNote& note) {
    return fmt::format(R"({{"for_rank": {}, "since_ns": {}, "step": {}, "piece": {}, "text": {}}})",
                       note.peer, note.since, note.step, note.piece,
                       quoteJson(waitText(rank, note)));
  };
  return fmt::format(
      "        {{\"rank\": {}, \"host\": {}, \"pid\": {}, \"life\": {}, \"last_call\": {},\n"
      "         \"waits\": [{}],\n         \"history\": [{}]}}",
      rank.rank, quoteJson(rank.hostName), rank.process.processId, quoteJson(name(rank.life)),
      quoteJson(lastCall(rank)), joined(rank.waits, ", ", wait),
      joined(rank.history, ",\n                     ", call));
}

std::string toJson(const Examination& found) {
  const Finding& finding = found.finding;
  const std::vector<RankView>& ranks = found.evidence.ranks;
  std::string guilty = fmt::format(R"("guilty_rank": {})", finding.guilty);
  if (finding.guilty >= 0 && finding.guilty < static_cast<int32_t>(ranks.size())) {
    const RankView& rank = ranks[static_cast<size_t>(finding.guilty)];
    guilty += fmt::format(R"(, "guilty_host": {}, "guilty_pid": {})", quoteJson(rank.hostName),
                          rank.process.processId);
  }
  std::vector<RankView> present;
  std::ranges::copy_if(ranks, std::back_inserter(present), isKnown);
  return fmt::format(
      "    {{\"name\": {}, \"wrong\": {},\n      \"verdict\": {},\n      {},\n"
      "      \"last_operation\": {},\n      \"activity\": {},\n      \"waits\": [{}],\n"
      "      \"next\": {},\n      \"now_ns\": {},\n      \"ranks\": [\n{}]}}",
      quoteJson(found.name), finding.isWrong, quoteJson(finding.verdict), guilty,
      quoteJson(finding.lastOperation), quoteJson(finding.activity),
      joined(finding.waits, ", ", quoteJson), quoteJson(finding.next), found.evidence.now,
      joined(present, ",\n", [](const RankView& rank) { return toJson(rank); }));
}

}  // namespace

std::vector<int32_t> allProcesses() {
  std::vector<int32_t> processes;
  for (const std::string& entry : namesIn("/proc")) {
    if (const auto number = numberOf<int32_t>(entry)) processes.push_back(*number);
  }
  return processes;
}

std::vector<Board> boardsOf(std::span<const int32_t> processes) {
  std::set<std::pair<dev_t, ino_t>> seen;
  std::vector<Board> boards;
  for (const int32_t process : processes) {
    const std::string folder = fmt::format("/proc/{}/fd/", process);
    for (const std::string& descriptor : namesIn(folder)) {
      if (!isBoard(folder + descriptor)) continue;
      // Its owner may close it now, and what has its number next must not make us wait.
      UniqueFd fd(::open((folder + descriptor).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
      struct stat info {};
      if (!fd || ::fstat(fd.get(), &info) != 0) continue;
      if (!seen.emplace(info.st_dev, info.st_ino).second) continue;
      Result<Board> board = Board::openReadOnly(std::move(fd));
      if (board.ok()) boards.push_back(std::move(board).value());
    }
  }
  return boards;
}

Evidence lookAtBoard(const Board& board) {
  Evidence evidence;
  evidence.ranks = readBoard(board);
  evidence.verdict = board.verdict();
  evidence.now = static_cast<int64_t>(steadyClock().now());
  for (RankView& rank : evidence.ranks) addTold(board, evidence.now, rank);
  return evidence;
}

void askSystem(Evidence& evidence) {
  const uint64_t pidNamespace = thisProcess().pidNamespace;
  for (const RankView& rank : evidence.ranks) {
    evidence.states.push_back(stateOf(rank.process, pidNamespace));
    evidence.activities.push_back(activityOf(rank.process, rank.threadId, pidNamespace));
  }
}

Evidence look(const Board& board) {
  Evidence evidence = lookAtBoard(board);
  askSystem(evidence);
  return evidence;
}

std::vector<Examination> examine(std::span<const Board> boards, std::vector<Evidence> firstLooks) {
  std::vector<std::vector<Evidence>> looks(boards.size());
  for (size_t i = 0; i < boards.size(); ++i) looks[i].push_back(std::move(firstLooks[i]));
  for (int more = 0; more < kMoreFirstLooks; ++more) {
    lookAgainWhere(
        boards, looks, [](const std::vector<Evidence>& so) { return seesNothing(so[0]); },
        [](std::vector<Evidence>& so, Evidence now) { so[0] = std::move(now); });
  }
  for (size_t more = 1; more < kLooks; ++more) {
    lookAgainWhere(
        boards, looks, [](const std::vector<Evidence>& so) { return find(so[0]).isLate; },
        [](std::vector<Evidence>& so, Evidence now) { so.push_back(std::move(now)); });
  }
  std::vector<Examination> found;
  for (size_t i = 0; i < boards.size(); ++i) {
    Finding finding = findOverTime(looks[i]);
    found.push_back({.name = boards[i].name(),
                     .evidence = std::move(looks[i].back()),
                     .finding = std::move(finding)});
  }
  return found;
}

Examination conclude(std::string name, Evidence evidence) {
  Finding finding = find(evidence);
  return {.name = std::move(name), .evidence = std::move(evidence), .finding = std::move(finding)};
}

std::vector<std::string> findingLines(const Finding& finding, size_t room) {
  std::vector<std::string> lines;
  addLines(lines, finding.verdict);
  std::vector<std::string> rest;
  std::string guilty = finding.activity;
  if (finding.verdict.find(finding.lastOperation) == std::string::npos)
    guilty = guilty.empty() ? finding.lastOperation : finding.lastOperation + "; " + guilty;
  if (!guilty.empty()) rest.push_back(fmt::format("  rank {}: {}", finding.guilty, guilty));
  for (const std::string& wait : finding.waits) rest.push_back("  " + wait);
  rest.push_back("  next: " + finding.next);
  const size_t kept = std::max<size_t>(1, room - std::min(room, rest.size()));
  if (lines.size() > kept) lines.resize(kept);
  lines.insert(lines.end(), rest.begin(), rest.end());
  return lines;
}

std::string toJson(std::span<const Examination> found) {
  return fmt::format("{{\n  \"communicators\": [\n{}]\n}}\n",
                     joined(found, ",\n", [](const Examination& each) { return toJson(each); }));
}

}  // namespace tutti::observe
