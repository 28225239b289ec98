#include "schedule/schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>

namespace tutti::schedule {
namespace {

// The peers are searched from the back: an algorithm mostly names the link it named last.
int32_t positionOf(std::vector<Rank>& peers, Rank peer) {
  const auto found = std::find(peers.rbegin(), peers.rend(), peer);
  if (found != peers.rend()) return static_cast<int32_t>(peers.rend() - found) - 1;
  peers.push_back(peer);
  return static_cast<int32_t>(peers.size()) - 1;
}

std::string describeLink(const std::vector<Rank>& peers, int32_t position, std::string_view arrow) {
  if (position < 0 || static_cast<size_t>(position) >= peers.size()) {
    return fmt::format("link{}?{}", arrow, position);
  }
  return fmt::format("link{}{}", arrow, index(peers[static_cast<size_t>(position)]));
}

std::string describeOperand(const Operand& operand, const std::vector<Rank>& peers,
                            std::string_view arrow) {
  switch (operand.place) {
    case Place::kInput: return fmt::format("in[{}]", operand.index);
    case Place::kOutput: return fmt::format("out[{}]", operand.index);
    case Place::kLink: return describeLink(peers, operand.index, arrow);
  }
  return "?";
}

}  // namespace

int32_t blockCount(Collective collective, int32_t rankCount) {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter: return rankCount;
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSend:
    case Collective::kRecv: return 1;
  }
  return 1;
}

int32_t firstInputBlock(Collective collective, Rank rank) {
  const bool ownBlock = collective == Collective::kAllGather || collective == Collective::kGather;
  return ownBlock ? index(rank) : 0;
}

int32_t firstOutputBlock(Collective collective, Rank rank) {
  const bool ownBlock =
      collective == Collective::kReduceScatter || collective == Collective::kScatter;
  return ownBlock ? index(rank) : 0;
}

bool hasInput(Collective collective, const Peers& peers, Rank rank) {
  switch (collective) {
    case Collective::kBroadcast:
    case Collective::kScatter: return rank == peers.root;
    case Collective::kSend:
    case Collective::kRecv: return rank == peers.sender;
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kReduce:
    case Collective::kAllToAll:
    case Collective::kGather: return true;
  }
  return true;
}

bool hasOutput(Collective collective, const Peers& peers, Rank rank) {
  switch (collective) {
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kSend:
    case Collective::kRecv: return rank == peers.root;
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kBroadcast:
    case Collective::kAllToAll:
    case Collective::kScatter: return true;
  }
  return true;
}

Operand ProgramBuilder::from(Rank peer) {
  return {Place::kLink, positionOf(program_.receivesFrom, peer)};
}

Operand ProgramBuilder::to(Rank peer) { return {Place::kLink, positionOf(program_.sendsTo, peer)}; }

void ProgramBuilder::add(const StepSpec& spec) {
  auto& operands = program_.operands;
  program_.steps.push_back({
      .chunk = spec.chunk,
      .firstOperand = static_cast<uint32_t>(operands.size()),
      .sourceCount = static_cast<uint16_t>(spec.sources.size()),
      .destinationCount = static_cast<uint16_t>(spec.destinations.size()),
      .fold = spec.sources.size() == 1 ? Fold::kCopy : Fold::kReduce,
      .post = spec.post,
      .lag = static_cast<uint8_t>(spec.lag),
  });
  operands.insert(operands.end(), spec.sources.begin(), spec.sources.end());
  operands.insert(operands.end(), spec.destinations.begin(), spec.destinations.end());
}

std::string describe(const Program& program, const Step& step) {
  std::string text = fmt::format("chunk {}:", step.chunk);
  const size_t sourceEnd = size_t{step.firstOperand} + step.sourceCount;
  const size_t end = sourceEnd + step.destinationCount;
  for (size_t i = step.firstOperand; i < end; ++i) {
    const bool isSource = i < sourceEnd;
    if (i == sourceEnd) {
      text += " ->";
    } else if (i > step.firstOperand) {
      text += isSource ? " +" : ",";
    }
    text += ' ';
    if (i >= program.operands.size()) {
      text += '?';
    } else if (isSource) {
      text += describeOperand(program.operands[i], program.receivesFrom, "<-");
    } else {
      text += describeOperand(program.operands[i], program.sendsTo, "->");
    }
  }
  if (step.post) text += " post";
  if (step.lag > 0) text += fmt::format(", {} behind", step.lag);
  return text;
}

}  // namespace tutti::schedule
