#include "kernels/bound_program.h"

#include <algorithm>
#include <unordered_set>

namespace tutti::kernels {
namespace {

using schedule::Layout;
using schedule::Operand;
using schedule::Place;

// Elements from the start of the block to the chunk.
size_t chunkStart(const Layout& layout, int32_t chunk) {
  return static_cast<size_t>(chunk % layout.chunksPerBlock) * layout.chunkElements;
}

// Fewer than layout.chunkElements at the end of a block, perhaps none.
size_t chunkLength(const Layout& layout, int32_t chunk) {
  const size_t start = chunkStart(layout, chunk);
  if (start >= layout.blockElements) return 0;
  return std::min(layout.chunkElements, layout.blockElements - start);
}

}  // namespace

UsedLinks usedLinks(const schedule::Program& program, const schedule::Layout& layout) {
  UsedLinks used{.incoming = std::vector<bool>(program.receivesFrom.size()),
                 .outgoing = std::vector<bool>(program.sendsTo.size())};
  for (const schedule::Step& step : program.steps) {
    if (chunkLength(layout, step.chunk) == 0) continue;
    for (const Operand& from : program.sources(step))
      if (from.place == Place::kLink) used.incoming[static_cast<size_t>(from.index)] = true;
    for (const Operand& to : program.destinations(step))
      if (to.place == Place::kLink) used.outgoing[static_cast<size_t>(to.index)] = true;
  }
  return used;
}

BoundProgram::BoundProgram(const ProgramParts& parts)
    : fold_(parts.fold),
      pair_(findPairFold(parts.fold.type, parts.fold.op)),
      elementBytes_(sizeOf(parts.fold.type)),
      pieceElements_(parts.layout.pieceElements),
      pieceCount_(parts.program.steps.empty() ? 0 : parts.layout.pieceCount),
      isDirect_(parts.isDirect),
      mayRefer_(parts.mayRefer) {
  const schedule::Program& program = parts.program;
  size_t operandCount = 0;
  for (const schedule::Step& step : program.steps)
    operandCount += size_t{step.sourceCount} + step.destinationCount;
  operands_.reserve(operandCount);  // steps point there, so it must not move
  steps_.reserve(program.steps.size());
  for (const schedule::Step& step : program.steps) addStep(step, parts);
  turnCount_ = pieceCount_ + (steps_.empty() ? 0 : steps_.back().lag);
  findFinal();
  const auto heard =
      parts.incoming.size() - static_cast<size_t>(std::ranges::count(parts.incoming, nullptr));
  hearsAll_ = parts.fold.rankCount > 1 && heard + 1 == static_cast<size_t>(parts.fold.rankCount);
  for (size_t link = 0; link < parts.outgoing.size(); ++link) {
    if (parts.outgoing[link] == nullptr) continue;
    outgoing_.push_back({.place = Place::kLink,
                         .peer = index(program.sendsTo[link]),
                         .port = parts.outgoing[link]});
  }
}

void BoundProgram::addStep(const schedule::Step& step, const ProgramParts& parts) {
  const auto sources = parts.program.sources(step);
  const auto destinations = parts.program.destinations(step);
  BoundStep bound{.elements = chunkLength(parts.layout, step.chunk),
                  .operands = operands_.data() + operands_.size(),
                  .sourceCount = step.sourceCount,
                  .lag = pieceCount_ > 1 ? step.lag : uint8_t{0},
                  .post = step.post};
  for (size_t i = 0; i < sources.size(); ++i) {
    operands_.push_back(resolve(sources[i], true, parts));
    if (sources[i].place == Place::kInput && fold_.op == ReduceOp::kPreMulSum)
      bound.scaledSource = static_cast<int32_t>(i);
  }
  for (const Operand& output : destinations) {
    if (output.place == Place::kLink) continue;
    operands_.push_back(resolve(output, false, parts));
    ++bound.outputCount;
  }
  for (const Operand& link : destinations) {
    if (link.place != Place::kLink) continue;
    operands_.push_back(resolve(link, false, parts));
    ++bound.linkCount;
  }
  const bool divides = step.post && fold_.op == ReduceOp::kAvg && fold_.rankCount > 1;
  bound.isCopy = step.sourceCount == 1 && bound.scaledSource < 0 && !divides;
  if (bound.scaledSource < 0 && !divides) findShape(bound);
  operandLimit_ = std::max<size_t>({operandLimit_, step.sourceCount, step.destinationCount});
  steps_.push_back(bound);
}

void BoundProgram::findFinal() {
  std::unordered_set<size_t> touched;  // outputs' offsets, by later steps
  for (size_t i = steps_.size(); i-- > 0;) {
    BoundStep& step = steps_[i];
    step.isFinal = std::ranges::none_of(
        outputs(step), [&](const BoundOperand& output) { return touched.contains(output.offset); });
    for (const BoundOperand& operand :
         std::span(step.operands, step.sourceCount + step.outputCount))
      if (operand.place == Place::kOutput) touched.insert(operand.offset);
  }
}

wire::LinkPort* BoundProgram::findBack(int32_t peer, const ProgramParts& parts) {
  for (size_t link = 0; link < parts.outgoing.size(); ++link) {
    if (index(parts.program.sendsTo[link]) == peer) return parts.outgoing[link];
  }
  return nullptr;
}

// REQUIRES: a step with nothing to apply to a source, and no division.
void BoundProgram::findShape(BoundStep& step) const {
  const auto isMessage = [&](size_t source) { return step.operands[source].place == Place::kLink; };
  if (step.sourceCount == 1 && step.linkCount > 0 && !isMessage(0)) {
    step.shape = step.linkCount == 1 ? StepShape::kSend : StepShape::kSpread;
  } else if (step.sourceCount == 1 && step.linkCount == 0) {
    step.shape = isMessage(0) ? StepShape::kReceive : StepShape::kLocal;
  } else if (step.sourceCount == 2 && step.outputCount == 1 && step.linkCount <= 1 &&
             isMessage(0) != isMessage(1)) {
    step.shape = step.linkCount == 0 ? StepShape::kPair : StepShape::kPairSend;
    step.message = isMessage(0) ? 0 : 1;
  }
}

BoundOperand BoundProgram::resolve(const Operand& operand, bool isSource,
                                   const ProgramParts& parts) const {
  BoundOperand bound{.place = operand.place};
  if (operand.place == Place::kLink) {
    const auto link = static_cast<size_t>(operand.index);
    bound.port = isSource ? parts.incoming[link] : parts.outgoing[link];
    bound.peer = index(isSource ? parts.program.receivesFrom[link] : parts.program.sendsTo[link]);
    if (isSource) bound.back = findBack(bound.peer, parts);
    return bound;
  }
  const Layout& layout = parts.layout;
  const int32_t first =
      operand.place == Place::kInput ? layout.firstInputBlock : layout.firstOutputBlock;
  const auto block = static_cast<size_t>(operand.index / layout.chunksPerBlock - first);
  bound.offset = (block * layout.blockElements + chunkStart(layout, operand.index)) * elementBytes_;
  return bound;
}

}  // namespace tutti::kernels
