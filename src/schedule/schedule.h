// A collective as data: one small program a rank, made of steps of one form,
//
//     fold sources -> destinations
//
// The same programs are proved (prover.h), executed (kernels/), costed and printed. Pure: values
// in, values out.
//
// Data is named by chunks. A collective's whole vector is cut into blocks (one for all-reduce,
// broadcast and reduce; one a rank for the others), a block into chunkCount / blockCount chunks.
// The executor cuts every chunk into pieces that fit a slot and runs the whole program once a
// piece, so a step moves at most one message on each link it names, and a message of zero bytes
// (the short tail of a vector) is left out on both sides alike. A step waits until every message it
// reads is there and every link it writes has a free slot, then does all of its work at once.
//
// A step may lag some pieces behind: when steps without a lag run for piece k, it runs for piece
// k - lag. So ranks work on the next pieces while a message crosses a network. Lags never fall from
// one step of a program to the next, so each piece has its steps in their order; and the messages
// of a link are all received as many pieces later than they are sent, so they keep their order,
// too.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "wire/types.h"

namespace tutti::schedule {

// Where an operand lives. For kInput and kOutput the index is a chunk of the whole vector, for
// kLink a position in the program's receivesFrom (as a source) or sendsTo (as a destination).
enum class Place : uint8_t { kInput, kOutput, kLink };

struct Operand {
  Place place;
  int32_t index;
  bool operator==(const Operand&) const = default;
};

// kCopy: one source. kReduce: several, folded in the order given, which is what fixes the bits of
// the result.
enum class Fold : uint8_t { kCopy, kReduce };

struct Step {
  int32_t chunk = 0;          // decides the message's length; equal lengths for all operands
  uint32_t firstOperand = 0;  // sources, then destinations, in Program::operands
  uint16_t sourceCount = 0;
  uint16_t destinationCount = 0;
  Fold fold = Fold::kCopy;
  bool post = false;  // apply the post-operation (the division of an average) to the result
  uint8_t lag = 0;    // pieces
};

struct Program {
  std::vector<Rank> receivesFrom;  // the incoming links it uses
  std::vector<Rank> sendsTo;       // the outgoing links it uses
  std::vector<Operand> operands;
  std::vector<Step> steps;

  // Of its last step, which has the longest.
  int32_t lag() const { return steps.empty() ? 0 : steps.back().lag; }
  // Of one of its steps.
  std::span<const Operand> sources(const Step& step) const {
    return {operands.data() + step.firstOperand, step.sourceCount};
  }
  std::span<const Operand> destinations(const Step& step) const {
    return {operands.data() + step.firstOperand + step.sourceCount, step.destinationCount};
  }
  // Sources, then destinations.
  std::span<const Operand> allOperands(const Step& step) const {
    return {operands.data() + step.firstOperand, size_t{step.sourceCount} + step.destinationCount};
  }
};

struct Schedule {
  std::string_view algorithm;  // "ring", "oneshot", ...: static storage
  Collective collective = Collective::kAllReduce;
  int32_t rankCount = 0;
  Rank root{0};    // of a rooted collective; of a send or receive the receiver
  Rank sender{0};  // of a send or receive only
  int32_t blockCount = 1;
  int32_t chunkCount = 1;    // a multiple of blockCount
  int32_t networkCount = 0;  // so many networks that reduce are ranks, too, behind the others: they
                             // have no buffers, and apply no post-operation
  std::vector<Program> programs{};  // by rank
};

// The whole vector's blocks: 1, or one a rank.
int32_t blockCount(Collective collective, int32_t rankCount);

// First block that a rank's input (output) buffer holds; a buffer holds either all blocks or only
// the rank's own. All-gather and gather: input is block `rank`. Reduce-scatter and scatter: output
// is block `rank`. Otherwise 0.
int32_t firstInputBlock(Collective collective, Rank rank);
int32_t firstOutputBlock(Collective collective, Rank rank);

// Whether a rank's call has that buffer at all: only a root broadcasts, only a root is gathered to,
// and a buffer that is not there may be null. `peers` gives root and sender.
struct Peers {
  Rank root{0};
  Rank sender{0};
};
bool hasInput(Collective collective, const Peers& peers, Rank rank);
bool hasOutput(Collective collective, const Peers& peers, Rank rank);

// Adds steps to one program; the algorithms' files are written with it.
class ProgramBuilder {
 public:
  // The index of the link from (to) the peer, added at first use.
  Operand from(Rank peer);
  Operand to(Rank peer);
  static Operand input(int32_t chunk) { return {Place::kInput, chunk}; }
  static Operand output(int32_t chunk) { return {Place::kOutput, chunk}; }

  struct StepSpec {
    int32_t chunk = 0;
    std::vector<Operand> sources{};
    std::vector<Operand> destinations{};
    bool post = false;
    int32_t lag = 0;
  };
  // One source is a copy, several a reduction.
  void add(const StepSpec& spec);
  Program take() && { return std::move(program_); }

 private:
  Program program_;
};

// "chunk 1: link<-3 + in[1] -> out[1], link->1 post", links by the peer's rank; for messages and
// `tutti explain`. Takes any step, sound or not: what is out of range is shown with a question
// mark.
std::string describe(const Program& program, const Step& step);

}  // namespace tutti::schedule
