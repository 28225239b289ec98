// A rank's program with everything resolved that the calls of one shape share: links, offsets and
// lengths. Made once a plan, so that running a step takes no look-up and no division.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "schedule/layout.h"
#include "schedule/schedule.h"
#include "wire/link.h"

namespace tutti::kernels {

struct BoundOperand {
  schedule::Place place = schedule::Place::kInput;
  int32_t peer = -1;               // of a link
  wire::LinkPort* port = nullptr;  // of a link
  wire::LinkPort* back = nullptr;  // of an incoming link: the one to the same peer, if any
  size_t offset = 0;               // bytes from the start of the buffer to the chunk's
};

// What most steps of short calls are.
enum class StepShape : uint8_t {
  kGeneral,
  kSend,     // a local source to one link, and perhaps to outputs; nothing to apply
  kSpread,   // the same to several links
  kReceive,  // a message to outputs; nothing to apply
  kLocal,    // a local source to outputs; nothing to apply
  kPair,     // a local source and a message, folded into one output with nothing to apply before
  kPairSend  // the same, into one link, too
};

struct BoundStep {
  size_t elements = 0;  // of its chunk; perhaps none
  // Sources, then chunks of the output, then links to send on.
  const BoundOperand* operands = nullptr;
  uint16_t sourceCount = 0;
  uint16_t outputCount = 0;
  uint16_t linkCount = 0;
  StepShape shape = StepShape::kGeneral;
  uint8_t message = 0;        // kPair, kPairSend: which of the two sources is the message
  uint8_t lag = 0;            // pieces; none where the program runs once
  int32_t scaledSource = -1;  // as FoldArgs
  bool post = false;
  bool isCopy = false;   // one source, and nothing to apply to it
  bool isFinal = false;  // no later step of this rank touches its outputs
};

// Which of a program's links carry something: with fewer elements than chunks some do not, and a
// rank that waits for them may find that their other end has left.
struct UsedLinks {
  std::vector<bool> incoming;  // as program.receivesFrom
  std::vector<bool> outgoing;  // as program.sendsTo
};
UsedLinks usedLinks(const schedule::Program& program, const schedule::Layout& layout);

struct ProgramParts {
  const schedule::Program& program;
  std::span<wire::LinkPort* const> incoming;  // as program.receivesFrom; null: not used
  std::span<wire::LinkPort* const> outgoing;  // as program.sendsTo; null: not used
  const schedule::Layout& layout;
  FoldSpec fold;  // without the pre-scale, which is a call's own
  // Messages longer than a line are references to the sender's buffers (schedule::isReferable()).
  bool isDirect = false;
  // They may be, also those of other processes; each sender decides. A piece fits a slot.
  bool mayRefer = false;
};

// Constant after construction. The ports outlive it.
class BoundProgram {
 public:
  BoundProgram() = default;
  explicit BoundProgram(const ProgramParts& parts);
  BoundProgram(BoundProgram&&) = default;  // not copied: steps point to their operands
  BoundProgram& operator=(BoundProgram&&) = default;

  std::span<const BoundStep> steps() const { return steps_; }
  static std::span<const BoundOperand> sources(const BoundStep& step) {
    return {step.operands, step.sourceCount};
  }
  static std::span<const BoundOperand> outputs(const BoundStep& step) {
    return {step.operands + step.sourceCount, step.outputCount};
  }
  static std::span<const BoundOperand> links(const BoundStep& step) {
    return {step.operands + step.sourceCount + step.outputCount, step.linkCount};
  }
  std::span<const BoundOperand> outgoing() const { return outgoing_; }
  const FoldSpec& fold() const { return fold_; }
  PairFold pair() const { return pair_; }  // of the steps of shape kPair
  size_t elementBytes() const { return elementBytes_; }
  size_t pieceElements() const { return pieceElements_; }
  size_t pieceCount() const { return pieceCount_; }  // 0 when there is nothing to do
  // How often the steps are gone through: a step works on piece turn - lag, where there is one.
  size_t turnCount() const { return turnCount_; }
  // Each step works on all of its chunk.
  bool runsOnce() const { return turnCount_ == 1; }
  size_t operandLimit() const { return operandLimit_; }
  bool isDirect() const { return isDirect_; }
  bool mayRefer() const { return mayRefer_; }
  // This rank gets a message from every other.
  bool hearsAll() const { return hearsAll_; }

 private:
  void addStep(const schedule::Step& step, const ProgramParts& parts);
  void findShape(BoundStep& step) const;
  void findFinal();
  static wire::LinkPort* findBack(int32_t peer, const ProgramParts& parts);
  BoundOperand resolve(const schedule::Operand& operand, bool isSource,
                       const ProgramParts& parts) const;

  std::vector<BoundStep> steps_;
  std::vector<BoundOperand> operands_;
  std::vector<BoundOperand> outgoing_;  // all links it sends on
  FoldSpec fold_;
  PairFold pair_ = nullptr;
  size_t elementBytes_ = 0;
  size_t pieceElements_ = 0;
  size_t pieceCount_ = 0;
  size_t turnCount_ = 0;
  size_t operandLimit_ = 0;  // the most sources or destinations of a step
  bool isDirect_ = false;
  bool mayRefer_ = false;
  bool hearsAll_ = false;
};

}  // namespace tutti::kernels
