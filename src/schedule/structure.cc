#include "schedule/structure.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <unordered_map>
#include <vector>

#include "schedule/contract.h"

namespace tutti::schedule {
namespace {

std::string checkHead(const Schedule& schedule) {
  const int32_t n = schedule.rankCount;
  if (n < 1) return fmt::format("has {} ranks, wants at least one", n);
  const int32_t blocks = blockCount(schedule.collective, n);
  if (schedule.blockCount != blocks) {
    return fmt::format("has {} blocks, {} among {} ranks has {}", schedule.blockCount,
                       name(schedule.collective), n, blocks);
  }
  if (schedule.chunkCount < 1 || schedule.chunkCount % blocks != 0) {
    return fmt::format("has {} chunks, wants a multiple of its {} blocks", schedule.chunkCount,
                       blocks);
  }
  if (schedule.networkCount < 0 ||
      schedule.programs.size() != static_cast<size_t>(n + schedule.networkCount)) {
    return fmt::format(
        "has {} programs for {} ranks{}", schedule.programs.size(), n,
        schedule.networkCount == 0 ? "" : fmt::format(" and {} networks", schedule.networkCount));
  }
  for (const Rank named : {schedule.root, schedule.sender}) {
    if (index(named) < 0 || index(named) >= n) {
      return fmt::format("names rank {} as root or sender, ranks are 0 to {}", index(named), n - 1);
    }
  }
  return "";
}

// Checks one rank's program, and counts its messages on each link.
class ProgramCheck {
 public:
  ProgramCheck(const Schedule& schedule, Rank rank)
      : schedule_(schedule),
        program_(schedule.programs[static_cast<size_t>(index(rank))]),
        rank_(rank),
        input_(inputChunks(schedule, rank)),
        output_(outputChunks(schedule, rank)),
        received_(program_.receivesFrom.size()),
        sent_(program_.sendsTo.size()) {}

  std::string run() {
    for (const auto* peers : {&program_.receivesFrom, &program_.sendsTo}) {
      if (std::string refusal = checkPeers(*peers); !refusal.empty()) return refusal;
    }
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const Step& step = program_.steps[i];
      std::string refusal = checkStep(step);
      if (i > 0 && step.lag < program_.steps[i - 1].lag)
        refusal = fmt::format("is {} pieces behind, the step before it {}", step.lag,
                              program_.steps[i - 1].lag);
      if (!refusal.empty()) {
        return fmt::format("rank {} step {} ({}): {}", index(rank_), i, describe(program_, step),
                           refusal);
      }
    }
    return checkUse();
  }

  // Messages a piece, by position in receivesFrom and sendsTo.
  const std::vector<int32_t>& received() const { return received_; }
  const std::vector<int32_t>& sent() const { return sent_; }

 private:
  std::string checkPeers(const std::vector<Rank>& peers) const {
    std::vector<Rank> sorted = peers;
    std::sort(sorted.begin(), sorted.end());
    const auto repeated = std::adjacent_find(sorted.begin(), sorted.end());
    if (repeated != sorted.end()) {
      return fmt::format("rank {} lists two links of one direction with rank {}", index(rank_),
                         index(*repeated));
    }
    for (const Rank peer : peers) {
      if (peer == rank_) return fmt::format("rank {} has a link to itself", index(rank_));
      if (index(peer) < 0 || static_cast<size_t>(index(peer)) >= schedule_.programs.size()) {
        return fmt::format("rank {} has a link with rank {}, ranks are 0 to {}", index(rank_),
                           index(peer), schedule_.programs.size() - 1);
      }
    }
    return "";
  }

  std::string checkStep(const Step& step) {
    const size_t end = size_t{step.firstOperand} + step.sourceCount + step.destinationCount;
    if (end > program_.operands.size()) {
      return fmt::format("its operands end at {}, the program has {}", end,
                         program_.operands.size());
    }
    if (step.sourceCount == 0) return "has no source";
    if (step.destinationCount == 0) return "has no destination";
    if ((step.fold == Fold::kCopy) != (step.sourceCount == 1)) {
      return fmt::format("{} {} sources", step.fold == Fold::kCopy ? "copies" : "reduces",
                         step.sourceCount);
    }
    if (step.chunk < 0 || step.chunk >= schedule_.chunkCount) {
      return fmt::format("chunk {} is out of range, there are {}", step.chunk,
                         schedule_.chunkCount);
    }
    if (!isReduction(schedule_.collective) && (step.fold == Fold::kReduce || step.post)) {
      return fmt::format("{} in {}, which only moves data",
                         step.post ? "applies the post-operation" : "reduces",
                         name(schedule_.collective));
    }
    if (step.post && index(rank_) >= schedule_.rankCount)
      return "applies the post-operation, which no network does";
    const auto operands = program_.allOperands(step);
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool isSource = i < step.sourceCount;
      std::string refusal = operands[i].place == Place::kLink
                                ? countMessage(operands[i].index, isSource)
                                : checkChunk(step, operands[i], isSource);
      if (!refusal.empty()) return refusal;
    }
    return checkRepeats(operands.first(step.sourceCount), operands.subspan(step.sourceCount));
  }

  std::string countMessage(int32_t link, bool isSource) {
    std::vector<int32_t>& counts = isSource ? received_ : sent_;
    if (link < 0 || static_cast<size_t>(link) >= counts.size()) {
      return fmt::format("names link {}, the program lists {}", link, counts.size());
    }
    ++counts[static_cast<size_t>(link)];
    return "";
  }

  std::string checkChunk(const Step& step, const Operand& operand, bool isSource) const {
    const bool isInput = operand.place == Place::kInput;
    if (isInput && !isSource) return "writes its input";
    if (!isInput && operand.place != Place::kOutput) return "names an unknown place";
    const ChunkRange& range = isInput ? input_ : output_;
    const char* what = isInput ? "input" : "output";
    if (range.size() == 0) return fmt::format("names its {}, but has none", what);
    if (!range.contains(operand.index)) {
      return fmt::format("{} chunk {} is out of range, the buffer holds {} to {}", what,
                         operand.index, range.first, range.end - 1);
    }
    if (positionInBlock(schedule_, operand.index) != positionInBlock(schedule_, step.chunk)) {
      return fmt::format("{} chunk {} may differ in length from chunk {}", what, operand.index,
                         step.chunk);
    }
    return "";
  }

  // A step moves one message a link at most, and writes a chunk once.
  static std::string checkRepeats(std::span<const Operand> sources,
                                  std::span<const Operand> destinations) {
    std::vector<Operand> named;
    for (const auto& operands : {sources, destinations}) {
      named.assign(operands.begin(), operands.end());
      const auto before = [](const Operand& left, const Operand& right) {
        return left.place != right.place ? left.place < right.place : left.index < right.index;
      };
      std::sort(named.begin(), named.end(), before);
      if (std::adjacent_find(named.begin(), named.end()) != named.end()) {
        return "names an operand twice";
      }
    }
    return "";
  }

  std::string checkUse() const {
    for (size_t i = 0; i < received_.size(); ++i) {
      if (received_[i] == 0) return unused(program_.receivesFrom[i]);
    }
    for (size_t i = 0; i < sent_.size(); ++i) {
      if (sent_[i] == 0) return unused(program_.sendsTo[i]);
    }
    return "";
  }

  std::string unused(Rank peer) const {
    return fmt::format("rank {} lists a link with rank {} that no step uses", index(rank_),
                       index(peer));
  }

  const Schedule& schedule_;
  const Program& program_;
  Rank rank_;
  ChunkRange input_;
  ChunkRange output_;
  std::vector<int32_t> received_;
  std::vector<int32_t> sent_;
};

// How many messages a piece each end counts on the links, by sender and receiver.
class LinkEnds {
 public:
  void addSent(Rank sender, Rank receiver, int32_t count) { at(sender, receiver).sent = count; }
  void addReceived(Rank sender, Rank receiver, int32_t count) {
    at(sender, receiver).received = count;
  }

  std::string check() const {
    // The first in order of ranks, so that the reason does not depend on hashing.
    const Ends* worst = nullptr;
    uint64_t worstKey = 0;
    for (const auto& [key, ends] : ends_) {
      if (ends.sent == ends.received || (worst != nullptr && worstKey < key)) continue;
      worst = &ends;
      worstKey = key;
    }
    if (worst == nullptr) return "";
    const uint64_t sender = worstKey >> 32;
    const uint64_t receiver = worstKey & UINT32_MAX;
    return fmt::format("rank {} sends {} messages a piece to rank {}, which receives {}", sender,
                       worst->sent, receiver, worst->received);
  }

 private:
  struct Ends {
    int32_t sent = 0;
    int32_t received = 0;
  };
  Ends& at(Rank sender, Rank receiver) {
    return ends_[(static_cast<uint64_t>(index(sender)) << 32) |
                 static_cast<uint64_t>(index(receiver))];
  }
  std::unordered_map<uint64_t, Ends> ends_;
};

}  // namespace

std::string checkStructure(const Schedule& schedule) {
  if (std::string refusal = checkHead(schedule); !refusal.empty()) {
    return "the schedule " + refusal;
  }
  LinkEnds ends;
  for (int32_t i = 0; i < static_cast<int32_t>(schedule.programs.size()); ++i) {
    const Rank rank{i};
    ProgramCheck check(schedule, rank);
    if (std::string refusal = check.run(); !refusal.empty()) return refusal;
    const Program& program = schedule.programs[static_cast<size_t>(i)];
    for (size_t link = 0; link < check.sent().size(); ++link) {
      ends.addSent(rank, program.sendsTo[link], check.sent()[link]);
    }
    for (size_t link = 0; link < check.received().size(); ++link) {
      ends.addReceived(program.receivesFrom[link], rank, check.received()[link]);
    }
  }
  return ends.check();
}

}  // namespace tutti::schedule
