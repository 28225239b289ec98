#include "observe/finding.h"

#include <algorithm>

namespace tutti::observe {
namespace {

// Younger circles may be messages on their way.
constexpr int64_t kCycleAge = 1'000'000'000;
constexpr size_t kWaitLines = 3;

double seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

bool isMember(const RankView& rank) {
  return rank.life == Life::kReady || rank.life == Life::kExited || rank.life == Life::kElsewhere;
}

// The rank that has waited longest; nullptr when none waits.
const RankView* longestWaiter(const std::vector<RankView>& ranks) {
  const RankView* longest = nullptr;
  for (const RankView& rank : ranks) {
    if (rank.waits.empty() || !isMember(rank)) continue;
    if (longest == nullptr || rank.waits.front().since < longest->waits.front().since)
      longest = &rank;
  }
  return longest;
}

void addChain(const Evidence& evidence, Finding& finding) {
  const RankView* first = longestWaiter(evidence.ranks);
  if (first == nullptr) return;
  for (const int32_t rank : followWaits(evidence.ranks, first->rank)) {
    const RankView& waiter = evidence.ranks[static_cast<size_t>(rank)];
    if (waiter.waits.empty() || finding.waits.size() == kWaitLines) break;
    const WaitNote& wait = waiter.waits.front();
    const std::string text = waitText(waiter, wait);
    if (finding.verdict.find(text) != std::string::npos) continue;  // a circle tells it already
    finding.waits.push_back(
        fmt::format("{}, for {:.1f} s", text, seconds(evidence.now - wait.since)));
  }
}

int32_t firstInState(const Evidence& evidence, ProcessState state) {
  for (size_t i = 0; i < evidence.ranks.size(); ++i) {
    if (isMember(evidence.ranks[i]) && evidence.states[i] == state) return static_cast<int32_t>(i);
  }
  return -1;
}

bool findVerdict(const Evidence& evidence, Finding& finding) {
  if (evidence.verdict.code == Code::kOk) return false;
  finding.verdict = evidence.verdict.text;
  finding.guilty = evidence.verdict.guilty;
  finding.next = evidence.verdict.code == Code::kInvalidUsage
                     ? "make all ranks call the same, in the same order, and put sends and "
                       "receives that need each other into one group; every call on this "
                       "communicator fails now"
                     : "every rank's calls fail now; mend the cause, then make a new communicator";
  return true;
}

bool findDead(const Evidence& evidence, Finding& finding) {
  finding.guilty = firstInState(evidence, ProcessState::kDead);
  if (finding.guilty < 0) return false;
  const RankView& dead = evidence.ranks[static_cast<size_t>(finding.guilty)];
  finding.verdict = fmt::format(
      "{} {}{}", who(dead), dead.life == Life::kExited ? "exited without ncclCommDestroy" : "died",
      lastCallClause(dead));
  finding.next = "look at that rank's own output and at the kernel's log (out of memory?)";
  return true;
}

bool findDifference(const Evidence& evidence, Finding& finding) {
  const auto mismatch = findMismatch(evidence.ranks);
  if (!mismatch) return false;
  finding.verdict = mismatch->text;
  finding.guilty = mismatch->guilty;
  finding.next = "make all ranks call the same, in the same order";
  return true;
}

bool findStopped(const Evidence& evidence, Finding& finding) {
  finding.guilty = firstInState(evidence, ProcessState::kStopped);
  if (finding.guilty < 0) return false;
  const RankView& rank = evidence.ranks[static_cast<size_t>(finding.guilty)];
  finding.verdict =
      fmt::format("{} is stopped (by a signal or a debugger){}", who(rank), lastCallClause(rank));
  finding.next = fmt::format("kill -CONT {}", rank.process.processId);
  return true;
}

bool findCircle(const Evidence& evidence, Finding& finding) {
  const auto cycle = findCycle(evidence.ranks, evidence.now, kCycleAge);
  if (cycle.empty()) return false;
  const bool isBetweenHosts = std::ranges::any_of(cycle, [&](int32_t rank) {
    return evidence.ranks[static_cast<size_t>(rank)].life == Life::kElsewhere;
  });
  if (isBetweenHosts && !isOfCalls(evidence.ranks, cycle)) return false;  // on its way, perhaps
  finding.verdict = cycleVerdict(evidence.ranks, cycle).text;
  finding.next = "put sends and receives that need each other into one group";
  return true;
}

bool findLate(const Evidence& evidence, Finding& finding) {
  const RankView* waiter = longestWaiter(evidence.ranks);
  if (waiter == nullptr) return false;
  const auto chain = followWaits(evidence.ranks, waiter->rank);
  const RankView& late = evidence.ranks[static_cast<size_t>(chain.back())];
  if (!late.waits.empty()) return false;  // a circle too young to tell
  const RankView& before = evidence.ranks[static_cast<size_t>(chain[chain.size() - 2])];
  finding.isLate = true;
  finding.guilty = late.rank;
  finding.verdict = whyLate(late, before, before.operation(before.waits.front().number));
  if (isOutside(late) && late.rank < static_cast<int32_t>(evidence.activities.size())) {
    const std::string& activity = evidence.activities[static_cast<size_t>(late.rank)];
    if (!activity.empty())
      finding.activity = fmt::format("it is outside the library, {}", activity);
  }
  const bool isElsewhere = late.life == Life::kElsewhere;
  if (isElsewhere && !late.hasTold) {
    finding.next = fmt::format("run tutti why on {}", late.hostName);
    return true;
  }
  finding.next = fmt::format("see what it does instead{1}: py-spy dump --pid {0}, or gdb -p {0}",
                             late.process.processId, isElsewhere ? ", on " + late.hostName : "");
  return true;
}

// How many operations were begun between two looks, by whichever rank began most.
uint64_t operationsBetween(const Evidence& first, const Evidence& last) {
  uint64_t most = 0;
  for (size_t i = 0; i < std::min(first.ranks.size(), last.ranks.size()); ++i) {
    const OperationNote* before = first.ranks[i].newest();
    const OperationNote* after = last.ranks[i].newest();
    if (after == nullptr) continue;
    const uint64_t from = before == nullptr ? 0 : before->number;
    if (after->number > from) most = std::max(most, after->number - from);
  }
  return most;
}

}  // namespace

Finding findOverTime(const std::vector<Evidence>& looks) {
  Finding last = find(looks.back());
  const uint64_t operations = operationsBetween(looks.front(), looks.back());
  if (operations == 0 || (last.isWrong && !last.isLate)) return last;
  std::vector<size_t> late(looks.back().ranks.size());
  std::vector<Finding> findings;
  for (const Evidence& look : looks) {
    findings.push_back(find(look));
    const int32_t guilty = findings.back().guilty;
    if (findings.back().isLate && guilty < static_cast<int32_t>(late.size()))
      ++late[static_cast<size_t>(guilty)];
  }
  const auto most = std::ranges::max_element(late);
  if (most == late.end() || *most * 2 <= looks.size()) return {};  // a wait that came and went
  const auto guilty = static_cast<int32_t>(most - late.begin());
  std::ranges::reverse(findings);
  const auto shown = std::ranges::find_if(findings, [guilty](const Finding& finding) {
    return finding.isLate && finding.guilty == guilty;
  });
  Finding slow = std::move(*shown);
  const RankView& rank = looks.back().ranks[static_cast<size_t>(guilty)];
  slow.verdict = fmt::format(
      "{} is slow: the others waited for it in {} of {} looks, but operations go on ({} in {:.1f} "
      "s)",
      who(rank), *most, looks.size(), operations, seconds(looks.back().now - looks.front().now));
  slow.next =
      fmt::format("see what it does between its calls: py-spy top --pid {0}, or perf top -p {0}",
                  rank.process.processId);
  return slow;
}

Finding find(const Evidence& evidence) {
  Finding finding;
  finding.isWrong = findVerdict(evidence, finding) || findDead(evidence, finding) ||
                    findDifference(evidence, finding) || findStopped(evidence, finding) ||
                    findCircle(evidence, finding) || findLate(evidence, finding);
  if (!finding.isWrong) return finding;
  if (finding.guilty >= 0 && finding.guilty < static_cast<int32_t>(evidence.ranks.size()))
    finding.lastOperation = lastCall(evidence.ranks[static_cast<size_t>(finding.guilty)]);
  addChain(evidence, finding);
  return finding;
}

}  // namespace tutti::observe
